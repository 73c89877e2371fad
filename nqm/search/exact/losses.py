"""The losses of a family's settings, on few nodes or exactly, and the basins where the losses are least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic

import numpy as np

from ...problems.base import Pair, Problem, require_problem, total
from ...types import Array
from .family import Family, O
from .minimise import Basin, minimise
from .settings import SETTINGS, Effort

CEILING = 1e100  # The loss of a setting that overflowed counts as this.
LEAST = 5e-324  # The loss of a setting that became 0 counts as this, the smallest number above 0.


def log_loss(loss: Array | float) -> Array:
    """The logs of losses, which searches minimise; finite also for a loss that is 0, NaN or infinite."""
    return np.log(np.fmin(np.fmax(np.where(np.isnan(loss), CEILING, loss), LEAST), CEILING))


class Scan(Generic[O]):
    """Settings spread over the whole box of a family, and their losses after 1, 2, 4, 8, ... steps.

    The coarsest nodes suffice to tell where a search should begin. Where signal and noise separate, one scan serves every
    batch size.
    """

    def __init__(self, problem: Problem, optimizer: O) -> None:
        require_problem(problem, "tune")
        self.problem, self.effort = problem, SETTINGS.separable if problem.separable else SETTINGS.coupled
        self.family = Family(optimizer, problem.nodes.smooth.spectrum)
        p = len(self.family)
        self.walks = self.family.at((self.family.low + self.family.high) / 2).cycle == 0
        inside = 1 if p == 0 else (SETTINGS.walked_points if self.walks else SETTINGS.scan_points * p**2)
        self.points = np.vstack([self.family.sample(inside), *self._faces()])
        self._tables: dict[float, tuple[Iterator[Pair], list[Pair]]] = {}

    def losses(self, level: int, batch_size: float) -> Array:
        """The loss of each point after 2^level steps."""
        key = 1.0 if self.problem.separable else batch_size
        levels, table = self._tables.setdefault(key, (self._levels(key), []))
        while len(table) <= level:
            table.append(next(levels))
        loss = total(table[level], batch_size)
        return np.where(np.isfinite(loss), loss, CEILING)

    def starts(self, level: int, batch_size: float) -> list[Array]:
        """The best points after 2^level steps that are ``SETTINGS.apart`` from each other, and the best on each face of the box."""
        loss, family = self.losses(level, batch_size), self.family
        inside = np.all((self.points > family.low) | family.structural, axis=1)
        order = np.argsort(loss)
        picks: list[int] = []
        most = SETTINGS.scan_starts + len(family) if len(family) > 1 else 1  # A single rate has one basin.
        for i in order[inside[order]]:
            if len(picks) < most and all(np.abs(self.points[i] - self.points[j]).max() > SETTINGS.apart for j in picks):
                picks.append(int(i))
        for j in range(len(family)):
            face = np.flatnonzero(self.points[:, j] == family.low[j])
            picks += [int(face[np.argmin(loss[face])])] if len(face) else []
        return [self.points[i] for i in picks if loss[i] < CEILING] or [self.points[order[0]]]

    def _faces(self) -> list[Array]:
        """Points whose momentum, decay or start of an average is 0. The best setting lies there if the parameter does not help."""
        faces = [i for i, p in enumerate(self.family.free) if p.kind.low == 0 and not p.kind.integer]
        sample = self.family.sample(SETTINGS.face_points)
        return [np.where(np.arange(len(self.family)) == i, 0.0, sample) for i in faces]

    def _levels(self, batch_size: float) -> Iterator[Pair]:
        passes = [
            (rows, self.problem.nodes.smooth.doublings(optimizer, batch_size))
            for rows, optimizer in self.family.passes(self.points, self.effort.numbers)
        ]
        while True:
            signal, noise = np.empty((2, len(self.points)))
            for rows, doublings in passes:
                signal[rows], noise[rows] = next(doublings)
            yield signal, noise


class Losses(Generic[O]):
    """The losses of a family's settings on one problem at one batch size."""

    def __init__(
        self, problem: Problem, family: Family[O], batch_size: float, effort: Effort = SETTINGS.separable
    ) -> None:
        self.problem, self.family, self.batch_size, self.effort = problem, family, batch_size, effort
        self._nodes = problem.nodes.searched(family.optimizer)

    def at(self, U: Array, t: int) -> Array:
        """Loss after t steps at each row of U."""
        found = np.empty(len(U))
        for rows, optimizer in self.family.passes(U, self.effort.numbers):
            found[rows] = self._nodes.curve(optimizer, self.batch_size)(t)
        return found

    def curve(self, u: Array) -> Callable[[int], float]:
        """The loss at one point as a function of t."""
        curve = self._nodes.curve(next(self.family.passes(u[None], self.effort.numbers))[1], self.batch_size)
        return lambda t: float(curve(t)[0])

    def exact(self, u: Array, t: int) -> float:
        """Loss at one point on all modes; on the finest nodes for a coupled problem, which would step through all modes."""
        whole = self.problem if self.problem.separable else self.problem.nodes.fine
        return whole.loss(self.family.at(u), t, self.batch_size)


