"""The test that a fit makes of itself, and the intervals and words that come from it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from models import mlp
from scipy import integrate, stats

from nqm import EMA, SGD
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.prediction import SHARPENED_FACTOR
from nqm.nets.fitting.probing import descent_steps, fit
from nqm.nets.fitting.testing import (
    DOUBT,
    FLOOR,
    LIMITLESS,
    PAST_WIDTH,
    TEST_STEPS,
    UNTESTED,
    USUAL,
    WIDTH,
    disturbance,
    half_width,
    interval,
    motion,
)
from nqm.nets.fitting.testing import Tested as Found
from nqm.types import Array, Wrong


@cache
def small() -> Fit:
    return fit(mlp(n=40), steps=10, noise_steps=6, noise_vectors=3, descent=30)


def test_twelve_points_are_compared_and_kept_in_files(tmp_path: Path) -> None:
    found = small().tested
    assert found is not None
    assert len(found.trained) == 4 * len(TEST_STEPS)
    for ending in ("json", "npz"):
        small().save(tmp_path / f"fit.{ending}")
        again = Fit.load(tmp_path / f"fit.{ending}").tested
        assert again is not None
        assert again.spread == found.spread
    assert fit(mlp(n=40), steps=4, noise_vectors=1, noise_steps=2, descent=5, test=False).tested is None


def of_errors(error: Array, signal: Array, noise: Array, stderr: Array | float = 0.0) -> Found:
    """A test with these errors in log loss at these s and d."""
    chance = np.broadcast_to(stderr, error.shape)
    return Found(np.ones_like(error), signal, noise, np.exp(error), np.ones_like(error), chance)


def test_the_spread_is_the_geometric_mean_of_the_posterior() -> None:
    """The same integral over log A and log N by adaptive quadrature, from the sentence in the module."""
    error, signal, noise, chance = np.array(
        [[0.002, -0.05, 0.01], [0.1, 0.3, 1.0], [0.0, 0.2, 0.05], [0.0, 0.02, 0.001]]
    )

    def density(v: float, u: float) -> float:
        A, N = USUAL.signal * math.exp(DOUBT.signal * u), USUAL.noise * math.exp(DOUBT.noise * v)
        scatter = [
            math.sqrt((A * s) ** 2 + (N * d) ** 2 + FLOOR**2 + c**2)
            for s, d, c in zip(signal, noise, chance, strict=True)
        ]
        likelihood = sum(stats.norm.logpdf(e, scale=one) for e, one in zip(error, scatter, strict=True))
        return math.exp(likelihood / 3) * stats.norm.pdf(u) * stats.norm.pdf(v)

    whole, first, second = (
        integrate.dblquad(lambda v, u, g=g: g(u, v) * density(v, u), -7, 7, -7, 7, epsabs=1e-6, epsrel=1e-6)[0]
        for g in (lambda u, v: 1.0, lambda u, v: u, lambda u, v: v)
    )
    found = of_errors(error, signal, noise, chance).spread
    assert found.signal == pytest.approx(USUAL.signal * math.exp(DOUBT.signal * first / whole), rel=1e-3)
    assert found.noise == pytest.approx(USUAL.noise * math.exp(DOUBT.noise * second / whole), rel=1e-3)


def test_the_spread_of_many_errors_is_theirs() -> None:
    """Errors drawn with A = 0.1 and N = 1, far from what networks have in general, give these back: z-scores of 3,000."""
    rng, n = np.random.default_rng(0), 3000
    signal, noise = rng.uniform(0, 2, n), rng.uniform(0, 0.2, n) * (rng.random(n) < 0.5)
    scatter = np.sqrt((0.1 * signal) ** 2 + noise**2 + FLOOR**2)
    found = of_errors(scatter * rng.standard_normal(n), signal, noise).spread
    assert abs(math.log(found.signal / 0.1)) < 4 / math.sqrt(n)
    assert abs(math.log(found.noise)) < 8 / math.sqrt(n)  # half of the errors have noise, and signal beside it
    wider = of_errors(scatter * rng.standard_normal(n), signal / 2, noise).spread
    assert wider.signal > 1.9 * found.signal


def test_chance_of_few_trainings_is_not_an_error_of_the_fit() -> None:
    error, signal, noise = np.full(12, 0.05), np.full(12, 0.1), np.full(12, 0.05)
    sure, chance = of_errors(error, signal, noise).spread, of_errors(error, signal, noise, 0.05).spread
    assert sure.noise > 1.3 * chance.noise
    assert chance.noise < 1.1 * USUAL.noise


def test_learning_rates_at_which_a_training_diverged_say_nothing_of_the_spread() -> None:
    """The second training is at twice the rate of the first; it diverges, or swings beside one that does."""
    steps = np.resize(np.array(TEST_STEPS, float), 12)
    every = of_errors(np.repeat([0.1, 2.0], 6), np.ones(12), np.zeros(12))
    given = replace(every, reach=steps * np.repeat([0.15, 0.6], 6))
    first = replace(of_errors(np.full(6, 0.1), np.ones(6), np.zeros(6)), reach=given.reach[:6])
    trained = given.trained.copy()
    trained[-1] = math.inf
    half = replace(given, trained=trained)
    assert half.diverged == pytest.approx(0.3)
    assert half.spread == first.spread
    assert given.spread.signal > 3 * first.spread.signal
    assert replace(given, trained=np.full(12, math.inf)).spread == LIMITLESS


def test_a_disturbance_is_the_most_noise_and_what_the_loss_came_under_it() -> None:
    """A plain loop over steps."""
    rng = np.random.default_rng(1)
    signal, noise = np.cumprod(rng.uniform(0.8, 1.05, 50)), rng.uniform(0, 0.3, 50)
    most, came, expected = 0.0, 0.0, list[float]()
    for t in range(50):
        share = noise[t] / (signal[t] + noise[t])
        most = max(most, share)
        expected.append(most + came)
        if t < 49:
            came += share * abs(math.log(signal[t + 1] / signal[t]))
    np.testing.assert_allclose(disturbance(signal, noise), expected, rtol=1e-12)


def test_an_average_is_disturbed_as_the_weights_that_it_averages() -> None:
    """The noise of an average is small, while its training goes on under the noise of the weights."""
    given = small()
    inner, mean = (given.predict(one, 4, [5, 40]) for one in (SGD(0.1), EMA(SGD(0.1), 0.99)))
    assert mean.run.noise[-1] < 0.2 * inner.run.noise[-1]
    np.testing.assert_allclose(mean.disturbance, inner.disturbance, rtol=1e-9)


def test_nothing_is_predicted_at_rates_at_which_the_test_diverged() -> None:
    """The last setting of the test, at 0.6 over the largest curvature, is taken to have diverged: 0.3 of the largest stable rate."""
    given = small()
    assert given.tested is not None
    assert given.tested.diverged == math.inf
    trained = given.tested.trained.copy()
    trained[-1] = math.inf
    fit = replace(given, tested=replace(given.tested, trained=trained))
    assert fit.tested is not None
    assert fit.tested.diverged == pytest.approx(0.3)
    top = float(fit.spectrum.h.max())
    refused, predicted = (fit.predict(SGD(rate / top), 8, [5]) for rate in (0.6, 0.5))
    assert not refused.run.outcome.ok
    assert "the learning rate is 0.3 of the largest stable one" in refused.message
    assert predicted.run.outcome.ok
    assert "trainings of that test diverged at 0.3 of the largest stable learning rate" in predicted.message
    assert math.isfinite(predicted.high[-1])


def test_intervals_widen_where_curvature_has_changed_and_past_the_descent() -> None:
    given = small()
    assert given.descent is not None
    assert given.bend is not None
    ahead = given.predict(SGD(0.1), 8, [20])
    sharp = np.where(given.descent.steps > 0, 2.0, 1.0)
    other = replace(given, descent=replace(given.descent, sharpness=sharp, rising=0))
    assert other.bend is not None
    moved = other.bend.sharpening(ahead.loss)
    before = 1 + np.abs(np.log(given.bend.sharpening(ahead.loss)))
    for usual, changed in zip(motion(given, ahead), motion(other, ahead), strict=True):
        np.testing.assert_allclose(changed, usual * (1 + np.log(moved)) / before)
    end = given.descent.reach * float(given.spectrum.h.max())
    far = replace(ahead, reach=np.array([2 * end]))
    low, high = interval(given, far)
    half = math.hypot(float(half_width(given, far)[0]), PAST_WIDTH * math.log(2))
    assert float(np.log(high / low)[0]) == pytest.approx(2 * half)


def test_intervals_allow_for_swings_where_curvature_has_grown_past_what_the_rate_allows() -> None:
    given = small()
    assert given.descent is not None
    sharp = np.where(given.descent.steps > 0, 4.0, 1.0)
    other = replace(given, descent=replace(given.descent, sharpness=sharp, rising=0))
    assert other.bend is not None
    top = float(given.spectrum.h.max())
    for rate in (0.3, 0.7):  # over the edge at a curvature of 6.7 and 2.9 times that at the checkpoint
        ahead = other.predict(SGD(rate / top), 10**6, [1, 40])
        over = rate / 2 * other.bend.sharpening(ahead.loss) > 1
        half = np.hypot(half_width(other, ahead), np.where(over, math.log(SHARPENED_FACTOR), 0.0))
        assert bool(over[-1]) == (rate == 0.7)
        np.testing.assert_allclose(np.log(ahead.high / ahead.loss), half, rtol=1e-9)


def test_intervals_come_from_the_spread() -> None:
    """Half the width is `WIDTH` standard deviations, which the module states, for a fit with a test and for one without."""
    given = small()
    assert given.tested is not None
    ahead = given.predict(SGD(0.1), 8, [0, 5, 20])
    np.testing.assert_allclose(np.log(ahead.high / ahead.loss), half_width(given, ahead), rtol=1e-9)
    np.testing.assert_allclose(np.log(ahead.low / ahead.loss), -half_width(given, ahead), rtol=1e-9)
    (A, N), (signal, noise) = given.tested.spread, motion(given, ahead)
    expected = WIDTH * np.sqrt((A * signal) ** 2 + (N * noise) ** 2 + FLOOR**2)
    np.testing.assert_allclose(half_width(given, ahead), expected, rtol=1e-12)
    untested = replace(given, tested=None).predict(SGD(0.1), 8, [0, 5, 20])
    A, N = UNTESTED
    expected = WIDTH * np.sqrt((A * signal) ** 2 + (N * noise) ** 2 + FLOOR**2)
    np.testing.assert_allclose(np.log(untested.high / untested.loss), expected, rtol=1e-9)
    assert "the fit's own test, up to lr x steps x curvature = 28.8, found predictions off by" in ahead.message
    assert "not tested on this network" in untested.message


def test_an_interval_without_an_upper_end_is_infinite() -> None:
    """A test of which all trainings diverged allows for any loss, and no warning is printed."""
    given = small()
    assert given.tested is not None
    everywhere = np.full_like(given.tested.trained, math.inf)
    reach = 1e3 * given.tested.reach  # so that the rate of the prediction is not refused
    bad = replace(given, tested=replace(given.tested, trained=everywhere, reach=reach))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ahead = bad.predict(SGD(0.1), 8, 200)
    assert math.isinf(ahead.high[-1])
    assert ahead.low[-1] < 1e-100


def test_a_failed_test_claims_nothing() -> None:
    given = small()
    assert given.tested is not None
    bad = replace(given, tested=replace(given.tested, predicted=2 * given.tested.predicted))
    ahead = bad.predict(SGD(0.1), 8, 20)
    assert (ahead.horizon.within_2, ahead.horizon.within_5) == (0, 0)
    assert "which says little" in ahead.message
    assert "off by 100.8% in the median" in ahead.message
    assert ahead.high[-1] > 1.5 * small().predict(SGD(0.1), 8, 20).high[-1]


def test_the_horizon_decides_the_descent() -> None:
    assert descent_steps(4.0, None, None) == 165
    assert descent_steps(4.0, 7, None) == 7
    assert descent_steps(4.0, None, (1000, 0.1)) == 215
    assert descent_steps(4.0, None, (1, 0.1)) == 20
    network = mlp(n=40)
    found = fit(network, steps=4, noise_vectors=1, noise_steps=2, horizon=(1000, 0.1), test=False)
    assert found.descent is not None
    top = float(found.spectrum.h.max())
    assert found.provenance.full_gradients <= math.ceil(1000 * 0.1 * top / 2) + 16
    far = found.predict(SGD(0.1), 8, 10**4)
    assert "times as far as the descent of the fit" in far.message
    assert "times as far" not in found.predict(SGD(0.01), 8, 10).message
    for wrong, sentence in (((0, 0.1), "horizon"), ((10, -1.0), "must be positive and finite, got -1.0")):
        with pytest.raises(Wrong, match=sentence):
            fit(network, horizon=wrong)
    with pytest.raises(Wrong, match="omit descent or horizon"):
        fit(network, horizon=(10, 0.1), descent=5)


def test_the_picture_has_the_interval_as_it_is() -> None:
    """Also where it is so wide that its two ends are not as far from the loss: the band is from ``low`` to ``high``."""
    given = small()
    ahead = given.predict(SGD(0.1), 8, [1, 20])
    wide = replace(ahead, low=ahead.loss / 10, high=ahead.loss * 10)
    (band,) = wide.plot().axes[0].collections
    drawn = band.get_paths()[0].vertices[:, 1]
    assert drawn.min() == pytest.approx(wide.low.min())
    assert drawn.max() == pytest.approx(wide.high.max())
