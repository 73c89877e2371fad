"""The first hit of a target on least squares, step by step.

Modes meet in one sum, so there are no powers of single modes to bound a block of time with. Every step is looked at, on
the nodes of `Problem.nodes`, and what is found there is checked on the modes as given.
"""

from __future__ import annotations

import numpy as np

from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer
from ..problems.base import Problem

MAX_WALK = 10**7  # steps looked at in all


def walk_to(
    problem: Problem,
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
        limit = min(limit, problem.hopeless_after(optimizer, batch_size, target, schedule, limit))
    small = problem.nodes.fine if len(problem.nodes.fine.spectrum) < len(problem.spectrum) / 2 else problem
    steps, limit = _walk(small, optimizer, batch_size, target, schedule, limit, until)
    if small is problem or steps is None or _confirmed(problem, optimizer, batch_size, target, schedule, steps):
        return steps, limit
    return _walk(problem, optimizer, batch_size, target, schedule, limit, until)


def _walk(
    problem: Problem,
    optimizer: Optimizer,
    batch_size: float,
    target: float,
    schedule: Schedule | None,
    limit: int,
    until: str,
) -> tuple[int | None, int]:
    t, last_above = 0, 0 if problem.spectrum.initial_loss > target else -1
    if until == "first" and last_above < 0:
        return 0, limit
    for losses in problem.walk(optimizer, batch_size, schedule, limit):
        above = ~(losses <= target)
        if until == "first" and not above.all():
            return t + 1 + int(np.argmin(above)), limit
        if above.any():
            last_above = t + 1 + int(np.flatnonzero(above)[-1])
        t += len(losses)
        if not np.isfinite(losses[-1]):
            return None, t
    return (None if until == "first" or last_above >= limit else last_above + 1), limit


def _confirmed(
    problem: Problem, optimizer: Optimizer, batch_size: float, target: float, schedule: Schedule | None, steps: int
) -> bool:
    """Whether the loss of the full problem crosses the target at this very step."""
    if steps == 0:
        return True
    here, before = (problem.loss(optimizer, t, batch_size, schedule) for t in (steps, steps - 1))
    return here <= target < before
