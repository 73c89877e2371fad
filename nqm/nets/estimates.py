"""Measures over curvature as nodes and weights, and numbers with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..types import Array, Wrong

BOOTSTRAPS = 1000  # number of resamples of the probes for an interval
LEVELS = (0.05, 0.95)  # quantiles at the two ends of a 90% interval


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure over curvature as a mean over probes: nodes h, their weights, and the number of the probe of each node."""

    h: Array
    weight: Array
    probe: Array

    def __post_init__(self) -> None:
        sizes = [np.size(column) for column in (self.h, self.weight, self.probe)]
        if not sizes[0] or len(set(sizes)) > 1:
            told = "{} nodes with {} weights of {} probes".format(*sizes)
            raise Wrong(f"a measure needs nodes, and as many weights, each with its probe; it has {told}")

    @classmethod
    def of(cls, parts: Sequence[tuple[Array, Array]]) -> Measure:
        """The measure with these nodes and weights of each probe."""
        probe = np.repeat(np.arange(len(parts)), [len(h) for h, _ in parts])
        return cls(np.concatenate([h for h, _ in parts]), np.concatenate([w for _, w in parts]), probe)

    @property
    def probes(self) -> int:
        """The number of probes."""
        return int(self.probe.max()) + 1

    def each(self, function: Callable[[Array], Array]) -> Array:
        """The integral of a function of h, for each probe."""
        return np.bincount(self.probe, self.weight * function(self.h), self.probes)

    def integral(self, function: Callable[[Array], Array]) -> float:
        """The integral of a function of h, as the mean over probes."""
        return float(self.each(function).mean())


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, which contains the true value with probability ``coverage``.

    ``steps`` are the first and last step of the training over which it was measured, if it was measured during a training.
    """

    value: float
    low: float
    high: float
    coverage: float = 0.9
    steps: tuple[int, int] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        over = "" if self.steps is None else ", steps {:,} to {:,}".format(*self.steps)
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g}{over})"


def bootstrap(
    values: Array, function: Callable[[Array], Array | float] = float, seed: int = 0, resamples: int = BOOTSTRAPS
) -> Estimate:
    """A function of the mean over probes, with an interval from resampling the n probes with replacement.

    With few probes a plain percentile interval is too short, so its half-widths are stretched by sqrt(n / (n - 1)).
    """
    n = len(values)
    centre = values.mean(0)
    if n < 2:
        return Estimate(float(function(centre)), float("nan"), float("nan"))
    picks = np.random.default_rng([0xB007, seed]).integers(n, size=(resamples, n))
    means = centre + (values[picks].mean(1) - centre) * np.sqrt(n / (n - 1))
    low, high = np.nanquantile([float(function(m)) for m in means], LEVELS)
    return Estimate(float(function(centre)), float(low), float(high))
