"""Statistics of a growing sample: its mean with the standard error, and quantiles of its first members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..types import Array, Wrong

KEPT_LOSSES = 2**23  # most losses of single replicas that are stored for quantiles; later replicas are ignored


@dataclass
class Mean:
    """Mean and standard error of a growing sample, by merging blocks of values (Chan, Golub and LeVeque, 1983)."""

    count: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(()))
    spread: Array = field(default_factory=lambda: np.zeros(()))  # sum of squared distances from the mean

    def add(self, values: Array) -> None:
        """Add values along the last axis to the sample."""
        n = values.shape[-1]
        mean = values.mean(-1)
        apart = mean - self.mean
        total = self.count + n
        self.spread = self.spread + ((values - mean[..., None]) ** 2).sum(-1) + apart**2 * (self.count * n / total)
        self.mean = self.mean + apart * (n / total)
        self.count = total

    @property
    def stderr(self) -> Array:
        """The standard error of the mean; NaN for a sample of one."""
        if self.count < 2:
            return np.full(np.shape(self.mean), np.nan)
        return np.sqrt(self.spread / (self.count - 1) / self.count)


class Quantiles:
    """Quantiles over replicas at each reported step, from as many replicas as `KEPT_LOSSES` has room for."""

    def __init__(self, levels: Sequence[float], times: int) -> None:
        if not isinstance(levels, Sequence) or isinstance(levels, str):
            raise Wrong(f"quantiles must be a list of numbers between 0 and 1, got {levels!r}", argument="quantiles")
        self.levels = sorted({float(level) for level in levels})
        if not all(0 <= level <= 1 for level in self.levels):
            raise Wrong(f"quantiles must lie between 0 and 1, got {list(levels)}", argument="quantiles")
        self._kept: list[Array] = []
        self._room = max(KEPT_LOSSES // max(times, 1), 1)

    def add(self, losses: Array) -> None:
        """Add losses, (times, replicas), to the sample."""
        if self._room > 0:
            self._kept.append(losses[:, : self._room])
            self._room -= losses.shape[1]

    def found(self) -> dict[float, Array]:
        """The quantile of each level, with one loss for each time."""
        table = np.concatenate(self._kept, axis=1)
        return {level: np.quantile(table, level, axis=1) for level in self.levels}
