"""Minimisation of a smooth function with ripples, many points at a time.

The loss after T steps of heavy ball is smooth in its settings but for ripples: the top few modes are caught somewhere
in their last swing, which moves the loss by some parts in a thousand. Gradients follow the ripples and stop in the first.
So each round fits a quadratic to a cloud of points by least squares, moves to its minimum, and shapes the next cloud by
its curvature, long in a flat valley and short across; the cloud shrinks until the answer is as sharp as asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache

import numpy as np

from ..moments import Array

Objective = Callable[[Array], Array]  # points (m, p) -> values (m,)


def minimise(
    f: Objective, starts: list[Array], radius: float, low: Array, high: Array, sharp: float = 0.01, rounds: int = 24
) -> list[tuple[Array, float]]:
    """The best points seen and their values, best first, from clouds of size ``radius`` down to ``sharp`` around each start.

    The searches go side by side, so that their clouds share the cost of a call of f.
    """
    searches = [_search(u, radius, low, high, sharp, rounds) for u in starts]
    clouds = [next(search) for search in searches]
    found: list[tuple[Array, float]] = []
    while searches:
        values = np.split(f(np.vstack(clouds)), np.cumsum([len(X) for X in clouds])[:-1])
        going, clouds = [], []
        for search, part in zip(searches, values, strict=True):
            try:
                clouds.append(search.send(part))
                going.append(search)
            except StopIteration as end:
                found.append(end.value)
        searches = going
    return sorted(found, key=lambda result: result[1])


def _search(
    start: Array, radius: float, low: Array, high: Array, sharp: float, rounds: int
) -> Generator[Array, Array, tuple[Array, float]]:
    """One search: gives clouds of points, is sent their values, returns the best point and its value."""
    p = len(start)
    center, axes = np.clip(start, low, high), np.eye(p)
    best, least = center, np.inf
    for _ in range(rounds):
        X = np.clip(center + radius * _design(p) @ axes.T, low, high)
        values = yield X
        i = int(np.argmin(values))
        moved_on = values[i] < least
        if moved_on:
            best, least = X[i], float(values[i])
        model, axes_next = fit_quadratic(X, values, best, radius)
        if model is None:
            center, radius = best, radius * (0.6 if moved_on else 0.35)
            continue
        jump = np.linalg.solve(axes, model - best) / radius
        longest = float(np.abs(jump).max())
        center = np.clip(best + (model - best) * min(1.0, 2.0 / max(longest, 1e-12)), low, high)
        axes = axes_next
        if longest < 1.0 or not moved_on:
            radius *= 0.35
        if radius < sharp:
            break
    return best, least


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


@cache
def _pairs(p: int) -> tuple[Array, Array]:
    return np.triu_indices(p)


def fit_quadratic(X: Array, values: Array, best: Array, radius: float) -> tuple[Array | None, Array]:
    """Minimum of the least-squares quadratic, and axes that make its curvature round; no minimum if it has none."""
    p = X.shape[1]
    Z = (X - best) / radius
    rise = values - values.min()
    middle = max(float(np.partition(rise, len(rise) // 2)[len(rise) // 2]), 1e-12)
    weight = 1 / (1 + (rise / middle) ** 2)  # far walls are not quadratic
    i, j = _pairs(p)
    terms = np.ones((len(Z), 1 + p + len(i)))
    terms[:, 1 : 1 + p], terms[:, 1 + p :] = Z, Z[:, i] * Z[:, j]
    weighted = (weight[:, None] * terms).T
    normal = weighted @ terms
    normal.flat[:: len(normal) + 1] += 1e-9 * weight.sum()  # points pressed against a bound leave it singular
    coef = np.linalg.solve(normal, weighted @ np.minimum(rise, 50.0))
    H = np.zeros((p, p))
    H[i, j] = coef[1 + p :]
    size, axes = np.linalg.eigh(H + H.T)
    top = float(size[-1]) if p else 0.0
    if top <= 0:
        return None, np.eye(p)
    bent = np.maximum(size, 1e-3 * top)
    step = -axes @ ((axes.T @ coef[1 : 1 + p]) / bent)
    shape = axes * np.minimum(np.sqrt(top / bent), 12.0) @ axes.T
    return best + radius * step, shape
