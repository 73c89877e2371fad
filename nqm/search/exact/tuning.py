"""Best hyper-parameters for a target or a budget.

The fewest steps to a target, over all settings, are the smallest horizon T at which *some* setting is at or below the
target. It is enough to know the least loss of any setting after T steps, ``L*(T) = min signal(T) + noise(T) / B``, which is a
smooth minimisation, and to find the smallest T with ``L*(T) <= target``.

A `Scan` of the box finds a horizon that is long enough (`bracket`). `Basins` finds the least loss at a horizon. `Landing`
shrinks the horizon until no setting is at the target at a shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import numpy as np

from ...engine.run import Outcome
from ...optimizers.base import Optimizer, as_optimizer
from ...problems.base import MAX_STEPS, AnyLaw, Problem, require_problem
from ...sampling.bases import Rotation
from ...types import Array, Wrong
from ..answer import PLAIN, Goal, Sampling, Tuned, at_edge, check_goal
from ..followed import FollowedTuner
from ..hits import steps_to_target
from ..races.ladder import RaceTuner
from .family import Family, O
from .losses import Basins, Losses, Scan, log_loss
from .settings import SETTINGS


def tune(
    problem: Problem,
    optimizer: O | str,
    batch_size: float,
    target: float | None = None,
    *,
    steps: int | None = None,
    examples: float | None = None,
    max_steps: int = MAX_STEPS,
    noise: AnyLaw = "gaussian",
    seed: int = 0,
    rotation: Rotation = None,
    sampled: bool = False,
) -> Tuned[O]:
    """Best values of the free parameters: fewest steps to a target loss, or least loss for a budget.

    Parameters
    ----------
    problem, optimizer : the free parameters of the optimizer are tuned jointly; the others keep their values. Text such as
        ``"HeavyBall(momentum=0.9)"`` will do.
    batch_size : positive; infinity for no noise.
    target : reach this loss in the fewest steps.
    steps, examples : reach the least loss in this many steps, or examples (``examples // batch_size`` steps).
    max_steps : with a target, the longest run that is considered.
    noise, seed, rotation : as in `Problem.sample`, for an optimizer that is sampled. The expected loss of a linear optimizer
        does not depend on them. With another law than the normal one, or in a rotated basis, an optimizer that is not linear is
        sampled.
    sampled : tune an optimizer that is not linear by races among sampled runs, although it has a mean field.

    >>> from nqm import HeavyBall, Quadratic, Spectrum
    >>> tune(Quadratic(Spectrum.power_law(10_000)), HeavyBall(), batch_size=2**14, target=0.01).steps
    341
    """
    optimizer = as_optimizer(optimizer)
    goal, sampling = (
        Goal.of(batch_size, target, steps, examples, max_steps),
        Sampling.of(optimizer, noise, seed, rotation, sampled),
    )
    solver = tuner(problem, optimizer, sampling)
    if target is not None:
        check_goal(problem, target)
    if examples is not None and not problem.counts_examples:
        raise Wrong(
            "the batch size of this problem is not known, so examples cannot be counted; give steps", "examples"
        )
    return solver.solve(goal)


def tuner(problem: Problem, optimizer: O, sampling: Sampling = PLAIN) -> Tuner[O] | FollowedTuner[O] | RaceTuner:
    """The tuner of an optimizer: by exact losses if it is linear, by its mean field if it has one, or else by races."""
    require_problem(problem, "tune")
    problem.check_optimizer(optimizer)
    if isinstance(optimizer, Optimizer) and not optimizer.linear:
        followed = problem.follows(optimizer) and not sampling.asked
        return FollowedTuner(problem, optimizer) if followed else RaceTuner(problem, optimizer, sampling)
    return Tuner(problem, optimizer)


class Tuner(Generic[O]):
    """Tunes an optimizer by exact losses. One scan of its box serves every goal; local searches follow for each goal."""

    def __init__(self, problem: Problem, optimizer: O) -> None:
        self.problem, self.scan = problem, Scan(problem, optimizer)
        self.family = Family(optimizer, problem.nodes.searched(optimizer).spectrum)
        self.walks = self.scan.walks  # Whether every step is computed.
        self.limit = SETTINGS.walked_steps if self.walks else problem.max_steps

    def solve(self, goal: Goal, near: Tuned[O] | None = None) -> Tuned[O]:
        """The best settings for a goal; ``near`` is the answer at a neighbouring, smaller batch size, to start from."""
        basins = Basins(Losses(self.problem, self.family, goal.batch_size, self.scan.effort))
        if goal.target is None:
            return self._least_loss(basins, goal.steps, near)
        return self._fewest_steps(basins, goal.target, min(goal.steps, self.limit), near)

    def _least_loss(self, basins: Basins[O], steps: int, near: Tuned[O] | None) -> Tuned[O]:
        u = self.scan.points[0]
        if len(self.family):
            starts = self.scan.starts(steps.bit_length() - 1, basins.losses.batch_size)
            u = basins.deepest(steps, [*starts, *([] if near is None else [self.family.point(near.optimizer)])])
        loss = basins.losses.exact(u, steps)
        message = f"least loss after {steps:,} steps is {loss:.4g}"
        return self._answer(basins, u, steps, loss, Outcome.finished, message)

    def _fewest_steps(self, basins: Basins[O], target: float, max_steps: int, near: Tuned[O] | None) -> Tuned[O]:
        if self.problem.initial_loss <= target or len(self.family) == 0:
            optimizer, batch_size = self.family.at(self.scan.points[0]), basins.losses.batch_size
            hit = steps_to_target(self.problem, optimizer, batch_size, target, max_steps=max_steps)
            counted = self.problem.counts_examples
            return Tuned(
                optimizer, hit.steps, hit.loss, batch_size, (), hit.outcome, hit.message, counts_examples=counted
            )
        begin = bracket(self.scan, basins, target, max_steps, near)
        if not begin.reached:
            return self._unreached(basins, target, max_steps, begin.u)
        steps, u, loss = Landing(basins, target)(begin)
        if max_steps < steps:
            return self._unreached(basins, target, max_steps, u)
        message = Outcome.reached.value.format(target=target, steps=steps)
        return self._answer(basins, u, steps, loss, Outcome.reached, message)

    def _unreached(self, basins: Basins[O], target: float, max_steps: int, u: Array) -> Tuned[O]:
        u = basins.minima(max_steps, [u], SETTINGS.near)[0].u
        loss = basins.losses.exact(u, max_steps)
        outcome, optimizer, batch_size = Outcome.out_of_steps, self.family.at(u), basins.losses.batch_size
        told = self.problem.sentence(outcome, optimizer, batch_size, target=target, loss=loss, steps=max_steps)
        return self._answer(basins, u, None, loss, outcome, f"even tuned, {told}")

    def _answer(
        self, basins: Basins[O], u: Array, steps: int | None, loss: float, outcome: Outcome, message: str
    ) -> Tuned[O]:
        bound, optimizer, batch_size = self.family.names_at_bound(u), self.family.at(u), basins.losses.batch_size
        message += at_edge(bound) if outcome.ok else ""
        message += self.problem.caveat(optimizer, batch_size, None, steps or 0)
        counted = self.problem.counts_examples
        return Tuned(optimizer, steps, loss, batch_size, bound, outcome, message, counts_examples=counted)


@dataclass(frozen=True)
class Bracket:
    """A horizon, the best setting there, and other good settings; ``reached`` tells whether the best is at the target."""

    steps: int
    u: Array
    others: list[Array]
    reached: bool = True


def bracket(scan: Scan[O], basins: Basins[O], target: float, max_steps: int, near: Tuned[O] | None) -> Bracket:
    """A horizon at which the target is reached: that of ``near``, or a power of two, or the last step allowed."""
    losses, level = basins.losses, 0
    while scan.losses(level, losses.batch_size).min() > target and 2 ** (level + 1) <= max_steps:
        level += 1
    top = min(2**level, max_steps)
    known = [] if near is None else [basins.family.point(near.optimizer)]
    if (
        near is not None
        and near.steps is not None
        and near.steps <= top
        and near.batch_size <= losses.batch_size  # What was reached with more noise is reached here.
        and losses.at(known[0][None], near.steps)[0] <= target
    ):
        return Bracket(near.steps, known[0], [])
    while True:
        starts = [*scan.starts(level, losses.batch_size), *known]
        best, *others = basins.minima(top, starts, SETTINGS.wide, SETTINGS.bracketed)
        if best.loss <= target:
            return Bracket(top, best.u, [basin.u for basin in others])
        if top == max_steps:
            rng = np.random.default_rng(SETTINGS.seed)
            found, _ = basins.below(top, target, basins.around(best.u), rng)
            return Bracket(top, best.u, [], False) if found is None else Bracket(top, found, [])
        # The scan is not exact, and the steps allowed may lie between two powers of two.
        top = min(2 * top, max_steps)
        level = top.bit_length() - 1


class Landing(Generic[O]):
    """Finds the fewest steps to a target from a bracket, the setting that needs them, and its loss there."""

    def __init__(self, basins: Basins[O], target: float) -> None:
        self.basins, self.losses, self.target = basins, basins.losses, target

    def __call__(self, found: Bracket) -> tuple[int, Array, float]:
        T, u = self._explore(*self._shrink(found))
        for radius in SETTINGS.last:  # To the step: the best setting at T, then the step at which it lands.
            u = self.basins.sharpen(T, u, radius)
            T = self._land(u, T, within=0.0)
        return self._confirm(T, u)

    def _land(self, u: Array, T: int, within: float | None = None) -> int:
        return land(self.losses.curve(u), self.target, T, SETTINGS.landed if within is None else within)[0]

    def _shrink(self, found: Bracket) -> tuple[int, Array]:
        """The shortest horizon of these basins, and its setting: in turn the best setting at T, and the step T at which it lands.

        The loss curve of the best setting at T lies on or above L* and touches it at T. Landing is therefore a Newton step that
        never makes the horizon too short. All basins are followed, because another may be best at a shorter horizon.
        """
        u, others = found.u, found.others
        T = self._land(u, found.steps)
        while True:
            basins = self.basins.minima(T, [u, *others], SETTINGS.near, SETTINGS.followed)
            ends = [(self._land(basin.u, T), basin.u) for basin in basins if basin.loss <= self.target]
            if not ends or ends[0][0] >= T * (1 - SETTINGS.close) - 1:
                return min([(T, u), *ends], key=lambda end: end[0])
            (T, u), others = ends[0], [basin.u for basin in basins[1:]]

    def _explore(self, T: int, u: Array) -> tuple[int, Array]:
        """The horizon and setting after a search for better basins at shorter horizons.

        With few steps and little noise the swings of the modes of largest curvature cut the valley into dozens of sharp
        basins. The more settings of a cloud are at the target, the further the horizon goes down. The search ends when
        there is none just below the horizon.
        """
        if len(u) == 1:
            return T, u
        offsets, rng, jump = self.basins.around(0.0 * u), np.random.default_rng(SETTINGS.seed), 1
        while True:
            trial = T - max(jump, math.ceil(T * SETTINGS.close))
            found, count = self.basins.below(trial, self.target, u + offsets, rng, brief=jump > 1)
            if found is not None:
                T, u, jump = min(trial, self._land(found, trial)), found, max(1, count // SETTINGS.jump)
            elif jump > 1:
                jump = 1
            else:
                return T, u

    def _confirm(self, T: int, u: Array) -> tuple[int, Array, float]:
        """The step at which the setting lands on all modes; the nodes of the search know their loss to a part in ten million."""
        loss, radius = math.inf, SETTINGS.last[-1]
        for more in SETTINGS.added:
            end, loss = land(lambda t, u=u: self.losses.exact(u, t), self.target, T)
            if loss <= self.target and end <= max(T + 1, T * (1 + SETTINGS.close)):
                return end, u, loss
            T += more
            u = self.basins.sharpen(T, u, radius)
        hit = steps_to_target(self.losses.problem, self.losses.family.at(u), self.losses.batch_size, self.target)
        return (T, u, loss) if hit.steps is None else (hit.steps, u, hit.loss)


def land(loss: Callable[[int], float], target: float, T: int, within: float = 0.0) -> tuple[int, float]:
    """A step t <= T and its loss, with loss(t) <= target, and above it somewhere in [t (1 - within), t) or at t - 1.

    If loss(T) is above the target, T and that loss. Otherwise steps that a slope of log loss over log time asks for bracket
    t, and false position and bisection in turn find it.
    """
    goal, seen, turn, least = math.log(target), {}, 0, 1

    def height(t: int) -> float:
        seen[t] = loss(t)
        return log_loss(np.array(seen[t])).item() - goal

    lo, at_lo, hi, at_hi = 0, math.inf, T, height(T)
    while lo == 0 and hi > 1 and at_hi <= 0:
        at = height(t := max(1, hi - max(least, math.ceil(SETTINGS.land_slope * hi * -at_hi))))
        least = 2 * least if at - at_hi < SETTINGS.land_flat else 1
        lo, at_lo, hi, at_hi = (t, at, hi, at_hi) if at > 0 else (lo, at_lo, t, at)
    while at_hi <= 0 and hi - lo > max(1, within * hi):
        turn += 1
        part = at_lo / (at_lo - at_hi) if turn % SETTINGS.land_bisect else 0.5
        at = height(t := min(max(lo + 1, round(lo + part * (hi - lo))), hi - 1))
        lo, at_lo, hi, at_hi = (t, at, hi, at_hi) if at > 0 else (lo, at_lo, t, at)
    return hi, seen[hi]
