"""The fit of digits that several tests read, made once for each process."""

from __future__ import annotations

from functools import cache

import torch

from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.probing import fit
from nqm.nets.network import Network
from nqm.nets.workloads import workload


@cache
def digits() -> tuple[Network, Fit]:
    torch.set_num_threads(1)
    network = workload("digits").network()
    return network, fit(network, descent=60)
