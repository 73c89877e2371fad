"""Clouds find the minimum of bowls, of bent valleys and of bowls with ripples, inside a box, from several starts at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nqm.search.exact.minimise import fit_quadratic, minimise
from nqm.types import Array

LOW, HIGH = np.full(2, -10.0), np.full(2, 10.0)


def bowl(U: Array) -> Array:
    return (U[:, 0] - 1.5) ** 2 + 0.2 * (U[:, 1] + 2) ** 2 + 0.3 * (U[:, 0] - 1.5) * (U[:, 1] + 2)


def valley(U: Array) -> Array:
    return 5 * (U[:, 1] - 0.3 * U[:, 0] ** 2) ** 2 + 0.5 * (U[:, 0] - 2) ** 2


def rippled(U: Array) -> Array:
    return bowl(U) + 0.002 * np.sin(40 * U[:, 0]) * np.sin(35 * U[:, 1])


@pytest.mark.parametrize(
    ("f", "at", "close"), [(bowl, (1.5, -2.0), 1e-6), (valley, (2.0, 1.2), 1e-3), (rippled, (1.5, -2.0), 0.15)]
)
def test_the_minimum_of_a_valley(f: object, at: tuple[float, float], close: float) -> None:
    found = minimise(f, [np.zeros(2)], 2.0, LOW, HIGH, sharp=1e-3)[0]  # type: ignore[arg-type]
    assert np.abs(found.u - at).max() < close
    assert found.value == f(found.u[None])[0]  # type: ignore[operator]


def test_searches_side_by_side_are_searches_alone() -> None:
    starts = [np.array([-8.0, -8.0]), np.array([0.0, 3.0]), np.array([9.0, 9.5]), np.array([-3.0, 4.0])]
    together = minimise(rippled, starts, 1.0, LOW, HIGH, sharp=0.01)
    alone = sorted(
        (minimise(rippled, [u], 1.0, LOW, HIGH, sharp=0.01)[0] for u in starts), key=lambda found: found.value
    )
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.u, other.u, atol=1e-9)
        assert one.value == pytest.approx(other.value, abs=1e-12)


def test_calls_are_shared() -> None:
    sizes = []

    def f(U: Array) -> Array:
        sizes.append(len(U))
        return bowl(U)

    minimise(f, [np.zeros(2), np.ones(2), -np.ones(2)], 1.0, LOW, HIGH)
    assert sizes[0] == 39  # 13 points each
    assert len(sizes) < 12


def test_a_minimum_at_the_bound() -> None:
    u = minimise(bowl, [np.full(2, 5.0)], 1.0, np.array([2.0, 0.0]), HIGH, sharp=1e-3)[0].u
    np.testing.assert_allclose(u, [2.0, 0.0], atol=1e-9)


def test_a_slope_is_followed_to_the_bound() -> None:
    u = minimise(lambda U: U @ np.array([1.0, -2.0]), [np.zeros(2)], 1.0, LOW, HIGH)[0].u
    assert u[0] < -5
    assert u[1] > 5


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_a_quadratic_is_fitted_exactly(seed: int, p: int) -> None:
    rng = np.random.default_rng(seed)
    R = rng.standard_normal((p, p))
    H, center = R @ R.T + 0.3 * np.eye(p), rng.standard_normal(p)
    X = rng.standard_normal((4 * (p + 1) ** 2, p))
    values = np.einsum("mi,ij,mj->m", X - center, H, X - center)
    values *= 20 / values.max()  # walls beyond 50 count as flat
    model, shape, has_minimum = fit_quadratic(X, values)
    assert has_minimum
    np.testing.assert_allclose(model, center, atol=1e-4)
    if np.linalg.cond(H) < 100:  # a cloud drawn out along these axes meets a round bowl
        size = np.linalg.eigvalsh(shape.T @ H @ shape)
        assert size[-1] / size[0] < 1.01


def test_a_dome_has_no_minimum() -> None:
    X = np.random.default_rng(0).standard_normal((20, 2))
    model, shape, has_minimum = fit_quadratic(X, -(X**2).sum(1))
    assert not has_minimum
    np.testing.assert_array_equal(model, 0)
    np.testing.assert_array_equal(shape, np.eye(2))
