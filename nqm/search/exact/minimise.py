"""Minimisation of a smooth function with ripples, many points at a time.

The loss after T steps of heavy ball is smooth in its settings except for ripples. They come from the few modes of largest
curvature, which are still swinging at step T, and they change the loss by some parts in a thousand. A gradient method stops
in the first ripple. Instead, each round fits a quadratic to a cloud of points by least squares, moves to its minimum, and
shapes the next cloud by its curvature: long along a flat valley and short across it. The clouds shrink to the size asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...types import Array
from .settings import SETTINGS


@dataclass(frozen=True)
class Basin:
    """The point u of least value that a local search has seen, and its value."""

    u: Array
    value: float

    @property
    def loss(self) -> float:
        """The loss, where values are logs of losses."""
        return math.exp(self.value)


def minimise(
    f: Callable[[Array], Array], starts: list[Array], radius: float, low: Array, high: Array, sharp: float | None = None
) -> list[Basin]:
    """The best point that a local search from each start has seen, best first.

    The clouds shrink from ``radius`` to ``sharp``. f maps points (m, p) to values (m,), such as the logs of losses. All
    searches advance together, so that a round calls f once.
    """
    center = np.clip(np.array(starts), low, high)  # (search, p)
    from .fits import advance  # numba is loaded here, at the first use.

    count, p = center.shape
    best, least = center.copy(), np.full(count, np.inf)
    axes, size, bowl = np.tile(np.eye(p), (count, 1, 1)), np.full(count, radius), np.empty(count, dtype=bool)
    found: list[Basin] = []
    for _ in range(SETTINGS.rounds):
        X = np.clip(center[:, None] + size[:, None, None] * (_design(p, SETTINGS.points_per_term) @ axes), low, high)
        values = f(X.reshape(-1, p)).reshape(X.shape[:2])
        advance(X, values, middle(values), best, least, center, axes, size, bowl, SETTINGS.fit)
        np.clip(center, low, high, out=center)
        done = np.logical_and(bowl, size < (sharp or SETTINGS.sharp))
        if done.any():
            found += map(Basin, best[done], least[done].tolist())
            center, best, least, axes, size, bowl = (a[~done] for a in (center, best, least, axes, size, bowl))
            if not len(center):
                break
    found += map(Basin, best, least.tolist())
    return sorted(found, key=lambda basin: basin.value)


def fit_quadratic(X: Array, values: Array) -> tuple[Array, Array, bool]:
    """Minimum of the least-squares quadratic through values at points X around 0, of shape (point, p); the axes in which
    its curvature is the same in all directions; and whether it has a minimum at all.
    """
    from .fits import fit  # numba is loaded here, at the first use.

    bowl, minimum, axes = fit(X, values, float(middle(values[None])[0]), 1.0, SETTINGS.fit)
    return minimum, axes, bowl


def middle(values: Array) -> Array:
    """The median of each row, less its minimum."""
    half = values.shape[1] // 2
    return np.partition(values, half, axis=1)[:, half] - values.min(1)


@cache
def _design(p: int, points_per_term: int) -> Array:
    """The centre of the unit ball and random points spread over the ball, the same in every call."""
    count = points_per_term * (1 + p + p * (p + 1) // 2) + 1
    rng = np.random.default_rng(20190714 + p)
    points = rng.normal(size=(count - 1, p))
    lengths = (np.arange(1, count) / (count - 1)) ** (1 / p)
    points *= (lengths / np.linalg.norm(points, axis=1))[:, None]
    points -= points.mean(0)
    return np.vstack([np.zeros(p), points])
