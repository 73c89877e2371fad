"""The second stage of a search: where to try next, given the trials so far.

Near its minimum the logarithm of the steps is nearly a quadratic of the settings, each on its own scale. A quadratic that is
fitted to all trials nearby averages over the luck of each of them, which the best trial alone does not. So a round of the
second stage lies around the minimum of that fit, and further from it where the fit is flatter. Where steps hardly change, as
along a line of equal lr / (1 - momentum), the luck of a few trials would otherwise decide where a search contracts to.

In letters: u is a setting as a fraction of its range, y the logarithm of steps, m and C the mean and the covariance of the
best trials, x = C^(-1/2) (u - m), and y ~ a + g.x + x.Hx / 2 with x weighted by exp(-x.x / 8). A round has the covariance
(2 rise / s) H^-1 in x, for s settings, so that its trials take exp(rise) times the steps of the minimum on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, islice

import numpy as np

from ..sampling.sobol import sobol
from ..types import Array


@dataclass(frozen=True)
class RefinementSettings:
    """Numbers that steer the second stage of a search; stored trials depend on them, so a change needs new stores.

    They were chosen on the exact engine with SGD, heavy ball and averaged heavy ball on four spectra, with seeds that scatter
    steps by 10%; ``python -m benchmarks.lab_search`` measures what they give. The three of a round's width were chosen with heavy
    ball on three of these spectra.
    """

    spread: float = 0.12
    """Standard deviation of a round, as a fraction of each range, while too few trials have arrived for a fit."""
    least_spread: float = 0.02
    """This, squared, is added to the variance of the best trials, so that a fit always has a slope to find."""
    rise: float = 0.15
    """How much the logarithm of steps rises from the minimum of a fit to the trials of the next round, on average."""
    narrowest: float = 0.3
    """A round is at least this wide in every direction, in standard deviations of the best trials."""
    widest: float = 2.0
    """A round is at most this wide in every direction, in standard deviations of the best trials."""
    reach: float = 1.5
    """The minimum of a fit is trusted this many standard deviations of the best trials from their mean, and no further."""
    near: float = 3.0
    """Trials further than this many standard deviations from the mean are not part of a fit."""
    late: float = 0.1
    """A trial that was stopped or diverged counts in a fit as if it had taken the limit's steps times exp(this)."""
    late_weight: float = 0.3
    """The weight of such a trial in a fit: its steps are not known, so it counts less than one that arrived."""
    ridge: float = 0.2
    """Strength with which a fit is held to a round bowl, in trials; a fit of few trials would otherwise have no minimum."""
    bowl: float = 0.2
    """Curvature of that bowl: the rise of log steps, one standard deviation from the minimum, is half of this."""
    flattest: float = 0.05
    """Curvatures of a fit below this count as this, so that a saddle or a plain has a minimum."""


REFINE = RefinementSettings()


def elite(points: Array, logs: Array) -> Array:
    """Numbers of the best trials that arrived, the best first: two more than twice the number of settings."""
    order = np.argsort(logs, kind="stable")
    return order[np.isfinite(logs[order])][: 2 * points.shape[1] + 2]


def valley(points: Array, logs: Array, limit: float) -> tuple[Array, Array]:
    """Where the minimum of a fit to the trials lies, and the covariance with which to search around it.

    Parameters
    ----------
    points : settings of the trials as fractions of their ranges, (trials, settings).
    logs : logarithm of the steps of each, infinity for a trial that did not arrive.
    limit : logarithm of the steps after which trials are stopped.

    >>> u = np.linspace(0, 1, 21)[:, None]
    >>> centre, _ = valley(u, 5 * (u[:, 0] - 0.37) ** 2, 1.0)
    >>> bool(abs(centre[0] - 0.37) < 0.02)  # trials 0.05 apart; the ridge of the fit moves its minimum a little
    True
    """
    best, size = elite(points, logs), points.shape[1]
    if len(best) < size + 1:
        return points[best[0]], np.eye(size) * REFINE.spread**2
    weights = np.log(len(best) + 0.5) - np.log(np.arange(1, len(best) + 1))
    weights /= weights.sum()
    mean = weights @ points[best]
    apart = points[best] - mean
    covariance = (apart.T * weights) @ apart + np.eye(size) * REFINE.least_spread**2
    root = np.linalg.cholesky(covariance)
    slope, hessian = _quadratic(np.linalg.solve(root, (points - mean).T).T, logs, limit)
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, REFINE.flattest)
    step = -vectors @ ((vectors.T @ slope) / values)
    step *= min(1.0, REFINE.reach / max(float(np.linalg.norm(step)), 1e-12))
    variances = np.clip(2 * REFINE.rise / (size * values), REFINE.narrowest**2, REFINE.widest**2)
    wide = root @ vectors * np.sqrt(variances)
    return mean + root @ step, wide @ wide.T


def _quadratic(x: Array, logs: Array, limit: float) -> tuple[Array, Array]:
    """The slope at the origin and the second derivatives of a quadratic that is fitted to the trials around the origin."""
    near, size = (np.abs(x) < REFINE.near).all(axis=1), x.shape[1]
    pairs = list(combinations_with_replacement(range(size), 2))
    terms = np.stack([np.ones(len(x)), *x.T, *(x[:, i] * x[:, j] * (0.5 if i == j else 1) for i, j in pairs)], axis=1)
    arrived = np.isfinite(logs)
    weights = near * np.where(arrived, 1.0, REFINE.late_weight) * np.exp(-np.sum(x**2, axis=1) / 8)
    y = np.where(arrived, logs, limit + REFINE.late)
    bowl = np.array([0.0] * (size + 1) + [REFINE.bowl if i == j else 0.0 for i, j in pairs])
    held = np.diag([1e-6] + [REFINE.ridge] * (len(bowl) - 1))
    rest = y - y[near].mean() - terms @ bowl
    found = bowl + np.linalg.solve(terms.T @ (weights[:, None] * terms) + held, terms.T @ (weights * rest))
    hessian = np.empty((size, size))
    for (i, j), value in zip(pairs, found[size + 1 :], strict=True):
        hessian[i, j] = hessian[j, i] = value
    return found[1 : size + 1], hessian


def cloud(centre: Array, covariance: Array, count: int, seed: tuple[int, ...]) -> Array:
    """The centre, and quasi-random points of the normal law around it, ``count`` in all."""
    from scipy.special import ndtri

    ranks = np.array(list(islice(sobol(len(centre), seed), count - 1))).reshape(count - 1, len(centre))
    normal = ndtri(np.clip(ranks, 0.02, 0.98))
    return np.concatenate([centre[None], centre + normal @ np.linalg.cholesky(covariance).T])
