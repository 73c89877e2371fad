"""Tuning an optimizer that is sampled: races between settings, and an answer with its standard error."""

from __future__ import annotations

import math

from ...engine.run import Outcome
from ...optimizers.base import Optimizer
from ...problems.base import MAX_STEPS, Problem
from ...types import Wrong
from ..answer import PLAIN, Goal, Sampling, Tuned
from .ladder import Races
from .settings import STANDARD, RaceSettings
from .track import Found


class RaceTuner:
    """Tunes an optimizer that is sampled, by races; asked from large batches to small ones, each answer starts the next."""

    def __init__(
        self, problem: Problem, optimizer: Optimizer, sampling: Sampling = PLAIN, settings: RaceSettings = STANDARD
    ) -> None:
        if not (isinstance(problem, Problem) and problem.separable):
            kind = type(problem).__name__
            raise Wrong(f"{optimizer} is sampled, and tuned on a Quadratic problem only, not on a {kind}", "problem")
        self.races, self.warning = Races(problem, optimizer, sampling, settings), sampling.law.warning
        self.optimizer, self.settings, self.initial_loss = optimizer, settings, problem.spectrum.initial_loss

    def solve(
        self,
        batch_size: float,
        target: float | None = None,
        *,
        steps: int | None = None,
        examples: float | None = None,
        max_steps: int = MAX_STEPS,
        near: Tuned | None = None,
    ) -> Tuned:
        """Answer one question; ``near`` is the answer at a neighbouring, larger batch size, to start from."""
        goal = Goal.of(batch_size, target, steps, examples, max_steps)
        most = self.settings.max_steps
        if goal.target is None and goal.steps > most:
            raise Wrong(
                f"an optimizer that is sampled is tuned for {most:,} steps at most, not {goal.steps:,}",
                argument="steps" if examples is None else "examples",
            )
        goal = Goal(goal.batch_size, goal.target, min(goal.steps, most))
        self._check_horizon(goal)
        if goal.target is not None and self.initial_loss <= goal.target:
            return self._answer(goal, Found(self.races.likely.mean(0)[None], 0, self.initial_loss, 0.0))
        start = None
        if near is not None and near.steps is not None:
            start = Found(self.races.family.point(near.optimizer)[None], near.steps, near.loss)
        return self._answer(goal, self.races.best(goal, start))

    def _answer(self, goal: Goal, found: Found) -> Tuned:
        outcome, message = self._verdict(goal, found)
        tuned = outcome is not Outcome.diverged and found.steps != 0
        names = self.races.family.names_at_bound(found.u) if tuned else ()
        message += f"; the best {' and '.join(names)} lies at the edge of its range" if names else ""
        message += f"; {self.warning}" if self.warning else ""
        optimizer, steps = self.races.family.at(found.u), found.steps if outcome.ok else None
        stderr = found.stderr if outcome.ok else math.nan
        return Tuned(optimizer, steps, found.loss, goal.batch_size, names, outcome, message, stderr=stderr)

    def _verdict(self, goal: Goal, found: Found) -> tuple[Outcome, str]:
        """Outcome and message; "even tuned" is said only if something was tuned."""
        tuned = "even tuned, " if len(self.races.family) else ""
        if not found.loss < self.settings.lost * self.initial_loss:
            what = f"{tuned}diverges: the mean loss over replicas is {found.loss:.3g} at step {found.within:,}"
            return Outcome.diverged, what + "; lower the learning rate"
        if goal.target is None:
            return Outcome.finished, f"least loss after {goal.steps:,} steps is {found.loss:.4g} +- {found.stderr:.2g}"
        numbers = {"target": goal.target, "loss": found.loss}
        if found.steps is not None:
            what = Outcome.reached.value.format(steps=found.steps, **numbers)
            return Outcome.reached, what + (f" +- {found.stderr:.2g}" if found.steps else "")
        if found.all_dropped:
            floor = {"floor": found.loss, "batch_size": goal.batch_size}
            return Outcome.above_floor, tuned + Outcome.above_floor.value.format(**numbers, **floor)
        return Outcome.out_of_steps, tuned + Outcome.out_of_steps.value.format(steps=found.within, **numbers)

    def _check_horizon(self, goal: Goal) -> None:
        """An average over a part of the run is a run of its own at each horizon, and cannot race."""
        if goal.target is not None and self.races.family.at(self.races.likely.mean(0)).depends_on_horizon:
            raise Wrong(
                f"{self.optimizer} depends on the length of the run and is sampled, so it can be tuned for a budget "
                "(steps= or examples=) and not for a target; begin its average at a whole number of steps instead",
                argument="target",
            )
