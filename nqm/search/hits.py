"""The first step at which a loss reaches a target, also where the loss oscillates or rises again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..engine.run import Hit, Outcome, reached_at
from ..engine.schedule import MAX_PIECES, AnySchedule, as_schedule
from ..optimizers.base import Written, as_optimizer, require_set
from ..problems.base import MAX_STEPS, Problem, check_batch_size, check_steps, require_problem
from ..types import Wrong
from .answer import check_goal
from .followed import first_hit
from .march import Chase, Until, Watch, march_to
from .settings import HIT_SETTINGS


def steps_to_target(
    problem: Problem,
    optimizer: Written,
    batch_size: float,
    target: float,
    schedule: AnySchedule = None,
    max_steps: int = MAX_STEPS,
    until: Until = "first",
) -> Hit:
    """The first step at which the expected loss is at or below the target.

    ``until="settled"`` returns the step from which on the loss stays at or below the target, up to ``max_steps``.

    The answer is exact for every linear optimizer. The loss of any other is that of its mean field, and is observed after blocks of
    steps that last 1/64 of the time passed. On `LeastSquares` every step is computed, 10^7 at most. A `Polyak`
    average over a fraction of the run is a different run at each horizon; its horizons are tried on a grid of ratio 1.02, and
    the shortest is found by bisection.

    >>> from nqm import Quadratic, SGD, Spectrum
    >>> steps_to_target(Quadratic(Spectrum.power_law(10_000)), SGD(1.99), batch_size=16, target=4.2).steps
    2
    """
    optimizer = as_optimizer(optimizer)
    require_set(optimizer, "steps_to_target")
    require_problem(problem, "steps_to_target")
    batch_size = check_batch_size(batch_size)
    limit = min(check_steps(max_steps, argument="max_steps"), problem.max_steps)
    if until not in ("first", "settled"):
        raise Wrong(f"until must be 'first' or 'settled', got {until!r}", "until")
    if until == "settled" and optimizer.depends_on_horizon:
        raise Wrong(
            f"until='settled' needs one run, but {optimizer} is a different run at each horizon; give its average a start",
            "until",
        )
    target = check_goal(problem, target)
    fixed = as_schedule(schedule, min(limit, HIT_SETTINGS.most_called if callable(schedule) else MAX_PIECES))
    chase = Chase(problem, optimizer, batch_size, target, fixed, limit, until)
    if not optimizer.linear and not optimizer.depends_on_horizon:
        return first_hit(chase)
    find = _shortest_horizon if optimizer.depends_on_horizon else march_to if problem.separable else _walk_to
    with np.errstate(over="ignore", invalid="ignore"):
        return _answer(chase, *find(chase))


def _answer(chase: Chase, steps: int | None, limit: int) -> Hit:
    target = chase.target
    if steps is not None:
        loss = chase.loss(steps)
        message = reached_at(steps, target)
        message += chase.problem.caveat(chase.optimizer, chase.batch_size, chase.schedule, steps)
        return Hit(steps, Outcome.reached, message, loss)
    floor = chase.floor
    if math.isinf(floor):
        outcome, loss = Outcome.diverged, math.inf
    elif floor >= target:
        outcome, loss = Outcome.above_floor, floor
    else:
        outcome, loss = Outcome.out_of_steps, chase.loss(limit)
    message = chase.problem.sentence(
        outcome, chase.optimizer, chase.batch_size, chase.schedule, steps=limit, target=target, floor=floor, loss=loss
    )
    return Hit(None, outcome, message, loss)


def _shortest_horizon(chase: Chase) -> tuple[int | None, int]:
    """The smallest horizon at the target, for an optimizer that is a different run at each horizon."""
    problem, optimizer, limit = chase.problem, chase.optimizer, chase.limit
    fast = None
    if not problem.separable and chase.schedule is None:
        fast = problem.nodes.fine.curve(optimizer, chase.batch_size)

    def below(t: int) -> bool:
        return bool((fast(t)[0] if fast else chase.loss(t)) <= chase.target)

    longest = min(limit, HIT_SETTINGS.longest_horizon) if optimizer.endless.cycle == 0 else limit
    low, t = -1, 0
    while not below(t):
        if t >= longest:
            return None, limit
        low, t = t, min(longest, max(t + 1, math.ceil(HIT_SETTINGS.horizon_ratio * t)))
    while t - low > 1:
        middle = (low + t) // 2
        low, t = (low, middle) if below(middle) else (middle, t)
    return t, limit


def _walk_to(chase: Chase) -> tuple[int | None, int]:
    """The step that answers the chase, or None, and how many steps were computed.

    Coupled modes have no powers of their own with which to bound a block of time. Every step is therefore computed, on the
    fine nodes of the problem, and the answer is checked on the modes as given.
    """
    problem, optimizer, averages, floor = chase.problem, chase.optimizer, chase.optimizer.averages, chase.floor
    if chase.until == "settled" and not (averages or floor <= chase.target):
        return None, chase.limit
    limit = min(chase.limit, HIT_SETTINGS.most_coupled)
    if chase.until == "first" and not averages and floor >= chase.target:
        limit = problem.hopeless_after(optimizer, chase.batch_size, chase.target, chase.schedule, limit)
    chase, fine = replace(chase, limit=limit), problem.nodes.fine
    if len(fine.spectrum) >= HIT_SETTINGS.fewer_nodes * len(problem.spectrum):
        return _walk(chase)
    steps, seen = _walk(replace(chase, problem=fine))
    # The loss on the modes as given must cross the target at this very step.
    if not steps or chase.loss(steps) <= chase.target < chase.loss(steps - 1):
        return steps, seen
    return _walk(replace(chase, limit=seen))


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