class Basins(Generic[O]):
    """Searches for the settings of least loss at one batch size, at any horizon."""

    def __init__(self, losses: Losses[O]) -> None:
        self.losses, self.family = losses, losses.family

    def minima(self, t: int, starts: list[Array], radius: float, sharp: float | None = None) -> list[Basin]:
        """The basins in which local searches from these starts end, deepest first."""
        low, high = self.family.low, self.family.high
        return minimise(lambda U: log_loss(self.losses.at(U, t)), starts, radius, low, high, sharp)

    def sharpen(self, t: int, u: Array, radius: float) -> Array:
        """The best setting near u after t steps, by a local search that ends at ``SETTINGS.last_shrink`` of its first size."""
        return self.minima(t, [u], radius, SETTINGS.last_shrink * radius)[0].u

    def deepest(self, t: int, starts: list[Array]) -> Array:
        """The setting of least loss after t steps; other basins are tried until none of them is deeper."""
        best, rng = self.minima(t, starts, SETTINGS.wide)[0], np.random.default_rng(SETTINGS.seed)
        while len(self.family) > 1 and best.loss > 0:
            found, _ = self.below(t, (1 - SETTINGS.close) * best.loss, self.around(best.u), rng)
            if found is None:
                break
            best = self.minima(t, [found], SETTINGS.nearer)[0]
        u = best.u
        for radius in SETTINGS.last:
            u = self.sharpen(t, u, radius)
        return u

    def around(self, u: Array) -> Array:
        """A cloud of points about u. Along each axis, independently, their distances from u have all orders of magnitude."""
        p = len(u)
        spread = Family.spread(self.losses.effort.points * p, 2 * p)
        return u + (2 * spread[:, :p] - 1) * (SETTINGS.cloud * 2.0 ** (-SETTINGS.octaves * spread[:, p:]))

    def below(
        self, t: int, target: float, points: Array, rng: np.random.Generator, brief: bool = False
    ) -> tuple[Array | None, int]:
        """A point at or below the target after t steps, or None, and how many such points were seen.

        If there is none among ``points``, and unless ``brief``, further clouds follow. Each is drawn around the best points
        so far, and local searches start from the best of it.
        """
        if t < 1:
            return None, 0
        goal, cloud = np.log(target), self.family.inside(points)
        values = log_loss(self.losses.at(cloud, t))
        for _ in range(0 if brief else self.losses.effort.clouds):
            if values.min() <= goal:
                break
            elite = cloud[np.argsort(values)[: len(points) // SETTINGS.elite]]
            again = self.family.inside(self._shaped(elite, rng, points))
            more = log_loss(self.losses.at(again, t))
            cloud, values = np.vstack([cloud, again]), np.append(values, more)
            if more.min() > goal:
                best = list(cloud[np.argsort(values)[: SETTINGS.starts]])
                basin = self.minima(t, best, SETTINGS.nearer)[0]
                if basin.loss <= target:
                    return basin.u, 1
        count = int(np.count_nonzero(values <= goal))
        return cloud[np.argmin(values)] if count else None, count

    @staticmethod
    def _shaped(elite: Array, rng: np.random.Generator, like: Array) -> Array:
        """Random points as many as ``like``, with the mean of the elite and ``SETTINGS.elite_width`` times its spread."""
        covariance = np.cov(elite.T) + SETTINGS.elite_least**2 * np.eye(like.shape[1])  # The elite may lie in a plane.
        return elite.mean(0) + rng.normal(size=like.shape) @ (SETTINGS.elite_width * np.linalg.cholesky(covariance)).T
