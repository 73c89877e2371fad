"""First hits and best settings of optimizers that are not linear, by their mean field.

One run of a mean field gives its loss at all times. So the first hit of a setting costs one run, and a whole cloud of settings
shares one pass. Tuning minimises the log of the first hit, as a smooth function of the settings: a scan of the box, then local
searches (`minimise`) on few nodes, and at last a run of the best setting on finer nodes, in finer blocks of time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

import numpy as np

from ..engine.mean_field import FINE_DETAIL, QUICK_DETAIL, SCAN_DETAIL, Detail, FieldState, MeanField
from ..engine.run import Hit, Outcome, reached_at
from ..optimizers.base import Optimizer
from ..problems.base import Problem
from ..problems.followed import Followed
from ..types import Array
from .answer import Goal, Tuned, at_edge
from .exact.family import Family, O
from .exact.losses import log_loss
from .exact.minimise import Basin, minimise
from .march import Chase


@dataclass(frozen=True)
class FollowSettings:
    """A search by mean field. Lengths are in units of the search box, as in `SearchSettings`."""

    scan_points: int = 24
    """The scan of p parameters has this many settings times p."""
    memory: float = 16.0
    """The scan tries memories of a momentum or of an average up to 2 to this power; small batches ask for long ones."""
    wide: float = 1.5
    """Size of the first cloud of a local search from a scan."""
    neighbours: float = 8.0
    """An answer at a batch size up to this many times smaller is a start for a search; further away a scan finds better ones."""
    near: float = 1.0
    """Size of the first cloud around the best setting at a neighbouring batch size."""
    again: float = 0.5
    """Size of the first cloud around an answer that is searched again."""
    polish: float = 0.25
    """Size of the first cloud of the last search of several settings."""
    rough: float = 0.3
    """Size of the clouds at which several local searches end, and the best of them goes on alone."""
    sharp: float = 0.04
    """Size of the cloud at which a local search ends. An error of this size in log2 of a rate changes steps by less than 0.1%."""
    starts: int = 3
    """This many local searches start from the best settings of a scan."""
    apart: float = 1.0
    """Starts from a scan have at least this distance."""
    longer: float = 1.5
    """A pass ends when its best setting has been at the target for this many times its steps; the others count by their loss."""
    slope: float = 2.0
    """A setting that is not at the target when its pass ends counts as later by this many times the log of its loss over it."""
    numbers: int = 2**16
    """The arrays of one pass hold at most this many numbers: settings times nodes times starts."""
    short: int = 1500
    """An answer of at most this many steps is searched again with more starts and shorter blocks (`SHORT_DETAIL`)."""
    very_short: int = 128
    """Below this many steps that search begins with a scan of its own, because the loss swings through the target,"""
    denser: int = 4
    """with this many times as many points, divided by the number of parameters."""
    growth: float = math.inf
    """The growth of a mode that cuts a block (`Detail.growth`). With 4, as in reported runs, some bad settings make all blocks of
    a pass short: 40 tuned points on three spectra took 5 to 60% longer, and none had more than 1% fewer or more steps."""
    settled: float = 1e-4
    """A loss has settled if its log changes by less than this while time doubles."""
    within: float = 1e-3
    """Relative error of the horizon of an optimizer that depends on it."""


FOLLOW = FollowSettings()
LONG_DETAIL = Detail(part=1 / 32, starts=QUICK_DETAIL.starts)
"""For the last search of several settings of a long run, over which the loss ripples with the blocks of a quick one."""
SHORT_DETAIL = Detail(part=1 / 32, starts=12)
"""For searches of short runs, in which the loss may swing through the target."""
VERY_SHORT_DETAIL = Detail(part=1 / 32, starts=24)
"""For searches of very short runs, in which few steps decide."""
SIGNS_DETAIL = Detail(part=FINE_DETAIL.part, starts=QUICK_DETAIL.starts)
"""For searches of optimizers that take signs: their steps depend on the present alone, and need shorter blocks."""


def first_hit(chase: Chase) -> Hit:
    """The first step at the target by mean field, or the step from which on the loss stays there.

    The loss is observed after every block of steps. A dip below the target within a block can be missed.
    """
    followed = Followed(chase.problem, chase.optimizer, chase.batch_size, chase.schedule)
    hit = _plain_hit(chase, followed)
    if hit.steps == 0:
        return hit
    return replace(hit, message=hit.message + followed.says(steps=(hit.steps, hit.steps) if hit.steps else None))


def _plain_hit(chase: Chase, followed: Followed) -> Hit:
    """What `first_hit` returns, without a word on how far it can be trusted, which takes a run of its own."""
    target, limit, first = chase.target, chase.limit, chase.until == "first"
    if first and chase.problem.initial_loss <= target:
        return Hit(0, Outcome.reached, reached_at(0, target), chase.problem.initial_loss)
    field, hit, seen = followed.field(), None, (0, chase.problem.initial_loss)
    t0, before = 0, field.start()
    for t, state in field.blocks(limit):
        loss = float(field.losses(state, t))
        below, was_below = loss <= target, seen[1] <= target
        if below and not was_below:
            hit = _within(field, before, t0, t, target)
            if first:
                break
        elif not below:
            hit = None
        seen, t0, before = (t, loss), t, state
    if hit is not None:
        return Hit(hit[0], Outcome.reached, reached_at(hit[0], target), hit[1], "mean field")
    outcome = Outcome.out_of_steps if math.isfinite(seen[1]) else Outcome.diverged
    floor = followed.floor() if outcome is Outcome.out_of_steps else math.inf
    outcome, loss = (Outcome.above_floor, floor) if target < floor < math.inf else (outcome, seen[1])
    message = chase.problem.sentence(
        outcome, chase.optimizer, chase.batch_size, steps=limit, target=target, floor=floor, loss=loss
    )
    return Hit(None, outcome, message, loss, "mean field")


def _within(field: MeanField, state: FieldState, t0: int, t1: int, target: float) -> tuple[int, float]:
    """The first step of a block at the target, by bisection, and its loss."""

    def loss(t: int) -> float:
        with np.errstate(all="ignore"):
            return float(field.losses(field.move(state, t0, t), t))

    low, high, at = t0, t1, loss(t1)
    while high - low > 1:
        middle = (low + high) // 2
        found = loss(middle)
        low, high, at = (low, middle, found) if found <= target else (middle, high, at)
    return high, at


class PassEnd(NamedTuple):
    """What many settings have done until a pass ended."""

    steps: int  # length of the pass
    log_hits: Array  # log of the first hit of each setting, interpolated between blocks; NaN if there was none
    lowest: Array  # log of the least loss of each setting
    last: Array  # the last loss of each setting


def follow_to(field: MeanField, count: int, initial: float, target: float, limit: int, longer: float) -> PassEnd:
    """Follow ``count`` settings until all have come to the target, or until ``longer`` times the first hit, or have settled."""
    goal, hits = math.log(target), np.full(count, np.nan)
    before, t0, end, t, checked = np.full(count, math.log(initial)), 0, float(limit), 0, (64, np.full(count, np.inf))
    lowest = last = before
    for t, state in field.blocks(limit):
        last = np.broadcast_to(field.losses(state, t), (count,))
        now = log_loss(last)
        new = np.isnan(hits) & (now <= goal)
        if new.any():
            with np.errstate(all="ignore"):
                part = np.clip((before - goal) / (before - now), 0.0, 1.0)[new]
            hits[new] = np.log(t0 + part * (t - t0)) if t0 == 0 else math.log(t0) + part * math.log(t / t0)
            end = min(end, longer * t)
        before, t0, lowest = now, t, np.minimum(lowest, now)
        if not np.isnan(hits).any() or t >= end:
            break
        if t >= 2 * checked[0]:
            if np.all(~np.isnan(hits) | (np.abs(now - checked[1]) < FOLLOW.settled)):
                break
            checked = t, now
    return PassEnd(t, hits, lowest, last)


class Courses(Generic[O]):
    """The losses over time of many settings of a family at once, on few nodes."""

    def __init__(self, problem: Problem, family: Family[O], batch_size: float, detail: Detail) -> None:
        self.problem, self.family, self.batch_size = problem.nodes.followed_quickly, family, batch_size
        self.detail, self.each = replace(detail, growth=FOLLOW.growth), FOLLOW.numbers // detail.starts

    def losses(self, U: Array, t: int) -> Array:
        """The loss of each row of U after t steps."""
        found = np.empty(len(U))
        for rows, optimizer in self.family.passes(U, self.each):
            field = self._field(optimizer.at_horizon(t))
            with np.errstate(all="ignore"):
                found[rows] = field.losses(field.move(field.start(), 0, t), t)
        return found

    def log_hits(self, U: Array, target: float, limit: int) -> Array:
        """The log of the time at which each row of U first comes to the target, interpolated between steps.

        A row that has not come there when the pass ends counts as later, by its loss.
        """
        found = np.empty(len(U))
        for rows, optimizer in self.family.passes(U, self.each):
            found[rows] = self._pass(self._field(optimizer.endless), len(rows), target, limit)
        return found

    def _pass(self, field: MeanField, count: int, target: float, limit: int) -> Array:
        course = follow_to(field, count, self.problem.initial_loss, target, limit, FOLLOW.longer)
        late = math.log(max(course.steps, 1)) + FOLLOW.slope * np.maximum(course.lowest - math.log(target), 0.0)
        return np.where(np.isnan(course.log_hits), late, course.log_hits)

    def _field(self, optimizer: Optimizer) -> MeanField:
        return self.problem.field(optimizer, self.batch_size, detail=self.detail)


class FollowedTuner(Generic[O]):
    """Tunes an optimizer that is not linear by its mean field."""

    def __init__(self, problem: Problem, optimizer: O) -> None:
        self.problem, self.family = problem, Family(optimizer, problem.nodes.smooth.spectrum)
        likely = [p.kind.likely or (p.kind.low, p.kind.high) for p in self.family.free]
        longest = [FOLLOW.memory if p.kind.scale == "memory" else math.inf for p in self.family.free]
        self.low = np.array([low for low, _ in likely])
        self.high = np.array(
            [
                p.kind.high if p.kind.scale == "memory" else high
                for p, (_, high) in zip(self.family.free, likely, strict=True)
            ]
        )
        self.high = np.minimum(self.high, longest)
        # Whether long runs cost much: an average that depends on its horizon is a run of its own at each.
        self.walks = self.family.at((self.family.low + self.family.high) / 2).depends_on_horizon

    def solve(self, goal: Goal, near: Tuned[O] | None = None) -> Tuned[O]:
        """The best settings for a goal; ``near`` is the answer at a neighbouring batch size, to start from."""
        start = None if near is None else self.family.point(near.optimizer)
        if goal.target is None:
            return self._least_loss(self._lowest(goal, goal.steps, start).u, goal)
        if self.problem.initial_loss <= goal.target or not len(self.family):
            u = (self.low + self.high) / 2
        elif self.family.at((self.family.low + self.family.high) / 2).depends_on_horizon:
            u = self._over_horizons(goal, start)
        else:
            u = self._soonest(goal, near)
        return self._fewest_steps(u, goal)

    def _detail(self) -> Detail:
        return SIGNS_DETAIL if self.family.optimizer.assumes_normal else QUICK_DETAIL

    def _courses(self, goal: Goal, detail: Detail) -> Courses[O]:
        return Courses(self.problem, self.family, goal.batch_size, detail)

    def _log_hits(self, goal: Goal, detail: Detail, limit: float) -> Callable[[Array], Array]:
        """What a search for the first hit minimises."""
        assert goal.target is not None
        courses, target, most = self._courses(goal, detail), goal.target, math.ceil(min(goal.steps, limit))
        return lambda U: courses.log_hits(U, target, most)

    def _soonest(self, goal: Goal, near: Tuned[O] | None) -> Array:
        """The setting that comes to the target first."""
        rough = self._roughly(goal, near)
        steps = math.exp(rough.value)
        if steps <= FOLLOW.short:
            return self._soonest_of_short(goal, rough, scan=near is not None)
        if len(self.family) == 1:
            return rough.u
        return self._best(self._log_hits(goal, LONG_DETAIL, FOLLOW.longer * steps), [rough.u], FOLLOW.polish).u

    def _roughly(self, goal: Goal, near: Tuned[O] | None) -> Basin:
        """A first answer: the neighbouring one, if it is short enough to be searched again, or one by quick runs."""
        if near is None or goal.batch_size > FOLLOW.neighbours * near.batch_size:
            starts = self._scanned(self._log_hits(goal, SCAN_DETAIL, math.inf))
            return self._best(self._log_hits(goal, self._detail(), math.inf), starts, FOLLOW.wide)
        start, limit = self.family.point(near.optimizer), math.inf
        if (
            near.steps is not None and near.batch_size <= goal.batch_size
        ):  # What was reached with more noise is reached here.
            limit = FOLLOW.longer * near.steps
            if near.steps <= FOLLOW.short:
                return Basin(start, math.log(near.steps))
        return self._best(self._log_hits(goal, self._detail(), limit), [start], FOLLOW.near)

    def _soonest_of_short(self, goal: Goal, rough: Basin, scan: bool) -> Array:
        """The setting that comes to the target first, if that takes few steps, near a first answer or where a scan leads."""
        limit, starts = 2 * math.exp(rough.value), [rough.u]
        swings = rough.value < math.log(FOLLOW.very_short)
        if swings or scan:
            denser = max(1, FOLLOW.denser // len(self.family)) if swings else 1
            starts += self._scanned(self._log_hits(goal, SHORT_DETAIL if swings else SCAN_DETAIL, limit), denser)
        detail = VERY_SHORT_DETAIL if swings else SHORT_DETAIL
        best = self._best(self._log_hits(goal, detail, limit), starts, FOLLOW.near if scan else FOLLOW.again)
        if not swings and best.value < math.log(FOLLOW.very_short):
            return self._soonest_of_short(goal, best, scan=False)
        return best.u

    def _lowest(self, goal: Goal, steps: int, start: Array | None) -> Basin:
        """The setting of least loss after some steps."""
        courses = self._courses(goal, SHORT_DETAIL if steps <= FOLLOW.short else self._detail())
        value = lambda U: log_loss(courses.losses(U, steps))  # noqa: E731
        return self._best(value, self._scanned(value) if start is None else [start], FOLLOW.wide)

    def _scanned(self, value: Callable[[Array], Array], denser: int = 1) -> list[Array]:
        """The best points of a scan of the likely part of the box that are apart from each other."""
        family, starts = self.family, list[Array]()
        count = denser * FOLLOW.scan_points * len(family)
        points = self.low + (self.high - self.low) * family.spread(count, len(family))
        for i in np.argsort(value(points)):
            apart = all(np.abs(points[i] - s).max() > FOLLOW.apart for s in starts)
            if len(starts) < FOLLOW.starts and apart:
                starts.append(points[i])
        return starts

    def _best(self, value: Callable[[Array], Array], starts: list[Array], radius: float) -> Basin:
        """The point of least value that local searches from these starts find."""
        if not len(self.family):
            return Basin(np.zeros(0), float(value(np.zeros((1, 0)))[0]))
        if len(starts) > 1:
            best = minimise(value, starts, radius, self.family.low, self.family.high, FOLLOW.rough)[0]
            starts, radius = [best.u], FOLLOW.rough
        return minimise(value, starts, radius, self.family.low, self.family.high, FOLLOW.sharp)[0]

    def _over_horizons(self, goal: Goal, start: Array | None) -> Array:
        """The best setting at the smallest horizon at which some setting is at the target, by bisection over log horizons."""
        assert goal.target is not None
        wanted, low, high, T = math.log(goal.target), 0, 0, 64
        basin = self._lowest(goal, T, start)
        while high == 0 or high - low > max(1, FOLLOW.within * high):
            if basin.value <= wanted:
                high = T
            elif goal.steps <= T:
                break
            else:
                low = T
            T = min(4 * T, goal.steps) if not high else max(low + 1, round(math.sqrt(max(low, 1) * high)))
            basin = self._lowest(goal, T, basin.u)
        return basin.u

    def _least_loss(self, u: Array, goal: Goal) -> Tuned[O]:
        optimizer = self.family.at(u)
        followed = Followed(self.problem, optimizer, goal.batch_size)
        loss = float(followed.losses(np.array([goal.steps]))[0])
        message = f"least loss after {goal.steps:,} steps is {loss:.4g}"
        return self._answer(u, goal, Hit(goal.steps, Outcome.finished, message, loss), followed)

    def _fewest_steps(self, u: Array, goal: Goal) -> Tuned[O]:
        from .hits import steps_to_target

        assert goal.target is not None
        optimizer = self.family.at(u)
        followed = Followed(self.problem, optimizer, goal.batch_size)
        if optimizer.depends_on_horizon:
            hit = steps_to_target(self.problem, optimizer, goal.batch_size, goal.target, max_steps=goal.steps)
        else:
            chase = Chase(self.problem, optimizer, goal.batch_size, goal.target, None, goal.steps, "first")
            hit = _plain_hit(chase, followed)
        if hit.steps is None:
            loss = float(followed.losses(np.array([goal.steps]))[0])
            message = "even tuned, " + Outcome.out_of_steps.value.format(
                target=goal.target, loss=loss, steps=goal.steps
            )
            hit = Hit(None, Outcome.out_of_steps, message, loss)
        else:
            hit = Hit(
                hit.steps, hit.outcome, Outcome.reached.value.format(target=goal.target, steps=hit.steps), hit.loss
            )
        return self._answer(u, goal, hit, followed)

    def _answer(self, u: Array, goal: Goal, hit: Hit, followed: Followed) -> Tuned[O]:
        bound, optimizer = self.family.names_at_bound(u), self.family.at(u)
        said = followed.says(steps=(hit.steps, hit.steps) if hit.steps else None)
        message = hit.message + (at_edge(bound) if hit.outcome.ok else "") + said
        return Tuned(optimizer, hit.steps, hit.loss, goal.batch_size, bound, hit.outcome, message, method="mean field")
