"""The free parameters of an optimizer as a box to search, whose points are settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, cast

import numpy as np

from ...engine.spectrum import Spectrum
from ...optimizers.base import Optimizer, assign, free_parameters, parameters
from ...types import Array, Wrong
from .settings import SETTINGS

O = TypeVar("O", bound=Optimizer)


class Family(Generic[O]):
    """The free parameters of an optimizer on a spectrum.

    A point u has one coordinate for each free parameter (`Kind`): for a learning rate its distance from the edge of
    stability, for a momentum log2 of the memory 1 / (1 - momentum).
    """

    def __init__(self, optimizer: O, spectrum: Spectrum) -> None:
        if not isinstance(optimizer, Optimizer):
            raise Wrong(f"expected an optimizer such as HeavyBall(), got {optimizer!r}", "optimizer")
        self.optimizer, self.modes = optimizer, len(spectrum)
        self.free = list(free_parameters(optimizer).values())
        self.low = np.array([p.kind.low for p in self.free])
        self.high = np.array([p.kind.high for p in self.free])
        self.structural = np.array([p.kind.structural for p in self.free], dtype=bool)
        self._ends = np.array([spectrum.h.min(), spectrum.h.max()])

    def __len__(self) -> int:
        return len(self.free)

    def at(self, u: Array) -> O:
        """The optimizer with the settings of a point, as plain numbers."""
        values = {p.name: p.kind.value(x) for p, x in zip(self.free, u, strict=True)}
        return self._fill({k: v if isinstance(v, int) else float(v) for k, v in values.items()})

    def point(self, optimizer: Optimizer) -> Array:
        """The coordinates of an optimizer of this family."""
        known = parameters(optimizer)
        edge = self._edge(optimizer).item()
        values = [known[p.name].value / (edge if p.path[-1] == "lr" else 1.0) for p in self.free]
        u = [float(p.kind.coordinate(v)) for p, v in zip(self.free, values, strict=True)]
        return self.inside(np.array(u))

    def inside(self, points: Array) -> Array:
        """The nearest points of the box."""
        return np.clip(points, self.low, self.high)

    def names_at_bound(self, u: Array) -> tuple[str, ...]:
        """The parameters whose value lies at the edge of its range."""
        close = [
            SETTINGS.whole_bound if p.kind.integer else SETTINGS.bound * (p.kind.high - p.kind.low) for p in self.free
        ]
        bound = (u <= self.low + close) | (u >= self.high - close)
        return tuple(p.name for p, there in zip(self.free, bound, strict=True) if there)

    def sample(self, count: int) -> Array:
        """Points spread evenly over the box."""
        return self.low + (self.high - self.low) * self.spread(count, len(self))

    @staticmethod
    def spread(count: int, p: int) -> Array:
        """Points spread evenly over the unit cube: an additive recurrence with the generalised golden ratio."""
        g = 2.0
        for _ in range(60):  # the root of g^(p+1) = g + 1
            g = (1 + g) ** (1 / (p + 1))
        return (0.5 + np.outer(np.arange(1, count + 1), g ** -np.arange(1.0, p + 1))) % 1.0

    def passes(self, U: Array, numbers: int) -> Iterator[tuple[Array, O]]:
        """Groups of rows of U whose arrays hold at most ``numbers`` numbers, each with the optimizer that has them as settings."""
        columns = list(zip(self.free, U.T, strict=True))
        structure = np.array([[p.kind.value(x) for x in column] for p, column in columns if p.kind.structural])
        for rows in equal_rows(structure.reshape(-1, len(U)).T, max(1, numbers // self.modes)):
            plain = {p.name: p.kind.value(column[rows[0]]) for p, column in columns if p.kind.structural}
            arrays = {p.name: p.kind.value(column[rows])[:, None] for p, column in columns if not p.kind.structural}
            yield rows, self._fill(plain | arrays)

    def _fill(self, values: Mapping[str, float | Array]) -> O:
        filled: Optimizer = self.optimizer
        for p in self.free:
            if p.path[-1] != "lr":
                filled = assign(filled, p.path, values[p.name])
        for p in self.free:
            if p.path[-1] == "lr":
                edge, value = self._edge(filled), values[p.name]
                filled = assign(filled, p.path, value * (edge if np.ndim(value) else edge.item()))
        return cast(O, filled)

    def _edge(self, optimizer: Optimizer) -> Array:
        """The learning rate at which the optimizer is expected to lose stability on this spectrum, for each setting."""
        return np.asarray(optimizer.edge(self._ends)).min(axis=-1, keepdims=True)


def equal_rows(keys: Array, most: int) -> Iterator[Array]:
    """Groups of indices of equal rows of a matrix, at most ``most`` in a group."""
    marks = np.unique(keys, axis=0, return_inverse=True)[1].ravel() if keys.shape[1] else np.zeros(len(keys))
    for mark in np.unique(marks):
        rows = np.flatnonzero(marks == mark)
        yield from (rows[first : first + most] for first in range(0, len(rows), most))
