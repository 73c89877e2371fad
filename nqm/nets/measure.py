"""Where gradient signal and gradient noise of a network sit over its curvature: Gauss quadrature by Lanczos.

With g the full gradient and g_j that of example j, C = mean (g_j - g)(g_j - g)':

    signal   f -> g' f(G) g            Lanczos from g
    noise    f -> tr f(G) C            Lanczos from n = N^-1/2 sum_j e_j (g_j - g), e_j standard normal: E n n' = C
    density  f -> tr f(G)              Lanczos from standard normal vectors

The last two are means over random probes, each kept, so that every number has an interval by resampling them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..moments import Array
from .curvature import Curvature
from .lanczos import Krylov, Progress, lanczos
from .network import Network
from .transforms import pulled_back, vmap

ROOM = 2**30  # bytes that the bases of start vectors taken together may take
RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Measure:
    """Nodes and weights over curvature, and the probe that each came from; a mean over probes."""

    h: Array
    weight: Array
    probe: Array

    @classmethod
    def of(cls, found: list[Krylov]) -> Measure:
        parts = [k.measure() for k in found]
        probe = np.repeat(np.arange(len(parts)), [len(h) for h, _ in parts])
        return cls(np.concatenate([h for h, _ in parts]), np.concatenate([w for _, w in parts]), probe)

    @property
    def probes(self) -> int:
        return int(self.probe.max()) + 1

    def each(self, function: Callable[[Array], Array]) -> Array:
        """The integral of a function of h, by each probe."""
        return np.bincount(self.probe, self.weight * function(self.h), self.probes)

    def integral(self, function: Callable[[Array], Array]) -> float:
        """The mean over probes of the integral."""
        return float(self.each(function).mean())

    def to_dict(self) -> dict[str, Any]:
        return {"h": self.h, "weight": self.weight, "probe": self.probe}


@dataclass(frozen=True)
class Estimate:
    """A number with its 90% interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def bootstrap(values: Array, function: Callable[[Array], Any] = lambda mean: mean, seed: int = 0) -> Estimate:
    """A function of the mean over probes, with the interval of Student's t by resampling probes with replacement.

    Few probes make a plain percentile interval too short; its half-widths are stretched by sqrt(n / (n - 1)).
    """
    n = len(values)
    centre = values.mean(0)
    if n < 2:
        return Estimate(float(function(centre)), float("nan"), float("nan"))
    picks = np.random.default_rng([0xB007, seed]).integers(n, size=(RESAMPLES, n))
    means = centre + (values[picks].mean(1) - centre) * np.sqrt(n / (n - 1))
    low, high = np.quantile([float(function(m)) for m in means], [0.05, 0.95])
    return Estimate(float(function(centre)), float(low), float(high))


def noise_vectors(network: Network, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random combinations of centred per-example gradients, as rows, and the gradient; none of the former is formed."""
    theta = network.theta
    e = torch.randn(count, network.examples, generator=generator, dtype=torch.float64).to(theta.dtype)
    e = torch.cat([e, torch.ones_like(e[:1])])  # the last row gives the sum of the gradients themselves
    total, low = torch.zeros(count + 1, network.dim, dtype=theta.dtype), 0
    for batch, _ in network.batches():
        found, pull = pulled_back(lambda t, b=batch: network.losses(t, b), theta)
        high = low + len(found)
        total += vmap(pull, chunk_size=8)(e[:, low:high]).detach()
        low = high
    g = total[-1] / network.examples
    rows = total[:-1] - e[:-1].sum(1, keepdim=True) * g
    return rows / network.examples**0.5, g


def krylov_spaces(
    curvature: Curvature, starts: Tensor, steps: int, *, keep: bool = False, progress: Progress | None = None
) -> list[Krylov]:
    """Lanczos from every row, in groups whose bases fit in memory together; an interrupt keeps what is done."""
    size = (steps + 1) * starts.shape[1] * starts.element_size()
    group = int(max(1, min(len(starts), ROOM // size)))
    found: list[Krylov] = []
    try:
        for rows in starts.split(group):
            found += lanczos(curvature, rows, steps, keep=keep, progress=progress)
    except KeyboardInterrupt:
        if not found:
            raise
    return found
