"""MNIST (LeCun et al., 1998): 60,000 written digits, 28 x 28 pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import standardised
from .fetch import how
from .sources import Source, read_idx

SOURCE = Source("mnist", how("mnist"), shared=False)  # Fashion-MNIST has files of the same names


def data(n: int) -> tuple[Tensor, Tensor]:
    x = read_idx(SOURCE.file("train-images-idx3-ubyte.gz"))[:n]
    y = read_idx(SOURCE.file("train-labels-idx1-ubyte.gz"))[:n]
    return standardised(torch.tensor(x, dtype=torch.float32)[:, None]), torch.tensor(y, dtype=torch.int64)
