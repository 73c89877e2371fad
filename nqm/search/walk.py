"""The first hit of a target on least squares, step by step.

Modes meet in one sum, so there are no powers of single modes to bound a block of time with. Every step is looked at, on
the nodes of `LeastSquares.fine`, and what is found there is checked on the modes as given.
"""

from __future__ import annotations

import numpy as np

from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer
from ..problems.least_squares import LeastSquares
from ..problems.renewal import Renewal

MAX_WALK = 10**7  # steps looked at in all
CHUNK = 2**14  # steps between two looks at the losses, at most; fewer to begin with
MARGIN = 1e-3  # by which the label noise alone must exceed a target before the search gives up


def walk_to(
    problem: LeastSquares,
    optimizer: Optimizer,
    batch_size: float,
    target: float,
    schedule: Schedule | None,
    limit: int,
    until: str,
) -> tuple[int | None, int]:
    """The first step at or below the target (or after the last one above it), and how many steps were looked at."""
    floor = problem.floor(optimizer, batch_size, schedule)
    if until == "settled" and not (optimizer.averages or floor <= target):
        return None, limit
    limit = min(limit, MAX_WALK)
    if until == "first" and not optimizer.averages and floor >= target:
        limit = min(limit, _hopeless(problem, optimizer, batch_size, target, schedule, limit))
    small = problem.fine if len(problem.fine.features) < len(problem.features) / 2 else problem
    steps, limit = _walk(small, optimizer, batch_size, target, schedule, limit, until)
    if small is problem or steps is None or _confirmed(problem, optimizer, batch_size, target, schedule, steps):
        return steps, limit
    return _walk(problem, optimizer, batch_size, target, schedule, limit, until)


def _walk(
    problem: LeastSquares,
    optimizer: Optimizer,
    batch_size: float,
    target: float,
    schedule: Schedule | None,
    limit: int,
    until: str,
) -> tuple[int | None, int]:
    coupled = problem.coupled(optimizer.endless, batch_size, schedule)
    state, t, last_above = coupled.start(), 0, 0 if problem.spectrum.initial_loss > target else -1
    if until == "first" and last_above < 0:
        return 0, limit
    while t < limit:
        to = min(limit, t + min(CHUNK, max(t, 128)))
        with np.errstate(all="ignore"):
            state, signal, noise = coupled.walk(state, t, to)
            above = ~(signal[0] + noise[0] / batch_size <= target)
        if until == "first" and not above.all():
            return t + 1 + int(np.argmin(above)), limit
        if above.any():
            last_above = t + 1 + int(np.flatnonzero(above)[-1])
        if not np.isfinite(signal[0, -1] + noise[0, -1]):
            return None, to
        t = to
    return (None if until == "first" or last_above >= limit else last_above + 1), limit


def _hopeless(
    problem: LeastSquares, optimizer: Optimizer, batch_size: float, target: float, schedule: Schedule | None, limit: int
) -> int:
    """A step after which the target is out of reach: what label noise alone adds at constant settings only grows."""
    settled = schedule.repeats_from if schedule else 0
    if schedule:
        lr, momentum, batch = schedule.at(settled)
        if lr == 0:
            return limit
        optimizer, batch_size = optimizer.scaled(lr, momentum), batch_size * batch
    coupled = problem.fine.coupled(optimizer.endless, batch_size)
    if not Renewal.fits(coupled):
        return limit
    renewal = Renewal(coupled)
    M, t = np.zeros_like(renewal.start()), 0
    with np.errstate(all="ignore"):
        while t < limit:
            M, t = renewal.move(M, t, t + max(64, t)), t + max(64, t)
            if not renewal.loss(M, t)[0] <= (1 + MARGIN) * target:
                break
    return min(limit, settled + t)


def _confirmed(
    problem: LeastSquares, optimizer: Optimizer, batch_size: float, target: float, schedule: Schedule | None, steps: int
) -> bool:
    """Whether the loss of the full problem crosses the target at this very step."""
    if steps == 0:
        return True
    here, before = (problem.loss(optimizer, t, batch_size, schedule) for t in (steps, steps - 1))
    return here <= target < before
