"""Best hyper-parameters for a target, by horizons instead of by a search over time.

The minimum over settings of the first hitting time is the smallest T at which *some* setting is at or below the target.
So it is enough to know, for a horizon T, the least loss that any setting has after T steps,
``L*(T) = min signal(T) + noise(T) / B``, a smooth minimisation, and to find the smallest T with ``L*(T) <= target``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.run import Outcome
from ...optimizers.base import Optimizer
from ...problems.least_squares import LeastSquares
from ...problems.quadratic import MAX_STEPS, Quadratic
from ...types import Array
from ..answer import PLAIN, Goal, Sampling, Tuned
from ..hits import steps_to_target
from ..races.tuner import RaceTuner
from .family import Family
from .losses import losses_of
from .minimise import minimise

CLOSE = 1e-3  # in log loss: near enough for one setting's own curve to find the horizon, to second order
WIDE, NEAR = 2.0, 0.25  # first cloud of a local search: the spacing of the scan, the shift between close horizons
SHARPER = (0.06, 0.015)  # clouds of the last local searches, which end at a tenth of that
FAR = 3.0  # between the starts of a search: a valley can have several basins along it
MORE = (1, 1, 2, 4, 8, 16)  # steps added where a setting just misses the target on the full spectrum
SEED = 20190704  # of clouds that are drawn
CEILING = 1e100  # stands for the loss of a setting that overflowed


def tune(
    problem: Quadratic | LeastSquares,
    optimizer: Optimizer,
    batch_size: float,
    target: float | None = None,
    *,
    steps: int | None = None,
    examples: float | None = None,
    max_steps: int = MAX_STEPS,
    noise: Any = "gaussian",
    seed: int = 0,
    rotation: Any = None,
) -> Tuned:
    """Best values of the free parameters: fewest steps to a target loss, or least loss for a budget.

    Parameters
    ----------
    problem, optimizer : the optimizer's free parameters are tuned jointly, the others kept.
    batch_size : positive; infinity for no noise.
    target : reach this loss in the fewest steps; or
    steps, examples : reach the least loss in so many steps, or in so many examples (``examples // batch_size`` steps).
    noise, seed, rotation : as in `Quadratic.sample`, for an optimizer that is sampled; the expected loss of the others
        depends on neither.

    >>> from nqm import HeavyBall, Quadratic, Spectrum
    >>> tune(Quadratic(Spectrum.power_law(10_000)), HeavyBall(), batch_size=2**14, target=0.01).steps
    341
    """
    found = tuner(problem, optimizer, Sampling.of(optimizer, noise, seed, rotation))
    return found.solve(batch_size, target, steps=steps, examples=examples, max_steps=max_steps)


def tuner(problem: Quadratic | LeastSquares, optimizer: Optimizer, sampling: Sampling = PLAIN) -> Tuner | RaceTuner:
    """What tunes an optimizer: exact moments or, where it has none, races."""
    if isinstance(optimizer, Optimizer) and not optimizer.linear:
        return RaceTuner(problem, optimizer, sampling)
    return Tuner(problem, optimizer)


class Tuner:
    """One scan of a family's box serves every batch size and target; then a local search for each."""

    def __init__(self, problem: Quadratic | LeastSquares, optimizer: Optimizer) -> None:
        self.problem = problem
        self.losses = losses_of(problem, optimizer)
        self.family = self.losses.family
        p = len(self.family)
        # Where every step is walked, look at fewer settings.
        walks = self.family.at((self.family.low + self.family.high) / 2).cycle == 0
        self.points = np.vstack([self.family.sample(1 if p == 0 else (24 if walks else 48 * p**2)), *self._faces()])
        self.limit = 2**20 if walks else MAX_STEPS

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
        """Answer one question; ``near`` is the answer at a neighbouring, smaller batch size, to start from."""
        goal = Goal.of(batch_size, target, steps, examples, max_steps)
        if goal.target is None:
            return self._least_loss(goal.batch_size, goal.steps, near)
        return self._fewest_steps(goal.batch_size, goal.target, min(goal.steps, self.limit), near)

    def point(self, optimizer: Optimizer) -> Array:
        """The coordinates of a member of the family: a start for a neighbouring question."""
        return self.family.point(optimizer)

    def _faces(self) -> list[Array]:
        """Points with a momentum, a decay or a beginning of 0: where it does not help, the best lies there."""
        faces = []
        for i, p in enumerate(self.family.free):
            if p.kind.low == 0 and not p.kind.integer:
                faces.append(self.family.sample(24))
                faces[-1][:, i] = p.kind.low
        return faces

    def _least_loss(self, batch_size: float, steps: int, near: Tuned | None) -> Tuned:
        u = self._best_at(batch_size, steps, near) if len(self.family) else self.points[0]
        optimizer = self.family.at(u)
        loss = self.losses.exact(optimizer, steps, batch_size)
        outcome = Outcome.finished
        message = f"least loss after {steps:,} steps is {loss:.4g}" + self._remark(u)
        return Tuned(optimizer, steps, loss, batch_size, self.family.names_at_bound(u), outcome, message)

    def _best_at(self, batch_size: float, steps: int, near: Tuned | None) -> Array:
        """The point of least loss at a horizon: other basins are looked for as `_explore` does, until none is deeper."""
        u, least = self._minimise(steps, batch_size, self._starts(steps.bit_length() - 1, batch_size, near), WIDE)
        rng = np.random.default_rng(SEED)
        while len(self.family) > 1 and least > 0:
            found, _ = self._below(batch_size, (1 - CLOSE) * least, steps, self._around(u), rng)
            if found is None:
                break
            u, least = self._minimise(steps, batch_size, [found], NEAR / 4)
        for radius in SHARPER:
            u, _ = self._minimise(steps, batch_size, [u], radius, sharp=radius / 10)
        return u

    def _fewest_steps(self, batch_size: float, target: float, max_steps: int, near: Tuned | None) -> Tuned:
        if self.problem.spectrum.initial_loss <= target or len(self.family) == 0:
            u = self.points[0]
            hit = steps_to_target(self.problem, self.family.at(u), batch_size, target, max_steps=max_steps)
            return Tuned(self.family.at(u), hit.steps, hit.loss, batch_size, (), hit.outcome, hit.message)
        bracket = self._bracket(batch_size, target, max_steps, near)
        if isinstance(bracket, Tuned):
            return bracket
        T, u = self._explore(batch_size, target, *self._shrink(batch_size, target, *bracket))
        T, u, loss = self._confirm(batch_size, target, *self._polish(batch_size, target, T, u))
        if max_steps < T:
            return self._unreached(batch_size, target, max_steps, u)
        message = Outcome.reached.value.format(target=target, steps=T) + self._remark(u)
        return Tuned(self.family.at(u), T, loss, batch_size, self.family.names_at_bound(u), Outcome.reached, message)

    def _bracket(self, batch_size: float, target: float, max_steps: int, near: Tuned | None) -> Any:
        """A horizon at which the target is reached, the best point there, and the next best."""
        level = 0
        while float(np.min(self._scan(level, batch_size))) > target and 2 ** (level + 1) <= max_steps:
            level += 1
        top = min(2**level, max_steps)
        if near is not None and near.steps is not None and near.steps <= top and near.batch_size <= batch_size:
            u = self.point(near.optimizer)  # less noise, so what was reached there is reached here
            if float(self.losses.at(u[None], near.steps, batch_size)[0]) <= target:
                return near.steps, u, []
        while True:
            (u, loss), *others = self._minima(top, batch_size, self._starts(level, batch_size, near), WIDE, sharp=0.3)
            if loss <= target:
                return top, u, [v for v, _ in others]
            if top == max_steps:
                found, _ = self._below(batch_size, target, top, self._around(u), np.random.default_rng(SEED))
                return (top, found, []) if found is not None else self._unreached(batch_size, target, max_steps, u)
            # The scan's few nodes promised too much, or the steps allowed lie between two powers of two.
            top = min(2 * top, max_steps)
            level = top.bit_length() - 1

    def _unreached(self, batch_size: float, target: float, max_steps: int, u: Array) -> Tuned:
        u, _ = self._minimise(max_steps, batch_size, [u], NEAR)
        optimizer = self.family.at(u)
        loss = self.losses.exact(optimizer, max_steps, batch_size)
        numbers = {"target": target, "loss": loss, "steps": max_steps}
        message = "even tuned, " + Outcome.out_of_steps.value.format(**numbers)
        return Tuned(optimizer, None, loss, batch_size, self.family.names_at_bound(u), Outcome.out_of_steps, message)

    def _shrink(self, batch_size: float, target: float, T: int, u: Array, others: list[Array]) -> tuple[int, Array]:
        """From a horizon that is long enough to the shortest of these basins: the best setting there, where that one lands, ...

        The losses of the best setting touch the least losses L* from above, so landing is a Newton step that stays long
        enough. All basins are followed, as another may be best at shorter horizons.
        """
        T, u = self._land(u, batch_size, target, T)
        while True:
            found = self._minima(T, batch_size, [u, *others], NEAR, sharp=0.05)
            ends = [self._land(v, batch_size, target, T) for v, loss in found if loss <= target]
            if not ends or ends[0][0] >= T * (1 - CLOSE) - 1:
                return min([(T, u), *ends], key=lambda end: end[0])
            (T, u), others = ends[0], [v for v, _ in found[1:]]

    def _explore(self, batch_size: float, target: float, T: int, u: Array) -> tuple[int, Array]:
        """Look for a better basin below the horizon, the further down the more was found there, until there is none just below.

        With few steps and little noise the top modes' last swings cut the valley into dozens of sharp basins.
        """
        if len(self.family) == 1:
            return T, u
        offsets, rng, jump = self._around(0.0 * u), np.random.default_rng(SEED), 1
        while True:
            trial = T - max(jump, math.ceil(T * CLOSE))
            found, hits = self._below(batch_size, target, trial, u + offsets, rng, brief=jump > 1)
            if found is not None:
                T, u = min(trial, self._land(found, batch_size, target, trial)[0]), found
                jump = max(1, hits // 4)
            elif jump > 1:
                jump = 1
            else:
                return T, u

    def _around(self, u: Array) -> Array:
        """A cloud of points about u, of all widths along each axis alone."""
        p = len(u)
        spread = Family.spread(self.losses.looks[0] * p, 2 * p)
        return u + (2 * spread[:, :p] - 1) * (1.5 * 2.0 ** (-4 * spread[:, p:]))

    def _below(
        self, batch_size: float, target: float, t: int, points: Array, rng: np.random.Generator, brief: bool = False
    ) -> tuple[Array | None, int]:
        """A point at or below the target after t steps, and how many were met: in a cloud of all widths and, unless ``brief``,
        in one that is shaped by its best and twice as wide, in local searches from the best of both.
        """
        if t < 1:
            return None, 0
        goal, p = math.log(target), points.shape[1]
        cloud, losses = self._cloud(points, t, batch_size)
        for _ in range(0 if brief else self.losses.looks[1]):
            if losses.min() <= goal:
                break
            elite = cloud[np.argsort(losses)[: len(points) // 8]]
            bend = 2 * np.linalg.cholesky(np.cov(elite.T) + 1e-8 * np.eye(p))
            again, more = self._cloud(elite.mean(0) + rng.normal(size=points.shape) @ bend.T, t, batch_size)
            cloud, losses = np.vstack([cloud, again]), np.append(losses, more)
            if more.min() > goal:
                found, loss = self._minimise(t, batch_size, list(cloud[np.argsort(losses)[:4]]), NEAR / 4, sharp=0.01)
                if loss <= target:
                    return found, 1
        hits = int(np.count_nonzero(losses <= goal))
        return (cloud[np.argmin(losses)] if hits else None), hits

    def _cloud(self, points: Array, t: int, batch_size: float) -> tuple[Array, Array]:
        points = np.clip(points, self.family.low, self.family.high)
        return points, _log(self.losses.at(points, t, batch_size))

    def _polish(self, batch_size: float, target: float, T: int, u: Array) -> tuple[int, Array]:
        """The best setting at the horizon itself, sharper each time, and where that one lands, to the step."""
        for radius in SHARPER:
            u, _ = self._minimise(T, batch_size, [u], radius, sharp=radius / 10)
            T, u = self._land(u, batch_size, target, T, within=0.0)
        return T, u

    def _land(self, u: Array, batch_size: float, target: float, T: int, within: float = CLOSE / 8) -> tuple[int, Array]:
        loss = self.losses.curve(u, batch_size)
        return land(lambda t: float(loss(t)[0]), target, T, within)[0], u

    def _confirm(self, batch_size: float, target: float, T: int, u: Array) -> tuple[int, Array, float]:
        """Where the setting lands on the full spectrum, whose loss the search's nodes know to a part in ten million."""
        loss = math.inf
        for more in MORE:
            optimizer = self.family.at(u)
            end, loss = land(lambda t: self.losses.exact(optimizer, t, batch_size), target, T)  # noqa: B023
            if loss <= target and end <= max(T + 1, T * (1 + CLOSE)):
                return end, u, loss
            T += more
            u, _ = self._minimise(T, batch_size, [u], 0.015, sharp=0.0015)
        hit = steps_to_target(self.problem, self.family.at(u), batch_size, target)
        return (T, u, loss) if hit.steps is None else (hit.steps, u, hit.loss)

    def _remark(self, u: Array) -> str:
        names = self.family.names_at_bound(u)
        return f"; the best {' and '.join(names)} lies at the edge of its range" if names else ""

    def _scan(self, level: int, batch_size: float) -> Array:
        loss = self.losses.scan(self.points, level, batch_size)
        return np.where(np.isfinite(loss), loss, CEILING)

    def _starts(self, level: int, batch_size: float, near: Tuned | None) -> list[Array]:
        """The best of the scan and others far from it, and the best on each face of the box."""
        loss = self._scan(level, batch_size)
        inside = np.all((self.points > self.family.low) | self.family.structural, axis=1)
        order = np.argsort(loss)
        picks: list[int] = []
        apart = 1 + len(self.family) if len(self.family) > 1 else 1  # along a single rate there is one basin
        for i in order[inside[order]]:
            if len(picks) < apart and all(np.abs(self.points[i] - self.points[j]).max() > FAR for j in picks):
                picks.append(int(i))
        for j in range(len(self.family)):
            face = np.flatnonzero(self.points[:, j] == self.family.low[j])
            picks += [int(face[np.argmin(loss[face])])] if len(face) else []
        starts = [self.points[i] for i in picks if loss[i] < CEILING] or [self.points[order[0]]]
        return [*starts, *([self.point(near.optimizer)] if near is not None else [])]

    def _minimise(
        self, t: int, batch_size: float, starts: list[Array], radius: float, sharp: float = 0.01
    ) -> tuple[Array, float]:
        """Least loss after t steps, from each start; the best of them."""
        return self._minima(t, batch_size, starts, radius, sharp)[0]

    def _minima(
        self, t: int, batch_size: float, starts: list[Array], radius: float, sharp: float
    ) -> list[tuple[Array, float]]:
        low, high = self.family.low, self.family.high

        def f(U: Array) -> Array:
            return _log(self.losses.at(U, t, batch_size))

        return [(u, math.exp(value)) for u, value in minimise(f, starts, radius, low, high, sharp)]


def land(loss: Callable[[int], float], target: float, T: int, within: float = 0.0) -> tuple[int, float]:
    """The time near T at which one setting comes to the target, with its loss there; a loss above it if that is far from T.

    That is a time at or below the target, and it is above at most so much earlier, in proportion, or one step.

    Bracketed by steps of the size that a slope of -2/3 asks for, then false position and bisection in turn.
    """
    goal, seen, far = math.log(target), {}, 2 * T + 64

    def height(t: int) -> float:
        seen[t] = loss(t)
        return math.log(min(max(seen[t], 1e-300), CEILING) if math.isfinite(seen[t]) else CEILING) - goal

    lo, at_lo, hi, at_hi = 0, math.inf, T, height(T)
    while at_hi > 0 and hi < far:
        lo, at_lo = hi, at_hi
        hi += max(1, hi - T, math.ceil(1.5 * hi * min(at_hi, 1.0)))
        at_hi = height(hi)
    if at_hi > 0:
        return hi, seen[hi]
    while math.isinf(at_lo):
        t = hi - max(1, math.ceil(1.5 * hi * min(-at_hi, 0.5)))
        at = height(t) if t > 0 else math.inf
        if at > 0:
            lo, at_lo = t, at
            break
        hi, at_hi = t, at
    for turn in range(200):
        if hi - lo <= max(1, within * hi):
            break
        part = at_lo / (at_lo - at_hi) if turn % 3 < 2 and math.isfinite(at_lo) else 0.5
        t = min(max(lo + 1, round(lo + part * (hi - lo))), hi - 1)
        at = height(t)
        lo, at_lo, hi, at_hi = (t, at, hi, at_hi) if at > 0 else (lo, at_lo, t, at)
    return hi, seen[hi]


def _log(loss: Array) -> Array:
    return np.log(np.fmin(np.fmax(np.where(np.isnan(loss), CEILING, loss), 1e-300), CEILING))
