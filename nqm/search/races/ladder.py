"""Tuning by races, for optimizers that are sampled: from a goal that is easy to the one that was asked.

A wide race is run where it takes few steps, at a large batch or on a short budget, over the points of a Sobol sequence.
The goal is then made harder step by step, each time with a narrow race around the last best. The winner is measured.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...optimizers.base import Optimizer
from ...problems.base import Problem
from ...types import Array
from ..answer import PLAIN, Goal, Sampling
from .settings import STANDARD, RaceSettings
from .track import Found, Track


class Races:
    """The search for the best settings of one optimizer on one problem."""

    def __init__(
        self, problem: Problem, optimizer: Optimizer, sampling: Sampling = PLAIN, settings: RaceSettings = STANDARD
    ) -> None:
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
            return self._unreached(goal, found)
        return track.measure(found.points, goal, min(goal.steps, max(3 * found.steps, settings.patience)))

    def _unreached(self, goal: Goal, found: Found) -> Found:
        """A setting that does not reach the target, with its loss after the steps it was given measured as others are."""
        if goal.target is None or not 0 < found.within <= self.settings.patience:
            return found
        sure = self.track.measure(found.points[:1], Goal(goal.batch_size, None, found.within), found.within)
        return replace(found, points=sure.points, loss=sure.loss)

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
        return low + (high - low) * sobol(
            len(self.family), 2 ** min(4 + len(self.family), self.settings.max_log2_points)
        )

    def _around(self, found: Found, part: float) -> Array:
        """The best points so far, and others in a box around the first, a part of the usual size, drawn out along the valley."""
        p = len(self.family)
        if p == 0:
            return found.points
        many = 2 if (found.steps or self.settings.wide_steps) < self.settings.dense_steps else 0
        cube = 2 * sobol(p, 2 ** min(2 + p + many, self.settings.max_log2_points)) - 1
        axes = np.eye(p) if found.axes is None else found.axes / np.linalg.det(found.axes) ** (1 / p)
        box = self.family.inside(found.u + part * self.track.width * (cube @ axes.T))
        return np.vstack([found.points, box])


def sobol(dimension: int, count: int) -> Array:
    """The first points of a Sobol sequence in the unit cube, each in the middle of its cell."""
    from scipy.stats import qmc

    return qmc.Sobol(dimension, scramble=False).random(count) + 0.5 / count
