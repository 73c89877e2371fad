"""The second stage: the minimum of a fit, against known valleys, and against the best trial alone."""

from __future__ import annotations

import numpy as np
import pytest

from nqm.lab.refine import REFINE, cloud, elite, valley


def bowl(u: np.ndarray, at: np.ndarray, tilt: float) -> np.ndarray:
    """A quadratic valley that runs obliquely to the axes."""
    x = u - at
    return 3 * np.sum(x**2, axis=1) + tilt * x[:, 0] * x[:, -1] * (u.shape[1] > 1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_minimum_of_a_quadratic_is_found_under_luck(size: int) -> None:
    """Seeded: over 40 searches the fit is nearer to the minimum than the best trial, by more than three standard errors."""
    rng, gains = np.random.default_rng(size), []
    at = np.array([0.4, 0.55, 0.6])[:size]
    for _ in range(40):
        points = at + 0.15 * rng.normal(size=(15 * size, size))
        logs = bowl(points, at, 2.0) + 0.1 * rng.normal(size=len(points))
        limit = logs.min() + np.log(1.5)
        logs = np.where(logs <= limit, logs, np.inf)
        centre, covariance = valley(points, logs, limit)
        least = (REFINE.least_spread * REFINE.narrowest) ** 2
        assert np.all(np.linalg.eigvalsh(covariance) >= least * (1 - 1e-9))
        ends = bowl(np.array([centre, points[np.argmin(logs)]]), at, 2.0)
        gains.append(ends[1] - ends[0])
    assert np.mean(gains) > 3 * np.std(gains) / np.sqrt(len(gains))


def test_a_round_rises_alike_in_all_directions() -> None:
    """In a valley that is nine times steeper across than along, without luck: the standard deviations differ by a factor of three.

    The mean rise of a round is that of the settings, which a round as wide as the best trials does not have.
    """
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 21)] * 2), axis=-1).reshape(-1, 2)
    curvature = np.array([18.0, 2.0])
    logs = ((grid - 0.5) ** 2 @ curvature) / 2
    centre, covariance = valley(grid, logs, 10.0)
    assert centre == pytest.approx([0.5, 0.5], abs=0.01)
    assert np.sqrt(covariance[1, 1] / covariance[0, 0]) == pytest.approx(3, rel=0.35)


def test_a_fit_does_not_run_away() -> None:
    """On a slope without a minimum it goes downhill, no further than it is trusted."""
    points = np.linspace(0.4, 0.6, 12)[:, None]
    centre, covariance = valley(points, -points[:, 0], 0.0)
    best = points[elite(points, -points[:, 0])]
    assert points.mean() < centre[0] <= best.max() + REFINE.reach * np.sqrt(covariance[0, 0])


def test_few_arrivals_are_searched_around_the_best() -> None:
    points = np.array([[0.2, 0.3], [0.8, 0.7], [0.5, 0.5]])
    centre, covariance = valley(points, np.array([np.inf, 3.0, 4.0]), 4.0)
    assert centre.tolist() == [0.8, 0.7]
    assert covariance == pytest.approx(np.eye(2) * REFINE.spread**2)


def test_a_cloud_has_its_centre_and_its_covariance() -> None:
    centre, covariance = np.array([0.5, 0.4]), np.array([[0.04, 0.03], [0.03, 0.09]])
    found = cloud(centre, covariance, 512, (1, 2))
    assert found[0].tolist() == centre.tolist()
    assert found.mean(axis=0) == pytest.approx(centre, abs=0.01)
    assert np.cov(found.T) == pytest.approx(covariance, rel=0.15)
    assert len(cloud(centre, covariance, 1, (1,))) == 1
