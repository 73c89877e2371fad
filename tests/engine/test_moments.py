"""The algebra of moment maps: its laws, its fixed point put back into the equation, its basis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import relative_error

from nqm.engine.kernels import loops
from nqm.engine.moments import MomentMap
from nqm.types import Array

ROUNDING = 1e-12  # a few hundred products of numbers of size one

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)


def random_step(seed: int, k: int, modes: int = 3, size: float = 0.3) -> MomentMap:
    """A contraction with noise: ``x <- x + G x + b eps`` with an eigenvalue pattern of its own on each mode."""
    rng = np.random.default_rng(seed)
    G = size * rng.standard_normal((k, k, modes)) - 0.8 * np.eye(k)[..., None]
    return MomentMap.step(G, rng.standard_normal((k, modes)))


def difference(a: MomentMap, b: MomentMap) -> float:
    """Largest difference of two maps, relative to their size."""
    size = max(np.abs(a.A).max(), np.abs(a.Q).max(), 1.0)
    return max(float(np.abs(p - q).max()) for p, q in ((a.A, b.A), (a.drift, b.drift), (a.Q, b.Q))) / size


@given(seeds, sizes)
def test_composition_is_associative(seed: int, k: int) -> None:
    a, b, c = (random_step(seed + i, k) for i in range(3))
    assert difference((a @ b) @ c, a @ (b @ c)) < ROUNDING


@given(seeds, sizes, st.integers(0, 9), st.integers(0, 9))
def test_powers_add_and_multiply(seed: int, k: int, m: int, n: int) -> None:
    step = random_step(seed, k)
    assert difference(step ** (m + n), step**m @ step**n) < ROUNDING
    assert difference(step ** (m * n), (step**m) ** n) < ROUNDING


@given(seeds, sizes)
def test_identity(seed: int, k: int) -> None:
    step = random_step(seed, k)
    one = step**0
    assert difference(one, MomentMap.matrix(np.eye(k)[..., None] + np.zeros(3))) == 0
    assert difference(one @ step, step) == 0
    assert difference(step @ one, step) == 0


@given(seeds, sizes, st.integers(1, 40))
def test_a_power_is_that_many_steps(seed: int, k: int, t: int) -> None:
    step = random_step(seed, k)
    walked = step
    for _ in range(t - 1):
        walked = step @ walked
    assert difference(step**t, walked) < ROUNDING


@given(seeds, sizes)
def test_drift_is_the_diagonal_minus_one(seed: int, k: int) -> None:
    power = random_step(seed, k) ** 5
    assert np.allclose(power.drift, np.einsum("iix->ix", power.A) - 1, rtol=0, atol=1e-14)


def test_drift_keeps_what_one_forgets() -> None:
    x = 1e-20  # 1 - x is 1 in float64
    power = MomentMap.step([[[-x]]], [[1.0]]) ** 10**9
    assert power.drift.item() == pytest.approx(math.expm1(10**9 * math.log1p(-x)), rel=1e-14)
    assert power.Q.item() == pytest.approx(1e9, rel=1e-10)


def test_drift_follows_far_from_one() -> None:
    """Entries of size 3 on the diagonal of a map that only contracts: an error of its own would grow 6 times a square."""
    G = np.array([[-2 - 1.0 + 1e-6, -1.5], [1.0, -0.5]])[..., None]
    power = MomentMap.step(G, [[1.0], [1.0]]) ** 2**20
    assert relative_error(power.drift, np.einsum("iix->ix", power.A) - 1) < 1e-14


@given(seeds, sizes)
def test_fixed_point_put_back(seed: int, k: int) -> None:
    step = random_step(seed, k)
    stable = step.radius() < 0.98
    N = step.fixed_point()
    again = np.einsum("ijx,jkx,lkx->ilx", step.A, N, step.A) + step.Q
    # 1e-10: the solve amplifies rounding by 1 / (1 - radius^2), at most 25 here, times the size of the eigenvectors.
    assert np.abs(again - N)[..., stable].max(initial=0.0) <= 1e-10 * max(1.0, np.abs(N[..., stable]).max(initial=0.0))


@given(seeds, sizes)
def test_fixed_point_is_the_limit(seed: int, k: int) -> None:
    step = random_step(seed, k)
    slow = step.radius() < 0.9
    limit = (step**1024).Q  # 0.9^2048 is 1e-94
    N = step.fixed_point()
    assert np.abs(limit - N)[..., slow].max(initial=0.0) <= 1e-10 * max(1.0, np.abs(N[..., slow]).max(initial=0.0))


def test_fixed_point_for_a_hair_of_curvature() -> None:
    x = 1e-18
    assert MomentMap.step([[[-x]]], [[1.0]]).fixed_point().item() == pytest.approx(1 / (2 * x), rel=1e-15)


def test_radius() -> None:
    A = np.array([[0.5, 1.0], [0.0, -0.9]])
    assert MomentMap.step((A - np.eye(2))[..., None], [[1.0], [1.0]]).radius().item() == pytest.approx(0.9, rel=1e-14)
    assert MomentMap.step([[[math.nan]]], [[1.0]]).radius().item() == math.inf


def test_negative_powers_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        random_step(0, 2) ** -1


def test_louder_scales_the_noise_only() -> None:
    step = random_step(3, 3)
    quiet = step.louder(0.25)
    assert np.array_equal(quiet.A, step.A)
    assert np.array_equal(quiet.Q, step.Q / 4)


def random_badly_scaled(seed: int, k: int) -> Array:
    rng = np.random.default_rng(seed)
    t = 10.0 ** rng.uniform(-8, 8, (k, 4))
    return rng.standard_normal((k, k, 4)) * t[:, None] / t[None]


@given(seeds, st.integers(2, 4))
def test_balance_is_a_similarity_by_powers_of_two(seed: int, k: int) -> None:
    G = random_badly_scaled(seed, k)
    scale = loops().balance(G)
    mantissa, _ = np.frexp(scale)
    assert np.all(mantissa == 0.5)
    balanced = G * scale[None] / scale[:, None]
    assert np.array_equal(balanced * scale[:, None] / scale[None], G)  # nothing was rounded
    assert np.array_equal(np.einsum("iix->ix", balanced), np.einsum("iix->ix", G))


@given(seeds)
def test_balance_makes_the_couplings_alike(seed: int) -> None:
    G = random_badly_scaled(seed, 2)
    scale = loops().balance(G)
    there, back = np.abs(G[0, 1] * scale[1] / scale[0]), np.abs(G[1, 0] * scale[0] / scale[1])
    # A power of two from the binary exponents alone: the square root of their ratio to within a factor of two.
    assert np.all(there <= 4.0 * back * (1 + 1e-12))
    assert np.all(back <= 4.0 * there * (1 + 1e-12))


def test_balance_leaves_a_chain_alone() -> None:
    assert np.array_equal(loops().balance(np.array([[1.0, 0.0], [5.0, 1.0]])[..., None]), np.ones((2, 1)))
