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

from nqm import SGD
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.probing import descent_steps, fit
from nqm.nets.fitting.testing import (
    LEAST_SPREAD,
    PAST_WIDTH,
    REST,
    TEST_STEPS,
    UNTESTED_SPREAD,
    WIDTH,
    half_width,
    interval,
    motion,
)
from nqm.nets.fitting.testing import Tested as Found
from nqm.types import Wrong


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


def test_the_spread_is_the_error_per_motion() -> None:
    found = Found(np.array([1.0, 2.0]), np.array([0.15, 0.45]), np.exp([0.1, -0.2]), np.ones(2))
    assert found.spread == pytest.approx(math.sqrt(((0.1 / 0.2) ** 2 + (0.2 / 0.5) ** 2) / 2))
    assert replace(found, trained=np.array([1.0, math.inf])).spread == pytest.approx(0.5)
    assert replace(found, trained=np.full(2, math.inf)).spread == math.inf


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
    assert motion(other, ahead) == pytest.approx(
        motion(given, ahead) - np.abs(np.log(given.bend.sharpening(ahead.loss))) + np.log(moved)
    )
    end = given.descent.reach * float(given.spectrum.h.max())
    far = replace(ahead, reach=np.array([2 * end]))
    low, high = interval(given, far)
    half = math.hypot(float(half_width(given, far)[0]), PAST_WIDTH * math.log(2))
    assert float(np.log(high / low)[0]) == pytest.approx(2 * half)


def test_intervals_come_from_the_spread() -> None:
    """A fit whose test was twice as far off has intervals twice as wide, up to what is added for luck."""
    given = small()
    assert given.tested is not None
    ahead = given.predict(SGD(0.1), 8, [0, 5, 20])
    np.testing.assert_allclose(np.log(ahead.high / ahead.loss), half_width(given, ahead), rtol=1e-9)
    np.testing.assert_allclose(np.log(ahead.low / ahead.loss), -half_width(given, ahead), rtol=1e-9)
    expected = WIDTH * math.hypot(given.tested.spread, LEAST_SPREAD) * (motion(given, ahead) + REST)
    np.testing.assert_allclose(half_width(given, ahead), expected, rtol=1e-12)
    untested = replace(given, tested=None).predict(SGD(0.1), 8, [0, 5, 20])
    np.testing.assert_allclose(
        np.log(untested.high / untested.loss), expected * math.hypot(UNTESTED_SPREAD, LEAST_SPREAD)
        / math.hypot(given.tested.spread, LEAST_SPREAD), rtol=1e-9,
    )  # fmt: skip
    assert "the fit's own test, up to lr x steps x curvature = 28.8, found it off by" in ahead.message
    assert "not tested on this network" in untested.message


def test_an_interval_without_an_upper_end_is_infinite() -> None:
    """A test that was off by any factor allows for any loss, and no warning is printed."""
    given = small()
    assert given.tested is not None
    bad = replace(given, tested=replace(given.tested, predicted=1e300 * given.tested.predicted))
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
    assert "errors of more than 5%" in ahead.message
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
