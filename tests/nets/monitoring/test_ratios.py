"""Noise and signal from parts, and the interval of their smoothed ratio, against simulation and direct sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm.nets.monitoring.ratios import GradientParts, SmoothedRatio, fieller
from nqm.types import Array, Wrong

MEAN = np.array([1.0, -0.5, 0.25, 0.0])
ROOT = np.diag([2.0, 1.0, 3.0, 0.5]) + 0.3
NOISE, SIGNAL = float((ROOT @ ROOT.T).trace()), float(MEAN @ MEAN)


def parts(rng: np.random.Generator, weights: Array, sizes: Array, count: int) -> list[GradientParts]:
    """Sums over microbatches whose gradients have the mean MEAN and the covariance ROOT ROOT' / size."""
    draws = rng.standard_normal((count, len(sizes), 4)) @ ROOT.T / np.sqrt(sizes)[:, None]
    x = weights[:, None] * (MEAN + draws)
    a = weights.sum(), (weights**2).sum(), (weights**2 / sizes).sum()
    squares, wholes = (x**2).sum((1, 2)), (x.sum(1) ** 2).sum(1)
    return [GradientParts(s, w, *a) for s, w in zip(squares, wholes, strict=True)]


@pytest.mark.parametrize(("weights", "sizes"), [([0.25] * 4, [8] * 4), ([0.5, 0.5], [4, 12]), ([0.25, 0.75], [4, 12])])
def test_estimates_are_unbiased(weights: list[float], sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    found = np.array([p.estimates() for p in parts(rng, np.array(weights), np.array(sizes, float), 20_000)])
    z = (found.mean(0) - [NOISE, SIGNAL]) / (found.std(0) / len(found) ** 0.5)
    assert np.abs(z).max() < 4
    wrong = np.array(
        [
            GradientParts(p.squares, p.whole, p.a1, p.a2, 2 * p.d).estimates()
            for p in parts(rng, np.array(weights), np.array(sizes, float), 20_000)
        ]
    )
    assert abs(wrong[:, 0].mean() - NOISE) / (wrong[:, 0].std() / len(wrong) ** 0.5) > 6


def test_batches_without_replacement() -> None:
    """Against the mean over all ways to draw two disjoint microbatches from six examples."""
    from itertools import permutations

    rows = np.random.default_rng(1).standard_normal((6, 3)) + 0.5
    found = []
    for order in permutations(range(6), 4):
        x = np.stack([rows[list(order[:2])].mean(0), rows[list(order[2:])].mean(0)]) / 2
        found.append(GradientParts((x**2).sum(), (x.sum(0) ** 2).sum(), 1.0, 0.5, 0.25).estimates(6))
    mean = rows.mean(0)
    exact = ((rows - mean) ** 2).sum() / 6, (mean**2).sum()
    np.testing.assert_allclose(np.mean(found, axis=0), exact, rtol=1e-12)


def test_one_part_is_refused() -> None:
    with pytest.raises(Wrong, match="one part alone"):
        GradientParts(1.0, 1.0, 1.0, 1.0, 0.1).estimates()


def test_smoothing_is_the_weighted_ratio() -> None:
    rng, ratio = np.random.default_rng(2), SmoothedRatio(5)
    rows = rng.uniform(1, 2, (30, 2))
    for row in rows:
        ratio.add(*row)
    weights = np.exp(-np.arange(30)[::-1] / 5)
    assert ratio.estimate().value == pytest.approx(weights @ rows[:, 0] / (weights @ rows[:, 1]), rel=1e-12)
    steps = np.diff(rows, axis=0) * weights[1:, None]
    assert np.allclose(ratio.spread, steps.T @ steps / 2)
    other = SmoothedRatio(5)
    other.load_state_dict(ratio.state_dict())
    for both in (ratio, other):
        both.add(1.0, 2.0)
    assert other.estimate() == ratio.estimate()


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(40, 64), (200, 64), (200, 16)])
def test_intervals_hold_the_ratio(count: int, size: int) -> None:
    rng, exact, held, runs = np.random.default_rng(3), NOISE / SIGNAL, 0, 400
    for _ in range(runs):
        ratio = SmoothedRatio(100)
        for p in parts(rng, np.full(4, 0.25), np.full(4, size / 4), count):
            ratio.add(*p.estimates())
        found = ratio.estimate()
        held += found.low <= exact <= found.high
    assert 0.83 < held / runs < 0.97  # 0.9 and twice its standard error, and the skewness of few measurements


def test_a_slow_course_does_not_widen_the_interval() -> None:
    """Noise and signal fall by half; the width is that of their errors, which a plain variance would overstate."""
    rng, ratio = np.random.default_rng(4), SmoothedRatio(1000)
    course = np.linspace(2, 1, 400)
    rows = np.stack([10 * course, course**2], 1) + rng.standard_normal((400, 2)) * 0.01
    for row in rows:
        ratio.add(*row)
    found = ratio.estimate()
    plain = rows @ [1, -found.value]
    assert found.high - found.low < 0.1 * 2 * 1.65 * plain.std() / 400**0.5 / rows[:, 1].mean()


def test_fieller_against_a_scan() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        noise, signal = rng.uniform(0.5, 5), rng.normal(0.5, 1)
        root = rng.normal(size=(2, 2)) * 0.4
        covariance = root @ root.T
        low, high = fieller(noise, signal, covariance, 1.6)
        r = np.concatenate([np.linspace(0, 50, 200_001), [1e6]])
        inside = (noise - r * signal) ** 2 <= 1.6**2 * (
            covariance[0, 0] - 2 * r * covariance[0, 1] + r**2 * covariance[1, 1]
        )
        if math.isinf(high):
            assert inside[-1] or signal <= 0
            continue
        assert not inside[-1]
        if inside.any() and high < 50:
            assert r[inside].min() == pytest.approx(low, abs=3e-4)
            assert r[inside].max() == pytest.approx(high, abs=3e-4)


def test_no_signal_has_no_upper_end() -> None:
    ratio = SmoothedRatio(10)
    assert math.isnan(ratio.estimate().value)
    ratio.add(1.0, -0.2)
    assert ratio.estimate().value == math.inf
    for sign in (1, -1, 1, -1):
        ratio.add(1.0 + 0.01 * sign, 0.2 * sign)
    found = ratio.estimate()
    assert found.high == math.inf
    assert found.low > 0
