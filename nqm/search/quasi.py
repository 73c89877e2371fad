"""Tuning an optimizer that is sampled: quasi-random search in races, and an answer with its standard error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..optimizers.base import Optimizer
from ..problem import MAX_STEPS, Problem, Quadratic
from ..run import Outcome
from .answer import Goal, Tuned
from .races import LIMIT, Found, Races


class QuasiTuner:
    """Tunes by `Races`; asked from large batches to small ones, each answer is the start for the next."""

    def __init__(self, problem: Problem, optimizer: Optimizer) -> None:
        if not isinstance(problem, Quadratic):
            raise TypeError(
                f"{optimizer} is sampled, and tuned on a Quadratic problem only, not on a {type(problem).__name__}"
            )
        self.races = Races(problem, optimizer)
        self.optimizer = optimizer

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
        if goal.target is None and goal.steps > LIMIT:
            raise ValueError(f"an optimizer that is sampled is tuned for {LIMIT:,} steps at most, not {goal.steps:,}")
        goal = Goal(goal.batch_size, goal.target, min(goal.steps, LIMIT))
        self._check_horizon(goal)
        start = None
        if near is not None and near.steps is not None:
            start = Found(self.races.family.point(near.optimizer)[None], near.steps, near.loss)
        return self._answer(goal, self.races.best(goal, start))

    def _answer(self, goal: Goal, found: Found) -> Tuned:
        optimizer, numbers = self.races.family.at(found.u), {"loss": found.loss, "steps": found.steps or found.within}
        if goal.target is None:
            outcome = Outcome.finished if np.isfinite(found.loss) else Outcome.out_of_steps
            message = f"least loss after {goal.steps:,} steps is {found.loss:.4g} +- {found.stderr:.2g}"
        elif found.steps is not None:
            outcome = Outcome.reached
            message = f"{outcome.value.format(target=goal.target, **numbers)} +- {found.stderr:.2g}"
        else:
            outcome = Outcome.out_of_steps
            message = "even tuned, " + outcome.value.format(target=goal.target, **numbers)
        names = self.races.family.names_at_bound(found.u)
        message += f"; the best {' and '.join(names)} lies at the edge of its range" if names else ""
        return Tuned(optimizer, found.steps, found.loss, goal.batch_size, names, outcome, message, stderr=found.stderr)

    def _check_horizon(self, goal: Goal) -> None:
        """An average over a part of the run is a run of its own at each horizon, and cannot race."""
        middle: Any = self.races.family.at(self.races.likely.mean(0))
        if goal.target is not None and middle.at_horizon(1) != middle.at_horizon(LIMIT):
            raise ValueError(
                f"{self.optimizer} depends on the length of the run and is sampled, so it can be tuned for a budget "
                "(steps= or examples=) and not for a target; begin its average at a whole number of steps instead"
            )
