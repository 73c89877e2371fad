"""Best hyper-parameters for a target, by horizons instead of by a search over time.

The minimum over settings of the first hitting time is the smallest T at which *some* setting is at or below the target.
So it is enough to know, for a horizon T, the least loss that any setting has after T steps,
``L*(T) = min signal(T) + noise(T) / B``, a smooth minimisation, and to find the smallest T with ``L*(T) <= target``.

A `Scan` of the box finds a horizon that is long enough (`bracket`), `Basins` finds the least loss at a horizon, and
`Landing` shrinks the horizon.
"""

from __future__ import annotations

from typing import Generic

from ...engine.run import Outcome
from ...optimizers.base import Optimizer
from ...problems.base import MAX_STEPS, AnyLaw, Problem
from ...sampling.bases import Rotation
from ...types import Array
from ..answer import PLAIN, Goal, Sampling, Tuned, at_edge
from ..hits import steps_to_target
from ..races.ladder import RaceTuner
from .family import Family, O
from .landing import Landing, bracket
from .losses import Basins, Losses, Scan
from .settings import SETTINGS


def tune(
    problem: Problem,
    optimizer: O,
    batch_size: float,
    target: float | None = None,
    *,
    steps: int | None = None,
    examples: float | None = None,
    max_steps: int = MAX_STEPS,
    noise: AnyLaw = "gaussian",
    seed: int = 0,
    rotation: Rotation = None,
) -> Tuned[O]:
    """Best values of the free parameters: fewest steps to a target loss, or least loss for a budget.

    Parameters
    ----------
    problem, optimizer : the optimizer's free parameters are tuned jointly, the others kept.
    batch_size : positive; infinity for no noise.
    target : reach this loss in the fewest steps; or
    steps, examples : reach the least loss in so many steps, or in so many examples (``examples // batch_size`` steps).
    noise, seed, rotation : as in `Problem.sample`, for an optimizer that is sampled; the expected loss of the others
        depends on neither.

    >>> from nqm import HeavyBall, Quadratic, Spectrum
    >>> tune(Quadratic(Spectrum.power_law(10_000)), HeavyBall(), batch_size=2**14, target=0.01).steps
    341
    """
    found = tuner(problem, optimizer, Sampling.of(optimizer, noise, seed, rotation))
    return found.solve(batch_size, target, steps=steps, examples=examples, max_steps=max_steps)


def tuner(problem: Problem, optimizer: O, sampling: Sampling = PLAIN) -> Tuner[O] | RaceTuner:
    """What tunes an optimizer: exact moments or, where it has none, races."""
    if isinstance(optimizer, Optimizer) and not optimizer.linear:
        return RaceTuner(problem, optimizer, sampling)
    return Tuner(problem, optimizer)


class Tuner(Generic[O]):
    """One scan of a family's box serves every batch size and target; then a local search for each."""

    def __init__(self, problem: Problem, optimizer: O) -> None:
        self.problem, self.scan = problem, Scan(problem, optimizer)
        self.family = Family(optimizer, problem.nodes.searched(optimizer).spectrum)
        self.limit = SETTINGS.walked_steps if self.scan.walks else MAX_STEPS

    def solve(
        self,
        batch_size: float,
        target: float | None = None,
        *,
        steps: int | None = None,
        examples: float | None = None,
        max_steps: int = MAX_STEPS,
        near: Tuned[O] | None = None,
    ) -> Tuned[O]:
        """Answer one question; ``near`` is the answer at a neighbouring, smaller batch size, to start from."""
        goal = Goal.of(batch_size, target, steps, examples, max_steps)
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
        if self.problem.spectrum.initial_loss <= target or len(self.family) == 0:
            optimizer, batch_size = self.family.at(self.scan.points[0]), basins.losses.batch_size
            hit = steps_to_target(self.problem, optimizer, batch_size, target, max_steps=max_steps)
            return Tuned(optimizer, hit.steps, hit.loss, batch_size, (), hit.outcome, hit.message)
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
        message = "even tuned, " + Outcome.out_of_steps.value.format(target=target, loss=loss, steps=max_steps)
        return self._answer(basins, u, None, loss, Outcome.out_of_steps, message)

    def _answer(
        self, basins: Basins[O], u: Array, steps: int | None, loss: float, outcome: Outcome, message: str
    ) -> Tuned[O]:
        bound = self.family.names_at_bound(u)
        message += at_edge(bound) if outcome.ok else ""
        return Tuned(self.family.at(u), steps, loss, basins.losses.batch_size, bound, outcome, message)
