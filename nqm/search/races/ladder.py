"""Tuning by races, for optimizers that are sampled.

A wide race over the points of a Sobol sequence is run for an easier goal that takes few steps: at a larger batch, or with a
shorter budget. The goal is then made harder step by step, each time with a narrow race around the last winner, up to the goal
that was asked for. The last winner is measured.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np

from ...engine.run import Outcome, reached_at
from ...optimizers.base import Optimizer
from ...problems.base import Problem, require_problem
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
        """The best setting, measured; ``near`` is the answer to a goal that is somewhat easier."""
        found, track, settings = self._search(goal, near), self.track, self.settings
        if found.steps is None and goal.target is not None and len(self.family):
            found = self._last_chance(goal, found)
        for luck in range(1, 1 + settings.retries):  # The winner may have passed by luck.
            if found.steps is None:
                break
            if (sure := track.measure(found.points, goal, found.steps)).steps is not None:
                return sure
            target = None if goal.target is None else goal.target * settings.caution**luck
            found = track.race(self._around(found, settings.retry_box), replace(goal, target=target), found.steps, luck)
        if found.steps is None:
            if goal.target is not None and 0 < found.within <= settings.patience:  # Measure its loss too.
                sure = track.measure(found.points[:1], Goal(goal.batch_size, None, found.within), found.within)
                found = replace(found, points=sure.points, loss=sure.loss)
            return found
        return track.measure(
            found.points, goal, min(goal.steps, max(settings.measured_limit * found.steps, settings.patience))
        )

    def _search(self, goal: Goal, near: Found | None) -> Found:
        """The best settings that races find, not yet measured."""
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
        """The best settings for a goal, by way of easier goals."""
        found, harder = self._short_budget(goal) if goal.target is None else self._large_batch(goal)
        for rung in harder:
            found = self._narrow(rung, found)
            if found.steps is None:
                break
        return found

    def _short_budget(self, goal: Goal) -> tuple[Found, list[Goal]]:
        """The result of a wide race with a short budget, and the longer budgets up to the goal."""
        rungs = [goal]
        while rungs[0].steps > self.settings.wide_steps:
            rungs.insert(0, replace(goal, steps=rungs[0].steps // self.settings.budget_factor))
        return self.track.race(self._wide(), rungs[0], self.settings.wide_steps), rungs[1:] or rungs

    def _large_batch(self, goal: Goal) -> tuple[Found, list[Goal]]:
        """The result of a wide race at a large enough batch, and the smaller batches down to the goal.

        If no batch is large enough, the race is made longer. If that does not help, the target counts as not reached.
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
        # The target needed more steps and not less noise, so the batch that was asked for may do as well.
        sooner = self._narrow(goal, found)
        return (found, [*harder, goal]) if sooner.steps is None else (sooner, [goal])

    def _last_chance(self, goal: Goal, found: Found) -> Found:
        """The settings that get furthest are walked on, even if they seem to rest, before a target is called out of reach."""
        points, long = np.vstack([found.points, self._wide()]), self.settings.long_steps
        some = self.track.race(points, replace(goal, steps=min(long, goal.steps)), long, patient=True)
        if some.steps is None and goal.steps > long:
            walked = replace(goal, steps=min(self.settings.patience, goal.steps))
            some = self.track.race(some.points, walked, goal.steps, patient=True)
        return some

    def _narrow(self, goal: Goal, near: Found) -> Found:
        """Races around the best points of an easier goal, repeated while they gain, and over the whole box where that is cheap."""
        settings, before = self.settings, near.steps or self.settings.wide_steps
        points, guess = self._around(near, settings.first_box), settings.budget_factor * before
        if goal.target is not None:
            goal = replace(goal, steps=min(goal.steps, max(settings.long_steps, settings.slowdown * before)))
        if guess <= settings.budget_factor * settings.wide_steps:
            points = np.vstack([points, self._wide()])
        found = self.track.race(points, goal, guess)
        if found.all_dropped:  # The best lies outside the box, beyond the settings that got furthest.
            found = self.track.race(self._around(found, self.settings.far_box), goal, guess)
        part, rounds = settings.shrink, int(np.clip(settings.repeat_steps // guess, 0, settings.max_repeats))
        while found.steps is not None and part > settings.last_box and rounds:
            better = self.track.race(self._around(found, part), goal, found.steps)
            part *= 1.0 if better.gain(found) > settings.least_gain else settings.shrink
            found, rounds = better if better.gain(found) > 0 else found, rounds - 1
        return found

    def _wide(self) -> Array:
        """Points spread over the likely ranges of the parameters."""
        low, high = self.likely
        count = 2 ** min(self.settings.wide_log2 + len(self.family), self.settings.max_log2_points)
        return low + (high - low) * _centres(len(self.family), count)

    def _around(self, found: Found, part: float) -> Array:
        """The best points so far, and points in a box around the first, ``part`` of the usual size and longer along the valley."""
        p = len(self.family)
        if p == 0:
            return found.points
        many = self.settings.dense_log2 if (found.steps or self.settings.wide_steps) < self.settings.dense_steps else 0
        cube = 2 * _centres(p, 2 ** min(self.settings.narrow_log2 + p + many, self.settings.max_log2_points)) - 1
        axes = np.eye(p) if found.axes is None else found.axes / np.linalg.det(found.axes) ** (1 / p)
        box = self.family.inside(found.u + part * self.track.width * (cube @ axes.T))
        return np.vstack([found.points, box])


def _centres(dimension: int, count: int) -> Array:
    """The first ``count`` points of a Sobol sequence, moved to the middle of their cells; the count is a power of two."""
    return np.stack(list(islice(sobol(dimension), count))) + 0.5 / count


class RaceTuner:
    """Tunes an optimizer that is sampled, by races."""

    walks = True  # Every step is computed.

    def __init__(
        self, problem: Problem, optimizer: Optimizer, sampling: Sampling = PLAIN, settings: RaceSettings = STANDARD
    ) -> None:
        require_problem(problem, "tune")
        if not problem.separable:
            kind = type(problem).__name__
            raise Wrong(f"{optimizer} is sampled, and tuned on a Quadratic problem only, not on a {kind}", "problem")
        self.races, self.warning = Races(problem, optimizer, sampling, settings), sampling.law.warning
        self.optimizer, self.settings, self.initial_loss = optimizer, settings, problem.spectrum.initial_loss

    def solve(self, goal: Goal, near: Tuned | None = None) -> Tuned:
        """The best settings for a goal; ``near`` is the answer at a neighbouring, larger batch size, to start from."""
        most = self.settings.max_steps
        if goal.target is None and goal.steps > most:
            sentence = f"an optimizer that is sampled is tuned for {most:,} steps at most, got {goal.steps:,}"
            raise Wrong(sentence, goal.argument)
        goal = replace(goal, steps=min(goal.steps, most))
        if goal.target is not None and self.races.family.at(self.races.likely.mean(0)).depends_on_horizon:
            # Such an average is a different run at each horizon, and cannot race.
            raise Wrong(
                f"{self.optimizer} depends on the length of the run and is sampled, so it can be tuned for a budget "
                "(steps= or examples=) and not for a target; begin its average at a whole number of steps instead",
                "target",
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
        return Tuned(optimizer, steps, found.loss, goal.batch_size, names, outcome, message, stderr, "sampled")

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
            what = reached_at(found.steps, goal.target)
            return Outcome.reached, what + (f" +- {found.stderr:.2g}" if found.steps else "")
        if found.all_dropped:
            floor = {"floor": found.loss, "batch_size": goal.batch_size}
            return Outcome.above_floor, tuned + Outcome.above_floor.value.format(**numbers, **floor)
        return Outcome.out_of_steps, tuned + Outcome.out_of_steps.value.format(steps=found.within, **numbers)
