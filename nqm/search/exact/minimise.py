"""Minimisation of a smooth function with ripples, many points at a time.

The loss after T steps of heavy ball is smooth in its settings but for ripples: the top few modes are caught somewhere
in their last swing, which moves the loss by some parts in a thousand. Gradients follow the ripples and stop in the first.
So each round fits a quadratic to a cloud of points by least squares, moves to its minimum, and shapes the next cloud by
its curvature, long in a flat valley and short across; the cloud shrinks until the answer is as sharp as asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...types import Array


@dataclass(frozen=True)
class Basin:
    """The lowest point u that a local search has seen, and the value there."""

    u: Array
    value: float

    @property
    def loss(self) -> float:
        """The loss, where values are logs of losses."""
        return math.exp(self.value)


def minimise(
    f: Callable[[Array], Array], starts: list[Array], radius: float, low: Array, high: Array, sharp: float = 0.01
) -> list[Basin]:
    """The best points seen, best first, from clouds of size ``radius`` down to ``sharp`` around each start.

    f takes points (m, p) to values (m,), such as the logs of losses. The searches go side by side, so that they share the
    cost of a call of f and of the fits.
    """
    center = np.clip(np.array(starts), low, high)  # (search, p)
    from .fits import advance  # The first use loads numba.

    count, p = center.shape
    best, least = center.copy(), np.full(count, np.inf)
    axes, size, bowl = np.tile(np.eye(p), (count, 1, 1)), np.full(count, radius), np.empty(count, dtype=bool)
    found: list[Basin] = []
    for _ in range(24):  # rounds at most
        X = np.clip(center[:, None] + size[:, None, None] * (_design(p) @ axes), low, high)
        values = f(X.reshape(-1, p)).reshape(X.shape[:2])
        advance(X, values, middle(values), best, least, center, axes, size, bowl)
        np.clip(center, low, high, out=center)
        done = np.logical_and(bowl, size < sharp)
        if done.any():
            found += map(Basin, best[done], least[done].tolist())
            center, best, least, axes, size, bowl = (a[~done] for a in (center, best, least, axes, size, bowl))
            if not len(center):
                break
    found += map(Basin, best, least.tolist())
    return sorted(found, key=lambda basin: basin.value)


def fit_quadratic(X: Array, values: Array) -> tuple[Array, Array, bool]:
    """Minimum of the least-squares quadratic through values at points (point, p) around 0, axes that make its curvature
    round, and whether it has a minimum at all.
    """
    p = X.shape[1]
    from .fits import fit  # loads numba at first use

    model, shape = np.empty(p), np.empty((p, p))
    bowl = fit(X, values, float(middle(values[None])[0]), np.zeros(p), 1.0, model, shape)
    return model, shape, bowl


def middle(values: Array) -> Array:
    """The median rise over the least of each row."""
    half = values.shape[1] // 2
    return np.partition(values, half, axis=1)[:, half] - values.min(1)


@cache
def _design(p: int) -> Array:
    """The centre, and points spread over the ball by a seeded draw that was chosen once."""
    count = 2 * (1 + p + p * (p + 1) // 2) + 1
    rng = np.random.default_rng(20190714 + p)
    points = rng.normal(size=(count - 1, p))
    lengths = (np.arange(1, count) / (count - 1)) ** (1 / p)
    points *= (lengths / np.linalg.norm(points, axis=1))[:, None]
    points -= points.mean(0)
    return np.vstack([np.zeros(p), points])
