"""The first hit of a target on a problem whose modes are coupled, step by step.

Modes meet in one sum, so there are no powers of single modes to bound a block of time with. Every step is looked at, on
the fine nodes of the problem, and what is found there is checked on the modes as given.
"""

from __future__ import annotations

from dataclasses import replace

from .chase import HIT_SETTINGS, Chase, Watch


def walk_to(chase: Chase) -> tuple[int | None, int]:
    """The step that is asked for, if there is one, and how many steps were looked at."""
    problem, optimizer, averages, floor = chase.problem, chase.optimizer, chase.optimizer.averages, chase.floor
    if chase.until == "settled" and not (averages or floor <= chase.target):
        return None, chase.limit
    limit = min(chase.limit, HIT_SETTINGS.most_coupled)
    if chase.until == "first" and not averages and floor >= chase.target:
        limit = problem.hopeless_after(optimizer, chase.batch_size, chase.target, chase.schedule, limit)
    chase, fine = replace(chase, limit=limit), problem.nodes.fine
    if len(fine.spectrum) >= len(problem.spectrum) / 2:
        return _walk(chase)
    steps, seen = _walk(replace(chase, problem=fine))
    return (steps, seen) if steps is None or _confirmed(chase, steps) else _walk(replace(chase, limit=seen))


def _walk(chase: Chase) -> tuple[int | None, int]:
    watch, t = Watch(chase, chase.limit), 0
    if watch.first and watch.last_above < 0:
        return 0, chase.limit
    for losses in chase.problem.walk(chase.optimizer, chase.batch_size, chase.schedule, chase.limit):
        if (hit := watch.see(losses, t + 1)) is not None:
            return hit, watch.limit
        t += len(losses)
        if watch.over:
            break
    return watch.answer(), watch.limit


def _confirmed(chase: Chase, steps: int) -> bool:
    """Whether the loss of the full problem crosses the target at this very step."""
    return steps == 0 or chase.loss(steps) <= chase.target < chase.loss(steps - 1)
