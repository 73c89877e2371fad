"""Tuning by races, for optimizers that are sampled: settings step side by side on the same noise until one is there.

Settings come from a Sobol sequence and are one more axis of the arrays. The first whose mean loss over replicas is at the
target ends the race, so that a race takes as many steps as its best setting needs. A wide race is run where that is few,
at a large batch or on a short budget; the goal is then made harder step by step, each time with a narrow race around
the last best. The winner is measured again with fresh noise and more replicas: its figure is not the luck of the race,
and it has a standard error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...engine.spectrum import Spectrum
from ...optimizers.base import Optimizer, fill, parameters
from ...problems.quadratic import Quadratic
from ...sampling.bases import Geometry, rotation_matrix
from ...sampling.sources import Additive, Streams
from ...sampling.stepping import Walk
from ...types import Array
from ..answer import PLAIN, Goal, Sampling
from ..exact.family import Family
from ..exact.minimise import fit_quadratic
from .lockstep import SURE, Crossing, Together, looks, mean_and_stderr, noise_part

LIMIT = 2**20  # steps that are sampled at most
SHORT = 256  # steps of a wide race
FAR = 2**12  # and of one that tells what gets furthest, of which
FEW = 4  # are walked again before a target is called out of reach, for
PATIENCE = 2**17  # steps at most
MORE = 64  # times the steps at a batch some times larger, as many as with perfect scaling and more
JUMP = 4.0  # from one batch size of the ladder to the next, and
FACTOR = 4  # from one budget to the next
HUGE = 2.0**36  # a batch as good as infinite
SAMPLES = (128, 256)  # that stand for all modes of a replica: in a race, in a measurement
FEWEST, USUAL = 4, 128  # replicas of a race, which compares settings on the same noise; within
RACE = 2**24  # numbers to step, if the fewest are fewer
LEAST, MOST = 16, 4096  # replicas of a measurement, within
BLOCK = 8  # of them share a generator
WORK = 2**25  # numbers to step, if the least are fewer
THREAD = 2**13  # numbers that keep one thread busy
FIELD = 2.0  # times the best loss: settings that tell where the best lies
LOST = 100.0  # times the initial loss: such a setting is dropped, and so is one that is
STALLED = 0.98  # times as high as at a quarter of the time, from this step on,
SETTLED = 256  # if its noise alone is above the target; looked at when the time has grown by
OFTEN, QUARTER = math.sqrt(2), 5  # so that the fifth last look was at a quarter of it
NARROW = 3.0  # half-width of a narrow race, in octaves
CAUTION = 0.95  # times the target, for another race where the winner of one was but lucky
GAIN = 0.01  # of the steps: for less no other race is run
AGAIN = 2**13  # steps that other races may take
MANY = 2**10  # steps below which a race has four times as many settings
SEED, FRESH = 20190704, 1


@dataclass(frozen=True)
class Found:
    """The best points of a race, first to last, or the figures of one; ``steps`` is None if the target was not reached."""

    points: Array
    steps: int | None
    loss: float
    stderr: float = math.nan  # of the steps to a target, or of the loss after a budget
    within: int = 0  # steps that were looked at
    settled: bool = False  # whether every setting was seen to diverge, or to rest at a floor above the target
    shape: Array | None = None  # what makes the curvature of the loss round: long along a valley, short across

    @property
    def u(self) -> Array:
        return self.points[0]

    def gain(self, before: Found) -> float:
        """How much better it is: the part of the steps that is saved or, for a budget, of the loss."""
        if self.steps is None or before.steps is None:
            return -math.inf if self.steps is None else math.inf
        return 1 - (self.loss / before.loss if self.steps == before.steps else self.steps / before.steps)


class Races:
    """The settings of one optimizer on one problem.

    An optimizer that treats each parameter by itself is sampled on the nodes of `Quadratic.coarse_smooth`: the second
    moment of a weight is a smooth function of its h, c and s, and a Gauss rule adds it up, as for SGD. Nodes that stand for
    many modes are sampled several times, which keeps the scatter over replicas low. Any other is sampled mode by mode, and
    so is a problem in a rotated basis.
    """

    def __init__(self, problem: Quadratic, optimizer: Optimizer, sampling: Sampling = PLAIN) -> None:
        self.seed = SEED + 2 * sampling.seed
        turned = rotation_matrix(sampling.rotation, round(problem.spectrum.dim), sampling.seed)
        alone = optimizer.elementwise and turned is None
        self.cores = min(4, os.cpu_count() or 1)
        nodes = problem.coarse_smooth.spectrum if alone else problem.spectrum
        self.family = Family(Quadratic(nodes), optimizer)
        self.race_on, self.measure_on = (
            Additive(spread_out(nodes, n) if alone else nodes, optimizer, sampling.law, rotation=turned)
            for n in SAMPLES
        )
        kinds = [p.kind for p in self.family.free]
        self.likely = np.array([k.likely or (k.low, k.high) for k in kinds]).reshape(-1, 2).T
        self.width = np.array([min(NARROW, 0.25 * (k.high - k.low)) for k in kinds])

    def best(self, goal: Goal, near: Found | None = None) -> Found:
        """The best setting, measured; ``near`` is the answer to a goal that is a few times easier."""
        found = self._search(goal, near)
        if found.steps is None and goal.target is not None and len(self.family):
            found = self._further(goal, found)
        for luck in (1, 2):  # a setting that passed by luck is not a setting that passes
            if found.steps is None:
                return self._last(goal, found)
            if (sure := self.measure(found.points, goal, found.steps)).steps is not None:
                return sure
            harder = goal if goal.target is None else replace(goal, target=goal.target * CAUTION**luck)
            found = self._race(self._around(found, 0.5), harder, found.steps, luck)
        if found.steps is None:
            return self._last(goal, found)
        return self.measure(found.points, goal, min(goal.steps, max(3 * found.steps, PATIENCE)))

    def _last(self, goal: Goal, found: Found) -> Found:
        """A setting that does not reach the target, with its loss after the steps it was given measured as others are."""
        if goal.target is None or not 0 < found.within <= PATIENCE:
            return found
        sure = self.measure(found.points[:1], Goal(goal.batch_size, None, found.within), found.within)
        return replace(found, points=sure.points, loss=sure.loss)

    def _search(self, goal: Goal, near: Found | None) -> Found:
        """The best settings that races find."""
        if len(self.family) == 0:
            point = np.empty((1, 0))
            return Found(point, goal.steps, math.nan) if goal.target is None else self._race(point, goal, goal.steps)
        found = self._next(goal, near) if near is not None and near.steps else self._ladder(goal)
        if found.steps is None and near is not None:
            found = self._ladder(goal)
        return found if found.steps is None else self._race(self._around(found, 0.25), goal, found.steps)

    def measure(self, points: Array, goal: Goal, guess: int) -> Found:
        """The best of a few settings and its figures, with noise that no race has seen.

        ``guess`` is about the step it will need. With two settings the better is chosen and measured on the same noise, a
        bias of a part of the standard error.
        """
        optimizers = [self.family.at(u).at_horizon(goal.steps) for u in points]
        replicas = int(np.clip(WORK // (guess * self.measure_on.modes), LEAST, MOST))
        blocks = [(i, BLOCK) for i in range(replicas // BLOCK)]
        walks = [Walk(self.measure_on, o, goal.batch_size, Streams(self.seed + FRESH, blocks)) for o in optimizers]
        with Together(walks) as together:
            if goal.target is not None:
                return self._cross(points, together, goal.target, min(goal.steps, 3 * guess))
            for t in looks(goal.steps):
                together.to(t)
            figures = [mean_and_stderr(part) for part in together.now()]
        first = int(np.argmin([mean for mean, _ in figures]))
        return Found(points[first][None], goal.steps, *figures[first], within=goal.steps)

    def _cross(self, points: Array, together: Together, target: float, limit: int) -> Found:
        """Which comes to the target first, and when. A dip that began within the limit may prove itself after it."""
        crossings = [Crossing(target, self.measure_on.initial_loss) for _ in points]
        last, first = math.inf, 0
        for t in looks(2 * limit):
            middle, losses = together.to(t)
            since, _, parts = together.window[-1]
            for i, one in enumerate(crossings):
                if one.look(middle, losses[i], since, parts[i], t) and one.hit <= limit:
                    return Found(points[i][None], one.hit, mean_and_stderr(losses[i])[0], one.stderr, t)
            if t <= limit:
                means = [mean_and_stderr(part)[0] for part in losses]
                first, last = int(np.argmin(means)), min(means)
            if t >= limit and not any(one.below and one.hit <= limit for one in crossings):
                break
        return Found(points[first][None], None, last, within=limit)

    def _ladder(self, goal: Goal) -> Found:
        """From a goal that is cheap enough for a wide race to the one that was asked."""
        batch_size, target, steps = goal.batch_size, goal.target, goal.steps
        harder: list[Goal] = []
        if target is None:
            while steps > SHORT:
                harder.append(Goal(batch_size, None, steps))
                steps //= FACTOR
            found = self._race(self._wide(), Goal(batch_size, None, steps))
        else:
            steps = min(SHORT, steps)
            while (found := self._race(self._wide(), Goal(batch_size, target, steps))).steps is None:
                if math.isfinite(batch_size):
                    harder.append(Goal(batch_size, target, goal.steps))
                    batch_size = batch_size * JUMP if batch_size < HUGE else math.inf
                elif steps < min(goal.steps, PATIENCE):
                    steps = min(FACTOR * steps, goal.steps, PATIENCE)
                else:
                    return found
            if steps > SHORT:  # noise was not in the way, and may not be with the batch that was asked for
                harder = [goal, *(harder if (sooner := self._next(goal, found)).steps is None else [])]
                found = found if sooner.steps is None else sooner
        for rung in reversed(harder or [goal]):
            found = self._next(rung, found)
            if found.steps is None:
                break
        return found

    def _further(self, goal: Goal, found: Found) -> Found:
        """Before a target is called out of reach: what gets furthest, walked on though it may seem to stand still."""
        points = np.vstack([found.points, self._wide()])
        some = self._race(points, replace(goal, steps=min(FAR, goal.steps)), FAR, patient=True)
        if some.steps is None and goal.steps > FAR:
            some = self._race(some.points, replace(goal, steps=min(PATIENCE, goal.steps)), goal.steps, patient=True)
        return some

    def _next(self, goal: Goal, near: Found) -> Found:
        """Races around the best points of an easier goal, and all over the box while that is cheap, as long as they gain."""
        points, guess = self._around(near, 1.5), FACTOR * (near.steps or SHORT)
        if goal.target is not None:
            goal = replace(goal, steps=min(goal.steps, max(FAR, MORE * (near.steps or SHORT))))
        if guess <= FACTOR * SHORT:
            points = np.vstack([points, self._wide()])
        found = self._race(points, goal, guess)
        if found.settled:  # the best lies outside of the box, beyond what got furthest
            found = self._race(self._around(found, 1.0), goal, guess)
        part, rounds = 0.7, int(np.clip(AGAIN // guess, 0, 4))
        while found.steps is not None and part > 0.25 and rounds:
            better = self._race(self._around(found, part), goal, found.steps)
            part *= 1.0 if better.gain(found) > GAIN else 0.7
            found, rounds = better if better.gain(found) > 0 else found, rounds - 1
        return found

    def _wide(self) -> Array:
        """Points all over where the best may lie."""
        return self._spread(self.likely[0], self.likely[1], 2 ** min(4 + len(self.family), 7))

    def _around(self, found: Found, part: float) -> Array:
        """The best points so far, and others in a box around the first, a part of the usual size, drawn out along the valley."""
        p = len(self.family)
        if p == 0:
            return found.points
        many = 2 if (found.steps or SHORT) < MANY else 0
        cube = 2 * self._spread(np.zeros(p), np.ones(p), 2 ** min(2 + p + many, 7)) - 1
        shape = np.eye(p) if found.shape is None else found.shape / np.linalg.det(found.shape) ** (1 / p)
        return np.vstack([found.points, self._inside(found.u + part * self.width * (cube @ shape.T))])

    def _spread(self, low: Array, high: Array, count: int) -> Array:
        """A Sobol sequence over a box, each point in the middle of its cell."""
        from scipy.stats import qmc

        return low + (high - low) * (qmc.Sobol(len(low), scramble=False).random(count) + 0.5 / count)

    def _inside(self, u: Array) -> Array:
        return np.clip(u, self.family.low, self.family.high)

    def _race(self, U: Array, goal: Goal, guess: int = SHORT, luck: int = 0, patient: bool = False) -> Found:
        """Step all settings together until one is at the target or the budget is spent; with patience drop none at a floor."""
        replicas = int(np.clip(RACE // (len(U) * self.race_on.modes * guess), FEWEST, USUAL)) * 4**luck
        lanes = list(self._lanes(U, goal, replicas, luck))
        target = math.inf if patient or goal.target is None else goal.target
        loss, known = np.full((2, len(U)), math.inf)
        t, floors = 0, Floors(target, self.race_on.mass, len(U))
        with Together([lane.walk for lane in lanes]) as together:
            for t in looks(goal.steps):
                middle, losses = together.to(t)
                loss = np.full(len(U), math.inf)
                for lane, part in zip(lanes, losses, strict=True):
                    loss[lane.rows] = known[lane.rows] = np.fmin(part.mean(-1), math.inf)  # NaN is infinity
                if goal.target is not None and loss.min() <= goal.target:
                    return self._settle(U, loss, round(middle))
                alive = loss < LOST * self.race_on.initial_loss
                alive &= ~floors.met(t, loss, lanes)
                together.keep([(i, rows) for i, lane in enumerate(lanes) if len(rows := lane.keep(alive))])
                lanes = [lane for lane in lanes if len(lane.rows)]
                if not lanes:
                    break
        if goal.target is None and lanes:
            return self._settle(U, loss, goal.steps)
        best = np.argsort(loss if lanes else known)[:FEW]
        return Found(U[best], None, float((loss if lanes else known)[best[0]]), within=t, settled=not lanes)

    def _settle(self, U: Array, loss: Array, steps: int) -> Found:
        """The first of a race, and the minimum of a quadratic through those close to it, if that has one nearby."""
        first = int(np.argmin(loss))
        near = np.flatnonzero(loss < FIELD * loss[first])
        p, u = len(self.family), U[first]
        points, shape = [u], None
        if len(near) > 1 + p + p * (p + 1) // 2:
            Z, span = (U[near] - u) / self.width, np.ptp(U[near], axis=0) / 2
            model, shape, bowl = fit_quadratic(Z, np.log(loss[near]))
            if bowl:
                points.append(self._inside(u + np.clip(model * self.width, -span, span)))
        return Found(np.array(points), steps, float(loss[first]), shape=shape)

    def _threads(self, numbers: int) -> int:
        """How many threads are worth their while for arrays of so many numbers."""
        return int(np.clip(numbers // THREAD, 1, self.cores))

    def _lanes(self, U: Array, goal: Goal, replicas: int, luck: int) -> Iterator[Lane]:
        """Settings that can share arrays, in as many lanes as there are cores; every lane meets the same noise."""
        for rows, optimizer in self.family.passes(U):
            optimizer = optimizer.at_horizon(goal.steps)
            lanes = self._threads(len(rows) * replicas * self.race_on.modes)
            for part in np.array_split(np.arange(len(rows)), min(lanes, len(rows))):
                streams = Streams(self.seed, [(2 + luck, replicas)])
                some = _settings(optimizer, part, len(rows))
                yield Lane(Walk(self.race_on, some, goal.batch_size, streams, settings=len(part)), rows[part])


class Lane:
    """Some settings of a race, stepped as one array."""

    def __init__(self, walk: Walk, rows: Array) -> None:
        self.walk, self.rows = walk, rows
        self.start = walk.weights()[0]  # the same for every setting

    def keep(self, alive: Array) -> Array:
        """Drop settings; the places of those that are left."""
        mine, size = np.flatnonzero(alive[self.rows]), len(self.rows)
        if 0 < len(mine) < size:
            stepper = self.walk.stepper
            stepper.switch(_settings(stepper.optimizer, mine, size), _chosen(stepper.state, mine, size))
        self.rows = self.rows[mine]
        return mine


class Floors:
    """Which settings rest at a floor above a target: they no longer fall, and what they are made of is noise."""

    def __init__(self, target: float, mass: Array, settings: int) -> None:
        self.target, self.mass, self.check = target, mass, SETTLED // 4
        self.history: list[Array] = []  # losses since a quarter of the time
        self.noise, self.variance, self.count = np.zeros(settings), np.zeros(settings), 0

    def met(self, t: int, loss: Array, lanes: list[Lane]) -> Array:
        """Take in the losses at step t, looked at now and then; the noise is averaged over these looks."""
        settled = np.zeros(len(loss), dtype=bool)
        if t < self.check:
            return settled
        self.check, self.history = int(OFTEN * t), [*self.history[1 - QUARTER :], loss]
        if len(self.history) < QUARTER or math.isinf(self.target):
            return settled
        self.count += 1
        for lane in lanes:
            noise, stderr = noise_part(lane.walk.weights(), lane.start, self.mass)
            self.noise[lane.rows] += noise
            self.variance[lane.rows] += stderr**2
            settled[lane.rows] = True
        sure = self.noise - SURE * np.sqrt(self.variance) > self.count * self.target
        return settled & sure & (loss > STALLED * self.history[0])


def spread_out(spectrum: Spectrum, samples: int) -> Spectrum:
    """Nodes repeated in proportion to their share of the initial loss, so that about so many samples stand for all modes."""
    share = spectrum.signal_mass / max(spectrum.initial_loss, 1e-300)
    copies = np.clip(np.rint(samples * share), 1, np.maximum(np.floor(spectrum.count), 1)).astype(int)
    h, c, s, count = (np.repeat(a, copies) for a in (spectrum.h, spectrum.c, spectrum.s, spectrum.count / copies))
    return Spectrum(h, c, s, count)


def _settings(optimizer: Optimizer, rows: Array, size: int) -> Optimizer:
    """The optimizer with these rows of its settings, as arrays of shape (settings, 1, 1)."""
    arrays = {n: p.value for n, p in parameters(optimizer).items() if np.ndim(p.value) and len(p.value) == size}
    return fill(optimizer, {name: value[rows].reshape(-1, 1, 1) for name, value in arrays.items()})


def _chosen(state: Any, rows: Array, size: int) -> Any:
    """What an optimizer remembers, for some of its settings."""
    if isinstance(state, tuple):
        return tuple(_chosen(part, rows, size) for part in state)
    if isinstance(state, Geometry):
        return state.select(rows)
    return state[rows] if np.ndim(state) == 3 and len(state) == size else state
