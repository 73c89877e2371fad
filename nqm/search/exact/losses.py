"""What a search asks of a problem: the losses of many settings after so many steps, quickly; and of one, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from ...optimizers.base import Optimizer
from ...problems.base import Problem
from ...types import Array, Wrong
from .family import Family

PASS = 8192  # settings times nodes in one pass over least squares: its blocks of time take up memory


class Losses(Protocol):
    """The losses of a family's settings.

    ``looks`` is how hard to look for other basins: points for each parameter in a cloud, and further clouds.
    """

    family: Family
    looks: tuple[int, int]

    def at(self, U: Array, t: int, batch_size: float) -> Array:
        """Loss after t steps at each row of U."""
        ...

    def curve(self, u: Array, batch_size: float) -> Callable[[int], Array]:
        """The same for one point, as a function of t that is prepared once."""
        ...

    def scan(self, points: Array, level: int, batch_size: float) -> Array:
        """Loss after 2^level steps at each of the points, which are the same at every call."""
        ...

    def exact(self, optimizer: Optimizer, t: int, batch_size: float) -> float:
        """Loss of one setting on the full spectrum."""
        ...


def losses_of(problem: Problem, optimizer: Optimizer) -> Losses:
    """The losses of an optimizer's family on a problem."""
    if not isinstance(problem, Problem):
        raise Wrong(f"tune needs a problem such as Quadratic(spectrum), got {problem!r:.60}", argument="problem")
    return Separate(problem, optimizer) if problem.separable else Sampled(problem, optimizer)


class Separate:
    """Quadratic: signal and noise separate, so one scan serves every batch size."""

    looks: tuple[int, int] = (
        128,
        4,
    )  # with (64, 2) one in twenty tuned heavy balls was more than 0.1% above the best known

    def __init__(self, problem: Problem, optimizer: Optimizer) -> None:
        self.problem = problem
        self.family = Family(problem.nodes.searched(optimizer), optimizer)
        # Where to begin is seen well enough on the fewest nodes.
        self._scanned = Family(problem.nodes.smooth, optimizer)
        self._levels: Iterator[tuple[Array, Array]] | None = None
        self._table: list[tuple[Array, Array]] = []

    def at(self, U: Array, t: int, batch_size: float) -> Array:
        return _total(*self.family.losses(U, t), batch_size)

    def curve(self, u: Array, batch_size: float) -> Callable[[int], Array]:
        losses = self.family.curve(u)
        return lambda t: _total(*losses(t), batch_size)

    def scan(self, points: Array, level: int, batch_size: float) -> Array:
        self._levels = self._levels or self._scanned.levels(points)
        while len(self._table) <= level:
            self._table.append(next(self._levels))
        return _total(*self._table[level], batch_size)

    def exact(self, optimizer: Optimizer, t: int, batch_size: float) -> float:
        return self.problem.loss(optimizer, t, batch_size)


class Sampled:
    """Least squares: each batch size has a scan of its own."""

    looks: tuple[int, int] = (48, 1)  # a hundred times as dear; the noise of other modes blurs sharp basins

    def __init__(self, problem: Problem, optimizer: Optimizer) -> None:
        self.problem = problem
        self.family = Family(problem.nodes.searched(optimizer), optimizer)
        self._scanned = Family(problem.nodes.smooth, optimizer)
        self._scans: dict[float, tuple[Iterator[Array], list[Array]]] = {}

    def at(self, U: Array, t: int, batch_size: float) -> Array:
        found = np.empty(len(U))
        for rows, optimizer in self.family.passes(U, PASS):
            found[rows] = self.family.problem.curve(optimizer, batch_size)(t)
        return found

    def curve(self, u: Array, batch_size: float) -> Callable[[int], Array]:
        return lambda t: self.at(u[None], t, batch_size)

    def scan(self, points: Array, level: int, batch_size: float) -> Array:
        levels, table = self._scans.setdefault(batch_size, (self._levels(points, batch_size), []))
        while len(table) <= level:
            table.append(next(levels))
        return table[level]

    def exact(self, optimizer: Optimizer, t: int, batch_size: float) -> float:
        return self.problem.nodes.fine.loss(optimizer, t, batch_size)

    def _levels(self, points: Array, batch_size: float) -> Iterator[Array]:
        passes = [
            (rows, self._scanned.problem.doublings(optimizer, batch_size))
            for rows, optimizer in self._scanned.passes(points, PASS)
        ]
        while True:
            found = np.empty(len(points))
            for rows, ladder in passes:
                found[rows], _ = next(ladder)
            yield found


def _total(signal: Array, noise: Array, batch_size: float) -> Array:
    with np.errstate(invalid="ignore"):
        return signal + noise / batch_size
