"""Bounds: put back into their equations, counted in many digits, closed forms."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nqm import SGD, HeavyBall, Nesterov, Preconditioned, Quadratic, Spectrum, steps_to_target
from nqm.problems.bounds import bayes_bound, conjugate_gradient_steps, knee, paper_bound

PAPER = Spectrum.power_law(10_000)


def posterior_loss(spectrum: Spectrum, examples: float) -> float:
    """1/2 sum n h / (1/s + T B h^2 / c)."""
    h, c, s, n = spectrum.h, spectrum.c, spectrum.s, spectrum.count
    return float((n * h / (1 / s + examples * h**2 / c)).sum() / 2)


@given(st.integers(0, 2**32 - 1), st.floats(0.001, 0.99), st.floats(1, 1e6))
def test_bayes_bound_put_back(seed: int, share: float, batch_size: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 20))
    spectrum = Spectrum(10 ** rng.uniform(-4, 1, n), rng.random(n) + 0.01, rng.random(n) + 0.01, rng.integers(1, 9, n))
    target = share * spectrum.initial_loss
    T = bayes_bound(spectrum, target, batch_size)
    # Bisected to 1e-12 of T; the loss changes by no more than that of itself.
    assert posterior_loss(spectrum, T * batch_size) == pytest.approx(target, rel=1e-10)


def test_bayes_bound_of_the_paper() -> None:
    # d / (e^2C - 1) is the integral for the sum: off by 1 / d.
    assert bayes_bound(PAPER, 0.01, 4) == pytest.approx(10_000 / math.expm1(0.02) / 4, rel=1e-4)
    assert bayes_bound(PAPER, 5.0, 4) == 0
    assert bayes_bound(PAPER, 0.01, 64) * 64 == pytest.approx(bayes_bound(PAPER, 0.01, 1), rel=1e-11)


def test_modes_without_noise_or_start() -> None:
    quiet = Spectrum([1.0, 0.5], c=[0.0, 1.0], s=[3.0, 1.0])  # one gradient shows the first mode exactly
    T = bayes_bound(quiet, 0.1, 1)
    assert pytest.approx(0.1, rel=1e-10) == 0.5 / (1 + T * 0.25) / 2
    still = Spectrum([1.0, 0.5], c=[1.0, 1.0], s=[0.0, 1.0])
    assert bayes_bound(still, 0.1, 1) == pytest.approx(T, rel=1e-10)
    assert bayes_bound(Spectrum([1.0], c=[0.0]), 0.1, 8) <= 1 / 8 + 1e-12


@pytest.mark.parametrize("batch_size", [4, 64, 1024])
@pytest.mark.parametrize("target", [3.0, 0.3])
def test_no_method_beats_the_bayes_bound(batch_size: float, target: float) -> None:
    problem, bound = Quadratic(PAPER), bayes_bound(PAPER, target, batch_size)
    for row in (SGD(0.2), SGD(1.0), HeavyBall(0.1, 0.9), Preconditioned(SGD(0.3), 0.5), Nesterov(0.3, 0.5)):
        steps = steps_to_target(problem, row, batch_size, target).steps
        assert steps is None or steps >= bound


def test_the_papers_bound_is_none() -> None:
    """SGD at target 3, B = 4 needs 15 steps where d / (2 C B) says 417: the start is prior information."""
    assert paper_bound(PAPER, 3.0, 4) == pytest.approx(10_000 / (2 * 3 * 4), rel=1e-12)
    assert round(paper_bound(PAPER, 3.0, 4)) == 417
    best = min(steps_to_target(Quadratic(PAPER), SGD(lr), 4, 3.0).steps or 10**9 for lr in np.linspace(0.2, 0.9, 15))
    assert best == 15
    assert bayes_bound(PAPER, 3.0, 4) < best


def conjugate_gradients(spectrum: Spectrum, target: float, power: float, digits: int = 120) -> int:
    """Hestenes and Stiefel's method for H theta = 0 with preconditioner H^power, word by word, in many digits.

    Its rounding errors grow more than tenfold a step: in 60 digits the paper's instance takes 45 steps, from 100 on 44.
    """
    with mpmath.workdps(digits):
        h = [mpmath.mpf(v) for v in spectrum.h]
        n = [mpmath.mpf(v) for v in spectrum.count]
        gain = [v ** -mpmath.mpf(power) for v in h]
        theta = [mpmath.sqrt(mpmath.mpf(v)) for v in spectrum.s]

        def dot(a: list[Any], b: list[Any]) -> Any:
            return mpmath.fsum(w * x * y for w, x, y in zip(n, a, b, strict=True))

        r = [-k * x for k, x in zip(h, theta, strict=True)]
        z = [g * x for g, x in zip(gain, r, strict=True)]
        p, rz = list(z), dot(r, z)
        for t in range(1000):
            if dot(theta, [k * x for k, x in zip(h, theta, strict=True)]) / 2 <= target:
                return t
            Hp = [k * x for k, x in zip(h, p, strict=True)]
            alpha = rz / dot(p, Hp)
            theta = [x + alpha * y for x, y in zip(theta, p, strict=True)]
            r = [x - alpha * y for x, y in zip(r, Hp, strict=True)]
            z = [g * x for g, x in zip(gain, r, strict=True)]
            rz, old = dot(r, z), rz
            p = [x + rz / old * y for x, y in zip(z, p, strict=True)]
    raise AssertionError("conjugate gradients did not get there")


@pytest.mark.parametrize(("power", "steps"), [(0.0, 44), (0.25, 25), (0.5, 13), (0.75, 5)])
def test_conjugate_gradients_in_exact_arithmetic(power: float, steps: int) -> None:
    assert conjugate_gradient_steps(PAPER, 0.01, power) == steps
    assert conjugate_gradients(PAPER.compress(1e-9), 0.01, power) == steps


@pytest.mark.parametrize("power", [0.0, 0.3, 0.75])
def test_conjugate_gradients_on_small_spectra(power: float) -> None:
    rng = np.random.default_rng(5)
    for n in (1, 2, 9, 40):
        spectrum = Spectrum(10 ** rng.uniform(-3, 0, n), s=rng.random(n) + 0.1, count=rng.integers(1, 4, n))
        for share in (0.3, 1e-3, 1e-9):
            target = share * spectrum.initial_loss
            assert conjugate_gradient_steps(spectrum, target, power) == conjugate_gradients(spectrum, target, power)


def test_conjugate_gradients_end() -> None:
    assert conjugate_gradient_steps(PAPER, 5.0) == 0
    assert conjugate_gradient_steps(Spectrum([1.0, 2.0]), 1e-300) == 2  # two curvatures; what is left is rounding
    assert conjugate_gradient_steps(Spectrum([3.0, 1.0, 1.0, 2.0], s=[1, 1, 1, 0]), 1e-300) == 2
    assert conjugate_gradient_steps(PAPER, 0.01, limit=10) is None


def test_no_noiseless_method_beats_conjugate_gradients() -> None:
    problem = Quadratic(PAPER)
    for row in (SGD(1.9), HeavyBall(3.2, 0.9), HeavyBall(3.7, 0.95), Nesterov(1.0, 0.95)):
        steps = steps_to_target(problem, row, math.inf, 0.01, max_steps=10**6).steps
        assert steps is not None
        assert steps >= 44


@pytest.mark.parametrize(("power", "batch"), [(0.0, 489), (0.25, 1828), (0.5, 9927), (0.75, 66629)])
def test_knee(power: float, batch: int) -> None:
    assert round(knee(PAPER, 0.01, power)) == batch
    h = [mpmath.mpf(1) / i for i in range(1, 10_001)]
    trace = mpmath.fsum(x ** (1 - mpmath.mpf(power)) for x in h)  # tr(P^-1 C) with C = H; the largest h / P is 1
    assert knee(PAPER, 0.01, power) == pytest.approx(float(trace / (2 * mpmath.mpf("0.01"))), rel=1e-12)


def test_rounding_delays_conjugate_gradients_as_the_docstring_says() -> None:
    """The textbook iteration, without reorthogonalisation."""

    def plain(power: float) -> int:
        h = 1 / np.arange(1.0, 10_001)
        k = h ** (1 - power)
        z = np.sqrt(h / k)
        r = -k * z
        p, steps = r.copy(), 0
        while z @ (k * z) / 2 > 0.01:
            alpha = (r @ r) / (p @ (k * p))
            z, old = z + alpha * p, r @ r
            r = r - alpha * k * p
            p, steps = r + (r @ r) / old * p, steps + 1
        return steps

    counts = [plain(power) for power in (0.0, 0.25, 0.5, 0.75)]
    assert counts == [57, 27, 13, 5]
    assert "the first two of these take 57 and 27 steps" in (conjugate_gradient_steps.__doc__ or "")
