"""One race and one measurement: settings of a sampled optimizer that step side by side on the same noise.

Settings are one more axis of the arrays. A race ends when the mean loss of one setting is at the target, so that it takes as
many steps as its best setting needs. The winner is measured again with fresh noise and more replicas, because the result of
the race is biased by luck. The measurement has a standard error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.spectrum import Spectrum
from ...optimizers.base import Optimizer, fill, parameters
from ...problems.base import Problem
from ...sampling.bases import Geometry, rotation_matrix
from ...sampling.sources import Additive, Streams
from ...sampling.stepping import Walk
from ...types import Array
from ..answer import Goal, Sampling
from ..exact.family import Family
from ..exact.minimise import fit_quadratic
from .lockstep import Crossing, Lockstep, mean_and_stderr, noise_part, observation_times
from .settings import RaceSettings


@dataclass(frozen=True)
class Found:
    """The best points of a race or a measurement, best first; ``steps`` is None if the target was not reached."""

    points: Array
    steps: int | None
    loss: float
    stderr: float = math.nan  # Standard error of the steps to a target, or of the loss after a budget.
    within: int = 0  # Steps that were walked.
    all_dropped: bool = False  # Whether every setting has diverged, or rests at a noise floor above the target.
    axes: Array | None = None  # Axes in which the curvature of the loss is the same in all directions.

    @property
    def u(self) -> Array:
        return self.points[0]

    def gain(self, before: Found) -> float:
        """The part of the steps that is saved relative to ``before`` or, at equal steps, of the loss."""
        if self.steps is None or before.steps is None:
            return -math.inf if self.steps is None else math.inf
        return 1 - (self.loss / before.loss if self.steps == before.steps else self.steps / before.steps)


class Track:
    """Races and measurements of the settings of one optimizer on one problem.

    An elementwise optimizer is sampled on the nodes of `Nodes.smooth`, because the second moment of a weight is a smooth
    function of its h, c and s, which a Gauss rule sums. A node that represents many modes is sampled several times, which
    keeps the scatter over replicas low. Other optimizers, and problems in a rotated basis, are sampled mode by mode.
    """

    def __init__(self, problem: Problem, optimizer: Optimizer, sampling: Sampling, settings: RaceSettings) -> None:
        self.settings, self.seed = settings, settings.first_seed + 2 * sampling.seed
        self.cores = min(settings.max_threads, os.cpu_count() or 1)
        rotation = rotation_matrix(sampling.rotation, round(problem.spectrum.dim), sampling.seed)
        alone = optimizer.elementwise and rotation is None
        nodes = problem.nodes.smooth.spectrum if alone else problem.spectrum
        self.family = Family(optimizer, nodes)
        self.race_on, self.measure_on = (
            Additive(spread_out(nodes, n) if alone else nodes, optimizer, sampling.law, rotation=rotation)
            for n in (settings.race_samples, settings.measured_samples)
        )
        kinds = [p.kind for p in self.family.free]
        self.width = np.array([min(settings.half_width, settings.range_part * (k.high - k.low)) for k in kinds])

    def race(self, U: Array, goal: Goal, guess: int, luck: int = 0, patient: bool = False) -> Found:
        """Step the settings U together until one is at the target or the budget is spent.

        ``guess`` is the expected number of steps. Races with different ``luck`` have different noise. A patient race does not
        drop settings at a floor.
        """
        work = len(U) * self.race_on.modes * guess
        replicas = (
            int(np.clip(self.settings.race_work // work, *self.settings.race_replicas))
            * self.settings.luck_replicas**luck
        )
        lanes = list(self._lanes(U, goal, replicas, luck))
        floors = Floors(self, math.inf if patient or goal.target is None else goal.target, len(U))
        loss, known, t = np.full(len(U), math.inf), np.full(len(U), math.inf), 0
        lockstep = Lockstep([lane.walk for lane in lanes], self.settings)
        with lockstep.pool:
            for t in observation_times(goal.steps, self.settings):
                middle, losses = lockstep.to(t)
                loss = np.full(len(U), math.inf)
                for lane, part in zip(lanes, losses, strict=True):
                    loss[lane.rows] = known[lane.rows] = np.fmin(part.mean(-1), math.inf)  # NaN becomes infinity.
                if goal.target is not None and loss.min() <= goal.target:
                    return self._winner(U, loss, round(middle))
                alive = loss < self.settings.lost * self.race_on.initial_loss
                alive &= ~floors.met(t, loss, lanes)
                lockstep.keep([(i, rows) for i, lane in enumerate(lanes) if len(rows := lane.keep(alive))])
                lanes = [lane for lane in lanes if len(lane.rows)]
                if not lanes:
                    break
        if goal.target is None and lanes:
            return self._winner(U, loss, goal.steps)
        last = loss if lanes else known
        best = np.argsort(last)[: self.settings.finalists]
        return Found(U[best], None, float(last[best[0]]), within=t, all_dropped=not lanes)

    def _winner(self, U: Array, loss: Array, steps: int) -> Found:
        """The winner of a race, and the minimum of a quadratic fitted to the losses close to the best, if it has a minimum."""
        first = int(np.argmin(loss))
        near = np.flatnonzero(loss < self.settings.near_best * loss[first])
        p, u = len(self.family), U[first]
        points, axes = [u], None
        if len(near) > 1 + p + p * (p + 1) // 2:
            Z, span = (U[near] - u) / self.width, np.ptp(U[near], axis=0) / 2
            model, axes, bowl = fit_quadratic(Z, np.log(loss[near]))
            if bowl:
                points.append(self.family.inside(u + np.clip(model * self.width, -span, span)))
        return Found(np.array(points), steps, float(loss[first]), axes=axes)

    def _lanes(self, U: Array, goal: Goal, replicas: int, luck: int) -> Iterator[Lane]:
        """Groups of settings that share arrays, split over the cores; all lanes have the same noise."""
        for rows, optimizer in self.family.passes(U, self.settings.pass_numbers):
            optimizer = optimizer.at_horizon(goal.steps)
            numbers = len(rows) * replicas * self.race_on.modes
            lanes = int(np.clip(numbers // self.settings.thread_numbers, 1, self.cores))
            for part in np.array_split(np.arange(len(rows)), min(lanes, len(rows))):
                streams = Streams(self.seed, [(2 + luck, replicas)])
                some = _settings(optimizer, part, len(rows))
                yield Lane(Walk(self.race_on, some, goal.batch_size, streams, settings=len(part)), rows[part])

    def measure(self, points: Array, goal: Goal, guess: int) -> Found:
        """The best of one or two settings and its steps or loss, with noise that no race has used.

        ``guess`` is the expected number of steps. Of two settings the better is chosen by the same noise that measures it,
        which biases its figure by a part of the standard error.
        """
        optimizers = [self.family.at(u).at_horizon(goal.steps) for u in points]
        work, block = guess * self.measure_on.modes, self.settings.block_replicas
        replicas = int(np.clip(self.settings.measured_work // work, *self.settings.measured_replicas))
        blocks, seed = [(i, block) for i in range(replicas // block)], self.seed + 1  # Races have even seeds.
        walks = [Walk(self.measure_on, o, goal.batch_size, Streams(seed, blocks)) for o in optimizers]
        lockstep = Lockstep(walks, self.settings)
        with lockstep.pool, np.errstate(all="ignore"):
            if goal.target is not None:
                return self._cross(points, lockstep, goal.target, min(goal.steps, self.settings.measured_limit * guess))
            for t in observation_times(goal.steps, self.settings):
                lockstep.to(t)
            figures = [mean_and_stderr(walk.losses()) for walk in walks]
        first = int(np.argmin([mean for mean, _ in figures]))
        return Found(points[first][None], goal.steps, *figures[first], within=goal.steps)

    def _cross(self, points: Array, lockstep: Lockstep, target: float, limit: int) -> Found:
        """The setting that reaches the target first, and when. A dip that begins within the limit may be confirmed after it."""
        crossings = [Crossing(target, self.measure_on.initial_loss, self.settings) for _ in points]
        last, first = math.inf, 0
        for t in observation_times(self.settings.proof_limit * limit, self.settings):
            middle, losses = lockstep.to(t)
            since, _, parts = lockstep.window[-1]
            for i, one in enumerate(crossings):
                if one.observe(middle, losses[i], since, parts[i], t) and one.hit <= limit:
                    return Found(points[i][None], one.hit, mean_and_stderr(losses[i])[0], one.stderr, t)
            if t <= limit:
                means = [mean_and_stderr(part)[0] for part in losses]
                first, last = int(np.argmin(means)), min(means)
            if t >= limit and not any(one.below and one.hit <= limit for one in crossings):
                break
        return Found(points[first][None], None, last, within=limit)


class Lane:
    """Some settings of a race, stepped as one array."""

    def __init__(self, walk: Walk, rows: Array) -> None:
        self.walk, self.rows = walk, rows
        self.start = walk.weights()[0]  # The same for every setting.

    def keep(self, alive: Array) -> Array:
        """Drop settings that are not alive. Returns the indices of the settings that are left."""
        mine, size = np.flatnonzero(alive[self.rows]), len(self.rows)
        if 0 < len(mine) < size:
            stepper = self.walk.stepper
            stepper.switch(_settings(stepper.optimizer, mine, size), _chosen(stepper.state, mine, size))
        self.rows = self.rows[mine]
        return mine


class Floors:
    """Finds the settings that rest at a noise floor above a target: their loss has stopped falling and consists of noise."""

    def __init__(self, track: Track, target: float, settings: int) -> None:
        self.settings, self.mass, self.target = track.settings, track.race_on.mass, target
        self.next = self.settings.first_floor_step // 4
        self.history: list[Array] = []  # Losses since a quarter of the time.
        self.noise, self.variance, self.count = np.zeros(settings), np.zeros(settings), 0

    def met(self, t: int, loss: Array, lanes: list[Lane]) -> Array:
        """Which settings rest at a floor at step t. Losses are checked now and then, and noise is averaged over the checks."""
        resting = np.zeros(len(loss), dtype=bool)
        if t < self.next:
            return resting
        checks = self.settings.floor_checks
        self.next, self.history = int(self.settings.floor_growth * t), [*self.history[1 - checks :], loss]
        if len(self.history) < checks or math.isinf(self.target):
            return resting
        self.count += 1
        for lane in lanes:
            noise, stderr = noise_part(lane.walk.weights(), lane.start, self.mass)
            self.noise[lane.rows] += noise
            self.variance[lane.rows] += stderr**2
            resting[lane.rows] = True
        sure = self.noise - self.settings.sure_errors * np.sqrt(self.variance) > self.count * self.target
        return resting & sure & (loss > self.settings.stalled * self.history[0])


def spread_out(spectrum: Spectrum, samples: int) -> Spectrum:
    """The spectrum with nodes repeated in proportion to their share of the initial loss, about ``samples`` in all."""
    share = spectrum.signal_mass / max(spectrum.initial_loss, 1e-300)
    copies = np.clip(np.rint(samples * share), 1, np.maximum(np.floor(spectrum.count), 1)).astype(int)
    h, c, s, count = (np.repeat(a, copies) for a in (spectrum.h, spectrum.c, spectrum.s, spectrum.count / copies))
    return Spectrum(h, c, s, count)


def _settings(optimizer: Optimizer, rows: Array, size: int) -> Optimizer:
    """The optimizer with only these rows of its settings, as arrays of shape (settings, 1, 1)."""
    arrays = {n: p.value for n, p in parameters(optimizer).items() if np.ndim(p.value) and len(p.value) == size}
    return fill(optimizer, {name: value[rows].reshape(-1, 1, 1) for name, value in arrays.items()})


def _chosen(state: Any, rows: Array, size: int) -> Any:
    """The state of an optimizer for some of its settings."""
    if isinstance(state, tuple):
        return tuple(_chosen(part, rows, size) for part in state)
    if isinstance(state, Geometry):
        return state.select(rows)
    return state[rows] if np.ndim(state) == 3 and len(state) == size else state
