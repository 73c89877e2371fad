"""The axes of a map of two settings: as a user gives them, and their values on an optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.run import numbers
from ..optimizers.base import Optimizer, Parameter, parameters
from ..types import Array, Wrong

MOST_VALUES = 512
"""The most values that an axis may have."""


@dataclass(frozen=True)
class Axis:
    """Values of one hyper-parameter, or of the batch size, spaced as the parameter is searched.

    Learning rates and batch sizes by equal factors, momenta and decays by equal factors of 1 - value, powers evenly.

    >>> str(Axis("momentum", 0, 0.99, 3))
    'momentum=0..0.99..3'
    """

    name: str
    low: float
    high: float
    n: int = 32

    def __post_init__(self) -> None:
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (self.low, self.high, self.n))
        if not numeric or not 0 <= self.low < self.high < math.inf:
            raise Wrong(
                f"{self.name}: an axis goes from a low to a higher value, got {self.low!r} to {self.high!r}",
                argument="high",
            )
        if self.n != int(self.n) or not 2 <= self.n <= MOST_VALUES:
            raise Wrong(f"{self.name}: an axis has 2 to {MOST_VALUES} values, got {self.n!r}", argument="n")

    def __str__(self) -> str:
        return f"{self.name}={self.low!r}..{self.high!r}..{self.n}"

    def spaced(self, scale: str) -> Array:
        """The values by equal factors ("log"), by equal factors of 1 - value ("memory"), or evenly."""
        low, high, n = self.low, self.high, int(self.n)
        if scale == "log":
            if low <= 0:
                raise Wrong(f"{self.name} must be positive on an axis by equal factors, got {low!r}")
            return np.geomspace(low, high, n)
        if scale == "memory":
            if high >= 1:
                raise Wrong(f"{self.name} must be in [0, 1), got {high!r}")
            return 1 - np.geomspace(1 - low, 1 - high, n)
        return np.linspace(low, high, n)


@dataclass(frozen=True, eq=False)
class Ticks:
    """An axis on an optimizer: its values, and how they are spaced."""

    name: str
    scale: str
    values: Array
    parameter: Parameter | None  # None for the batch size

    @classmethod
    def of(cls, axis: Axis, optimizer: Optimizer, argument: str) -> Ticks:
        """An axis from what a user gave as an argument, refused by name."""
        known = parameters(optimizer)
        if axis.name == "batch_size":
            return cls(axis.name, "log", axis.spaced("log"), None)
        if axis.name not in known:
            raise Wrong(
                f"{optimizer} has no parameter {axis.name!r}; an axis is batch_size or {', '.join(known)}", argument
            )
        kind = known[axis.name].kind
        values = axis.spaced(kind.scale)
        values = np.unique(np.rint(values)) if kind.integer else values
        if not np.all(kind.valid(values)):
            raise Wrong(
                f"{axis.name} must be {kind.allowed}, and the axis has {values[~kind.valid(values)][0]:g}", argument
            )
        return cls(axis.name, kind.scale, values, known[axis.name])

    @property
    def structural(self) -> bool:
        """Whether optimizers with different values of it have steps of a different structure."""
        return self.parameter is not None and self.parameter.kind.structural

    def plain(self, value: float) -> int | float:
        """A value as the optimizer takes it."""
        return int(value) if self.parameter is not None and self.parameter.kind.integer else float(value)

    def between(self, a: Array, b: Array) -> Array:
        """The values halfway, as the axis is spaced."""
        if self.scale == "log":
            return np.sqrt(a * b)
        return 1 - np.sqrt((1 - a) * (1 - b)) if self.scale == "memory" else (a + b) / 2

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "scale": self.scale, "values": numbers(self.values)}
