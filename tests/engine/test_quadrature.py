"""Gauss rules: exact for the polynomials they promise, and the measures they are made for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nqm.engine.quadrature import Lanczos, compress_block, uniform_rule
from nqm.types import Array


def power_sum(first: int, last: int, centre: Fraction, degree: int) -> Fraction:
    return sum((Fraction(i) - centre) ** degree for i in range(first, last + 1))  # type: ignore[return-value]


@given(st.integers(1, 500), st.integers(1, 300), st.integers(1, 9))
def test_uniform_rule_is_exact(first: int, length: int, nodes: int) -> None:
    last = first + length - 1
    x, w = uniform_rule(first, last, nodes)
    assert len(x) == min(nodes, length)
    assert np.all(w > 0)
    assert np.all((first - 1e-9 <= x) & (x <= last + 1e-9))
    centre = Fraction(first + last, 2)
    for degree in range(2 * len(x)):
        expected = float(power_sum(first, last, centre, degree))
        size = float(np.sum(w * np.abs(x - float(centre)) ** degree)) or 1.0
        # Nodes are eigenvalues, good to a few roundings of the block's width; powers multiply that by the degree.
        assert np.sum(w * (x - float(centre)) ** degree) == pytest.approx(expected, rel=1e-11, abs=1e-11 * size)


@pytest.mark.parametrize("last", [10**6, 10**12, 10**15])
def test_uniform_rule_for_huge_blocks(last: int) -> None:
    first = last // 2
    x, w = uniform_rule(first, last, 12)
    assert w.sum() == pytest.approx(last - first + 1, rel=1e-13)
    # A smooth function over a doubling: sum 1 / i^2 from first to last, 1/(first - 1/2) - 1/(last + 1/2) to O(1 / i^4).
    assert np.sum(w / x**2) == pytest.approx(1 / (first - 0.5) - 1 / (last + 0.5), rel=1e-11)


def measure(seed: int, n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0.5, 1.0, n)), rng.random(n) + 0.05


@given(st.integers(0, 2**32 - 1), st.integers(8, 60), st.integers(1, 6))
def test_gauss_rule_is_exact(seed: int, n: int, nodes: int) -> None:
    h, mass = measure(seed, n)
    lanczos = Lanczos(h, mass, nodes)
    lanczos.rule(max(1, nodes // 2))  # more nodes go on from fewer
    x, w, P = lanczos.rule(nodes)
    assert np.all(w > 0)
    assert np.all((h[0] <= x * (1 + 1e-12)) & (x <= h[-1] * (1 + 1e-12)))
    for degree in range(2 * nodes):
        assert np.sum(w * x**degree) == pytest.approx(np.sum(mass * h**degree), rel=1e-12)
    # Orthonormal at the nodes, and the Lanczos basis at the modes.
    assert np.allclose((P * (w / mass.sum())) @ P.T, np.eye(nodes), atol=1e-10)
    assert np.allclose(lanczos.basis @ lanczos.basis.T, np.eye(nodes), atol=1e-12)


def test_long_rules_stay_orthogonal() -> None:
    h, mass = measure(1, 3000)
    lanczos = Lanczos(h, mass, 60)
    x, w, P = lanczos.rule(60)
    assert np.allclose(lanczos.basis @ lanczos.basis.T, np.eye(60), atol=1e-12)
    assert np.allclose((P * (w / mass.sum())) @ P.T, np.eye(60), atol=1e-9)
    assert np.sum(w * np.cos(90 * x)) == pytest.approx(np.sum(mass * np.cos(90 * h)), abs=1e-12 * mass.sum())


def test_gauss_rule_needs_distinct_curvatures() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        Lanczos(np.ones(5), np.ones(5), 3).rule(3)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-4, 1e-8]))
def test_a_compressed_block_has_the_same_moments(seed: int, tol: float) -> None:
    rng = np.random.default_rng(seed)
    h = np.sort(rng.uniform(0.5, 1.0, 400))[::-1]
    signal, noise, count = h * (1 + 0.3 * np.sin(5 * h)), h**2, np.ones(400)
    x, s, c, n = compress_block(h, signal, noise, count, tol)
    assert len(x) < 200
    assert np.all(s >= 0)
    assert np.all(c >= 0)
    assert np.all(n > 0)
    for short, full in ((s, signal), (c, noise), (n, count)):
        assert short.sum() == pytest.approx(full.sum(), rel=1e-11)
    for decay in (0.1, 1.0, 10.0):
        for short, full in ((s, signal), (c, noise)):
            assert short @ np.exp(-decay * x) == pytest.approx(full @ np.exp(-decay * h), rel=tol)


def test_a_block_of_ties_keeps_its_modes() -> None:
    h = np.full(30, 0.25)
    x, s, c, n = compress_block(h, h.copy(), h.copy(), np.ones(30), 1e-9)
    assert s.sum() == pytest.approx(7.5)
    assert np.all(x == 0.25)
    assert n.sum() == 30
    assert c.sum() == pytest.approx(7.5)


def test_modes_without_mass_are_dropped() -> None:
    h = np.linspace(1.0, 0.5, 40)
    nothing = np.zeros(40)
    x, s, c, _ = compress_block(h, nothing, nothing, np.ones(40), 1e-9)
    assert len(x) == len(s) == len(c) == 0
