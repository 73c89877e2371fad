"""An optimizer with free parameters as a family: points of a search box, evaluated many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...optimizers.base import Optimizer, Parameter, assign, free_parameters, parameters
from ...problems.base import MAX_STEPS
from ...types import Array, Wrong

PASS = 32768  # settings times nodes in one pass


class Family:
    """The free parameters of an optimizer on a problem.

    A point u has one coordinate for each: a learning rate relative to the edge of stability,
    log2 of the memory 1 / (1 - momentum), and so on (`Kind`).
    """

    def __init__(self, problem: Any, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise Wrong(f"expected an optimizer such as HeavyBall(), got {optimizer!r}")
        self.problem, self.optimizer = problem, optimizer
        self.free: list[Parameter] = list(free_parameters(optimizer).values())
        self.low = np.array([p.kind.low for p in self.free])
        self.high = np.array([p.kind.high for p in self.free])
        self.ends = np.array([problem.spectrum.h.min(), problem.spectrum.h.max()])
        self.structural = np.array([p.kind.structural for p in self.free], dtype=bool)

    def __len__(self) -> int:
        return len(self.free)

    def at(self, u: Array) -> Optimizer:
        """The optimizer at a point, plain numbers in it."""
        values = {p.name: p.kind.value(x) for p, x in zip(self.free, u, strict=True)}
        return self._fill({k: v if isinstance(v, int) else float(v) for k, v in values.items()})

    def point(self, optimizer: Optimizer) -> Array:
        """The coordinates of a member."""
        known = parameters(optimizer)
        edge = self.edge(optimizer).item()
        values = [known[p.name].value / (edge if p.path[-1] == "lr" else 1.0) for p in self.free]
        u = [float(p.kind.coordinate(v)) for p, v in zip(self.free, values, strict=True)]
        return np.clip(u, self.low, self.high)

    def names_at_bound(self, u: Array) -> tuple[str, ...]:
        close = 1e-6 * (self.high - self.low)
        found = []
        for p, x, low, high, eps in zip(self.free, u, self.low, self.high, close, strict=True):
            eps = 0.05 if p.kind.integer else eps  # a whole number does not meet its bound exactly
            if x <= low + eps or x >= high - eps:
                found.append(p.name)
        return tuple(found)

    def losses(self, U: Array, t: int) -> tuple[Array, Array]:
        """(signal, noise) after t steps at each row of U."""
        signal, noise = np.empty(len(U)), np.empty(len(U))
        for rows, optimizer in self.passes(U):
            signal[rows], noise[rows] = self.problem._losses(optimizer, t, 1.0)
        return signal, noise

    def curve(self, u: Array) -> Callable[[int], tuple[Array, Array]]:
        """What `losses` gives for one point, as a function of t that is prepared once."""
        optimizer = next(self.passes(u[None]))[1]
        if optimizer.cycle != 1 or optimizer.at_horizon(1) != optimizer.at_horizon(MAX_STEPS):
            return lambda t: self.losses(u[None], t)
        motion = self.problem.motion(optimizer, 1.0)
        return lambda t: self.problem.summed(motion.end(t))

    def levels(self, U: Array) -> Iterator[tuple[Array, Array]]:
        """(signal, noise) at each row of U after 1, 2, 4, 8, ... steps."""
        passes = [(rows, self.problem.doublings(optimizer, 1.0)) for rows, optimizer in self.passes(U)]
        while True:
            signal, noise = np.empty(len(U)), np.empty(len(U))
            for rows, ladder in passes:
                signal[rows], noise[rows] = next(ladder)
            yield signal, noise

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

    def passes(self, U: Array, most: int = PASS) -> Iterator[tuple[Array, Optimizer]]:
        """Rows of U that one pass can hold, and the optimizer that holds their settings as arrays."""
        chunk = max(1, most // len(self.problem.spectrum))
        for group in self._groups(U):
            for first in range(0, len(group), chunk):
                rows = group[first : first + chunk]
                values: dict[str, Any] = {}
                for p, u in zip(self.free, U[rows].T, strict=True):
                    values[p.name] = p.kind.value(u[0]) if p.kind.structural else p.kind.value(u)[:, None]
                yield rows, self._fill(values)

    def _groups(self, U: Array) -> list[Array]:
        """Rows of U that agree in what decides the structure of a step."""
        if not self.structural.any():
            return [np.arange(len(U))]
        keys = [tuple(p.kind.value(x) for p, x in zip(self.free, u, strict=True) if p.kind.structural) for u in U]
        return [np.array([i for i, k in enumerate(keys) if k == key]) for key in dict.fromkeys(keys)]

    def _fill(self, values: dict[str, Any]) -> Optimizer:
        filled = self.optimizer
        for p in self.free:
            if p.path[-1] != "lr":
                filled = assign(filled, p.path, values[p.name])
        for p in self.free:
            if p.path[-1] == "lr":
                edge, value = self.edge(filled), values[p.name]
                filled = assign(filled, p.path, value * (edge if np.ndim(value) else edge.item()))
        return filled

    def edge(self, optimizer: Optimizer) -> Array:
        """Where the optimizer is expected to lose stability on this spectrum, for each setting."""
        return np.asarray(optimizer.edge(self.ends)).min(axis=-1, keepdims=True)
