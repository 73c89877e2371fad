"""The losses of a family's settings: of many at a time on few nodes, and of one setting exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic

import numpy as np

from ...problems.base import Pair, Problem, total
from ...types import Array, Wrong
from .family import Family, O
from .settings import COUPLED, SEPARABLE, SETTINGS, Effort

CEILING = 1e100
"""Stands for the loss of a setting that overflowed."""


def log_loss(loss: Array) -> Array:
    """The log of losses, finite whatever they are: what searches minimise."""
    return np.log(np.fmin(np.fmax(np.where(np.isnan(loss), CEILING, loss), 1e-300), CEILING))


class Scan(Generic[O]):
    """Settings spread over the whole box of a family, and their losses after 1, 2, 4, 8, ... steps.

    Where to begin is seen well enough on the fewest nodes. Where signal and noise separate, one scan serves every batch size.
    """

    def __init__(self, problem: Problem, optimizer: O) -> None:
        if not isinstance(problem, Problem):
            raise Wrong(f"tune needs a problem such as Quadratic(spectrum), got {problem!r:.60}", argument="problem")
        self.problem, self.effort = problem, SEPARABLE if problem.separable else COUPLED
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
        """The best points after 2^level steps that lie apart from each other, and the best on each face of the box."""
        loss, family = self.losses(level, batch_size), self.family
        inside = np.all((self.points > family.low) | family.structural, axis=1)
        order = np.argsort(loss)
        picks: list[int] = []
        most = 1 + len(family) if len(family) > 1 else 1  # along a single rate there is one basin
        for i in order[inside[order]]:
            if len(picks) < most and all(np.abs(self.points[i] - self.points[j]).max() > SETTINGS.apart for j in picks):
                picks.append(int(i))
        for j in range(len(family)):
            face = np.flatnonzero(self.points[:, j] == family.low[j])
            picks += [int(face[np.argmin(loss[face])])] if len(face) else []
        return [self.points[i] for i in picks if loss[i] < CEILING] or [self.points[order[0]]]

    def _faces(self) -> list[Array]:
        """Points with a momentum, a decay or a beginning of 0: where it does not help, the best lies there."""
        faces = []
        for i, p in enumerate(self.family.free):
            if p.kind.low == 0 and not p.kind.integer:
                faces.append(self.family.sample(SETTINGS.face_points))
                faces[-1][:, i] = p.kind.low
        return faces

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

    def __init__(self, problem: Problem, family: Family[O], batch_size: float, effort: Effort = SEPARABLE) -> None:
        self.problem, self.family, self.batch_size, self.effort = problem, family, batch_size, effort
        self._nodes = problem.nodes.searched(family.optimizer)

    def at(self, U: Array, t: int) -> Array:
        """Loss after t steps at each row of U."""
        found = np.empty(len(U))
        for rows, optimizer in self.family.passes(U, self.effort.numbers):
            found[rows] = self._nodes.curve(optimizer, self.batch_size)(t)
        return found

    def curve(self, u: Array) -> Callable[[int], float]:
        """The same for one point, as a function of t that is prepared once."""
        curve = self._nodes.curve(next(self.family.passes(u[None]))[1], self.batch_size)
        return lambda t: float(curve(t)[0])

    def exact(self, u: Array, t: int) -> float:
        """Loss at one point on the full spectrum or, where that would be walked, on the finest nodes."""
        whole = self.problem if self.problem.separable else self.problem.nodes.fine
        return whole.loss(self.family.at(u), t, self.batch_size)
