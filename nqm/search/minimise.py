"""Minimisation of a smooth function with ripples, many points at a time.

The loss after T steps of heavy ball is smooth in its settings but for ripples: the top few modes are caught somewhere
in their last swing, which moves the loss by some parts in a thousand. Gradients follow the ripples and stop in the first.
So each round fits a quadratic to a cloud of points by least squares, moves to its minimum, and shapes the next cloud by
its curvature, long in a flat valley and short across; the cloud shrinks until the answer is as sharp as asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ..moments import Array

Objective = Callable[[Array], Array]  # points (m, p) -> values (m,)


def minimise(
    f: Objective, starts: list[Array], radius: float, low: Array, high: Array, sharp: float = 0.01, rounds: int = 24
) -> list[tuple[Array, float]]:
    """The best points seen and their values, best first, from clouds of size ``radius`` down to ``sharp`` around each start.

    The searches go side by side, so that they share the cost of a call of f and of the fits.
    """
    center = np.clip(np.array(starts), low, high)  # (searches, p), as is all that follows
    count, p = center.shape
    best, least = center, np.full(count, np.inf)
    axes, size, going = np.tile(np.eye(p), (count, 1, 1)), np.full(count, radius), np.arange(count)
    found: list[tuple[Array, float]] = []
    for _ in range(rounds):
        X = np.clip(center[:, None] + size[:, None, None] * (_design(p) @ axes), low, high)
        values = f(X.reshape(-1, p)).reshape(X.shape[:2])
        i = values.argmin(1)
        now = values[going, i]
        moved_on = now < least
        best, least = np.where(moved_on[:, None], X[going, i], best), np.minimum(now, least)
        model, shape, bowl = fit_quadratic(X, values, best, size)
        step = model - best
        jump = np.abs(np.linalg.solve(axes, step[..., None])).max((1, 2)) / size
        center = np.clip(best + step * np.minimum(1.0, 2.0 / np.maximum(jump, 1e-12))[:, None], low, high)
        axes = np.where(bowl[:, None, None], shape, axes)
        size = size * np.where(bowl, np.where((jump < 1) | ~moved_on, 0.35, 1.0), np.where(moved_on, 0.6, 0.35))
        done = bowl & (size < sharp)
        if done.any():
            found += zip(best[done], least[done].tolist(), strict=True)
            center, best, least, axes, size = (a[~done] for a in (center, best, least, axes, size))
            going = np.arange(len(center))
            if not len(going):
                break
    found += zip(best, least.tolist(), strict=True)
    return sorted(found, key=lambda result: result[1])


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


def fit_quadratic(X: Array, values: Array, best: Array, radius: Array) -> tuple[Array, Array, Array]:
    """Minima of least-squares quadratics, axes that make their curvature round, and whether there is a minimum at all.

    Of stacks of clouds: X is (stack, points, p), values (stack, points), best (stack, p) and radius (stack). Where a
    quadratic has no minimum, that is ``best`` and the axes are those of a ball.
    """
    p = X.shape[2]
    Z = (X - best[:, None]) / radius[:, None, None]
    rise = values - values.min(1, keepdims=True)
    half = rise.shape[1] // 2
    middle = np.maximum(np.partition(rise, half)[:, half, None], 1e-12)
    weight = 1 / (1 + (rise / middle) ** 2)  # far walls are not quadratic
    i, j = _pairs(p)
    terms = np.concatenate([np.ones((*rise.shape, 1)), Z, Z[..., i] * Z[..., j]], axis=-1)
    weighted = (weight[..., None] * terms).transpose(0, 2, 1)
    normal = weighted @ terms
    # Points pressed against a bound leave it singular.
    normal += 1e-9 * weight.sum(1)[:, None, None] * np.eye(terms.shape[2])
    coef = np.linalg.solve(normal, weighted @ np.minimum(rise, 50.0)[..., None])[..., 0]
    H = np.zeros((len(X), p, p))
    H[:, i, j] = coef[:, 1 + p :]
    size, axes = np.linalg.eigh(H + H.transpose(0, 2, 1))
    top = size[:, -1:]
    bowl = top[:, 0] > 0
    bent = np.where(bowl[:, None], np.maximum(size, 1e-3 * top), 1.0)
    back = axes.transpose(0, 2, 1)
    step = -(axes @ (back @ coef[:, 1 : 1 + p, None] / bent[..., None]))[..., 0]
    shape = axes * np.minimum(np.sqrt(np.where(bowl[:, None], top, 1.0) / bent), 12.0)[:, None] @ back
    return best + np.where(bowl[:, None], radius[:, None] * step, 0.0), shape, bowl
