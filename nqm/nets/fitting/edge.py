"""Learning rates past the edge of stability: curvature comes down to what the rate allows.

On a quadratic a mode of curvature h diverges once the rate passes an edge, 2 / h for SGD. A network does not: it swings until
it has reached a region whose largest curvature is near that edge. So a prediction past the edge takes no curvature larger
than a share of the curvature at which the rate is at the edge. The loss along a capped mode is kept, and so is its noise.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ...engine.schedule import Schedule
from ...engine.spectrum import Spectrum
from ...optimizers.base import Optimizer, fill, parameters
from ...problems.quadratic import Quadratic

EDGE_SHARE = 0.9  # curvatures are capped at this share of that at the edge; docs/nets.md has the shares that were tried
KNOWN_EXCESS = 2.05  # rates up to twice the largest stable one were checked; nothing is known beyond this multiple
LIMITS_KEPT = 256
"""Number of stability limits that are kept. Advice asks for that of each momentum some fifty times, and each takes 5 ms to find."""


@lru_cache(maxsize=LIMITS_KEPT)
def _limit(spectrum: Spectrum, optimizer: Optimizer) -> float:
    """The largest stable learning rate, whatever the one that the optimizer has."""
    return Quadratic(spectrum).stability_limit(optimizer)


def excess(spectrum: Spectrum, optimizer: Optimizer, schedule: Schedule | None) -> float:
    """The largest learning rate of a run over the largest stable one; 0 if every rate is stable."""
    rates = [p.value for p in parameters(optimizer).values() if p.path[-1] == "lr"]
    limit = _limit(spectrum, fill(optimizer, {"lr": 1.0})) if rates else math.inf
    largest = 1.0 if schedule is None else float(np.max(schedule.lr))
    return largest * float(max(rates, default=0.0)) / limit


def ceiling(spectrum: Spectrum, optimizer: Optimizer) -> float:
    """The largest curvature that a network keeps at the unscheduled rate: `EDGE_SHARE` of that at which it is at the edge."""
    over, power = excess(spectrum, optimizer, None), 1 - optimizer.preconditioning
    return float(spectrum.h.max()) * (EDGE_SHARE / over) ** (1 / power) if over > 0 and power > 0 else math.inf


def capped(spectrum: Spectrum, optimizer: Optimizer, schedule: Schedule | None) -> Spectrum:
    """The spectrum with no curvature above `EDGE_SHARE` of that at which the largest rate of the run is at the edge."""
    over = excess(spectrum, optimizer, schedule)
    power = 1 - optimizer.preconditioning
    if over <= EDGE_SHARE or power <= 0:
        return spectrum
    h = np.minimum(spectrum.h, spectrum.h.max() * (EDGE_SHARE / over) ** (1 / power))
    return Spectrum(h, spectrum.c, spectrum.s * spectrum.h / h, spectrum.count)
