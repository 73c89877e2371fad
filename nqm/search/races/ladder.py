"""Tuning by races, for optimizers that are sampled: from a goal that is easy to the one that was asked.

A wide race is run where it takes few steps, at a large batch or on a short budget, over the points of a Sobol sequence.
The goal is then made harder step by step, each time with a narrow race around the last best. The winner is measured.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np

from ...engine.run import Outcome
from ...optimizers.base import Optimizer
from ...problems.base import MAX_STEPS, Problem, require_problem
from ...sampling.sobol import sobol
from ...types import Array, Wrong
from ..answer import PLAIN, Goal, Sampling, Tuned, at_edge
from .settings import STANDARD, RaceSettings
from .track import Found, Track


class Races:
    """The search for the best settings of one optimizer on one problem."""

    def __init__(self, problem: Problem, optimizer: Optimizer, sampling: Sampling, settings: RaceSettings) -> None:
        self.settings, self.track = settings, Track(problem, optimizer, sampling, settings)
        self.family = self.track.family
        kinds = [p.kind for p in self.family.free]
        self.likely = np.array([k.likely or (k.low, k.high) for k in kinds]).reshape(-1, 2).T

    def best(self, goal: Goal, near: Found | None = None) -> Found:
        """The best setting, measured; ``near`` is the answer to a goal that is a few times easier."""
        found, track, settings = self._search(goal, near), self.track, self.settings
        if found.steps is None and goal.target is not None and len(self.family):
            found = self._last_chance(goal, found)
        for luck in (1, 2):  # a setting that passed by luck is not a setting that passes
            if found.steps is None:
                break
            if (sure := track.measure(found.points, goal, found.steps)).steps is not None:
                return sure
            target = None if goal.target is None else goal.target * settings.caution**luck
            found = track.race(self._around(found, settings.retry_box), replace(goal, target=target), found.steps, luck)
        if found.steps is None:
            if goal.target is not None and 0 < found.within <= settings.patience:  # its loss is measured as others are
                sure = track.measure(found.points[:1], Goal(goal.batch_size, None, found.within), found.within)
                found = replace(found, points=sure.points, loss=sure.loss)
            return found
        return track.measure(found.points, goal, min(goal.steps, max(3 * found.steps, settings.patience)))

    def _search(self, goal: Goal, near: Found | None) -> Found:
        """The best settings that races find."""
        if len(self.family) == 0:
            point = np.empty((1, 0))
            if goal.target is None:
                return Found(point, goal.steps, math.nan)
            return self.track.race(point, goal, goal.steps)
        found = self._narrow(goal, near) if near is not None and near.steps else self._climb(goal)
        if found.steps is None and near is not None:
            found = self._climb(goal)
        if found.steps is None:
            return found
        return self.track.race(self._around(found, self.settings.last_box), goal, found.steps)

    def _climb(self, goal: Goal) -> Found:
        """From a goal that is cheap enough for a wide race to the one that was asked."""
        found, harder = self._short_budget(goal) if goal.target is None else self._large_batch(goal)
        for rung in harder:
            found = self._narrow(rung, found)
            if found.steps is None:
                break
        return found

    def _short_budget(self, goal: Goal) -> tuple[Found, list[Goal]]:
        """What a wide race finds on a short budget, and the longer budgets up to the one that was asked."""
        rungs = [goal]
        while rungs[0].steps > self.settings.wide_steps:
            rungs.insert(0, replace(goal, steps=rungs[0].steps // self.settings.budget_factor))
        return self.track.race(self._wide(), rungs[0], self.settings.wide_steps), rungs[1:] or rungs

    def _large_batch(self, goal: Goal) -> tuple[Found, list[Goal]]:
        """What a wide race finds at a batch that is large enough, and the smaller batches down to the one that was asked.

        Where no batch is large enough the race is made longer; where that does not help, nothing is left to do.
        """
        wide, limit = self.settings.wide_steps, min(goal.steps, self.settings.patience)
        easier, harder = replace(goal, steps=min(wide, goal.steps)), list[Goal]()
        while (found := self.track.race(self._wide(), easier, wide)).steps is None:
            if math.isfinite(easier.batch_size):
                harder.insert(0, replace(goal, batch_size=easier.batch_size))
                huge = easier.batch_size >= self.settings.huge_batch
                larger = math.inf if huge else easier.batch_size * self.settings.batch_factor
                easier = replace(easier, batch_size=larger)
            elif easier.steps < limit:
                easier = replace(easier, steps=min(self.settings.budget_factor * easier.steps, limit))
            else:
                return found, []
        if easier.steps <= wide:
            return found, harder or [goal]
        # Noise was not in the way, and may not be with the batch that was asked for.
        sooner = self._narrow(goal, found)
        return (found, [*harder, goal]) if sooner.steps is None else (sooner, [goal])

    def _last_chance(self, goal: Goal, found: Found) -> Found:
        """Before a target is called out of reach: what gets furthest, walked on though it may seem to stand still."""
        points, long = np.vstack([found.points, self._wide()]), self.settings.long_steps
        some = self.track.race(points, replace(goal, steps=min(long, goal.steps)), long, patient=True)
        if some.steps is None and goal.steps > long:
            walked = replace(goal, steps=min(self.settings.patience, goal.steps))
            some = self.track.race(some.points, walked, goal.steps, patient=True)
        return some

    def _narrow(self, goal: Goal, near: Found) -> Found:
        """Races around the best points of an easier goal, and all over the box while that is cheap, as long as they gain."""
        settings, before = self.settings, near.steps or self.settings.wide_steps
        points, guess = self._around(near, settings.first_box), settings.budget_factor * before
        if goal.target is not None:
            goal = replace(goal, steps=min(goal.steps, max(settings.long_steps, settings.slowdown * before)))
        if guess <= settings.budget_factor * settings.wide_steps:
            points = np.vstack([points, self._wide()])
        found = self.track.race(points, goal, guess)
        if found.all_dropped:  # the best lies outside of the box, beyond what got furthest
            found = self.track.race(self._around(found, 1.0), goal, guess)
        part, rounds = settings.shrink, int(np.clip(settings.repeat_steps // guess, 0, settings.max_repeats))
        while found.steps is not None and part > settings.last_box and rounds:
            better = self.track.race(self._around(found, part), goal, found.steps)
            part *= 1.0 if better.gain(found) > settings.least_gain else settings.shrink
            found, rounds = better if better.gain(found) > 0 else found, rounds - 1
        return found

    def _wide(self) -> Array:
        """Points all over where the best may lie."""
        low, high = self.likely
        count = 2 ** min(4 + len(self.family), self.settings.max_log2_points)
        return low + (high - low) * _centres(len(self.family), count)

    def _around(self, found: Found, part: float) -> Array:
        """The best points so far, and others in a box around the first, a part of the usual size, drawn out along the valley."""
        p = len(self.family)
        if p == 0:
            return found.points
        many = 2 if (found.steps or self.settings.wide_steps) < self.settings.dense_steps else 0
        cube = 2 * _centres(p, 2 ** min(2 + p + many, self.settings.max_log2_points)) - 1
        axes = np.eye(p) if found.axes is None else found.axes / np.linalg.det(found.axes) ** (1 / p)
        box = self.family.inside(found.u + part * self.track.width * (cube @ axes.T))
        return np.vstack([found.points, box])


def _centres(dimension: int, count: int) -> Array:
    """The middles of the cells of the first points of a Sobol sequence; the count is a power of two."""
    return np.stack(list(islice(sobol(dimension), count))) + 0.5 / count


class RaceTuner:
    """Tunes an optimizer that is sampled, by races; asked from large batches to small ones, each answer starts the next."""

    def __init__(
        self, problem: Problem, optimizer: Optimizer, sampling: Sampling = PLAIN, settings: RaceSettings = STANDARD
    ) -> None:
        require_problem(problem, "tune")
        if not problem.separable:
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
        if goal.target is not None and self.races.family.at(self.races.likely.mean(0)).depends_on_horizon:
            # An average over a part of the run is a run of its own at each horizon, and cannot race.
            raise Wrong(
                f"{self.optimizer} depends on the length of the run and is sampled, so it can be tuned for a budget "
                "(steps= or examples=) and not for a target; begin its average at a whole number of steps instead",
                argument="target",
            )
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
        message += at_edge(names) + (f"; {self.warning}" if self.warning else "")
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
