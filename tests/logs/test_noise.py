"""Losses of single batches: their noise is estimated first, and neither a rise nor a misfit is claimed because of it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from known_laws import LAST, PEAKS, WARMUP, known_law

from nqm.logs import Forecast, Log, forecast
from nqm.logs import assuming as module
from nqm.logs.assuming import rising
from nqm.logs.course import Course
from nqm.logs.noise import misfit, noise_of

EVERY = 20


def noisy(deviation: float, seed: int, falls: bool = False, peak: float = PEAKS["plain"][0]) -> Log:
    """A sound log of the known law with the noise of single batches."""
    law, rng, t = known_law("plain"), np.random.default_rng(seed), np.arange(1, LAST + 1)
    rates = peak * np.minimum(1.0, t / WARMUP) * (1 - t / LAST if falls else 1.0)
    steps = np.arange(EVERY, LAST + 1, EVERY)
    loss = law.loss(Course.of(rates, steps)) * np.exp(deviation * rng.standard_normal(len(steps)))
    return Log(steps, loss, rates, optimizer="SGD", name=f"run {seed}")


@cache
def found(deviation: float) -> Forecast:
    return forecast([noisy(deviation, 0), noisy(deviation, 1, peak=PEAKS["plain"][1]), noisy(deviation, 2, falls=True)])


@pytest.mark.parametrize("deviation", [0.01, 0.16])
def test_the_noise_is_that_which_was_added(deviation: float) -> None:
    assert found(deviation).noise == pytest.approx(deviation, rel=0.1)
    assert found(deviation).noisy


def test_sound_logs_with_noise_are_not_called_rising() -> None:
    """A plateau with this noise rises from its lowest tenth to its last by more than 2% in most logs."""
    logs = [noisy(0.16, seed) for seed in range(30)]
    assert not any(rising(log) for log in logs)
    bare = [np.array([np.median(part) for part in np.array_split(log.loss, 10)]) for log in logs]
    assert sum(bool(medians[-1] > 1.02 * medians.min()) for medians in bare) >= 10


def test_a_rise_beyond_the_noise_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    log = noisy(0.05, 0)
    grown = Log(
        log.step, log.loss * (1 + 0.3 * np.clip(log.step / LAST - 0.5, 0, 1)), log.lr, optimizer="SGD", name="grown"
    )
    assert "'grown' rises from" in str(rising(grown))
    monkeypatch.setattr(module, "RISE_DEVIATIONS", 100.0)
    assert rising(grown) is None


def test_noise_is_no_misfit_and_is_said() -> None:
    one = found(0.16)
    assert one.misfit == 0
    said = " ".join(one.remarks)
    assert "The losses scatter by 16% from one logged point to the next, as those of single batches do" in said
    assert (
        "intervals are for medians of 2 neighbouring points" in said
    )  # 475 points after the warm-up, at most 200 are fitted
    assert "The law misses" not in said
    assert "Omit this log" not in said
    assert "fitted to 0% beside noise of 16%" in repr(one)


def test_a_law_that_misses_is_said_beside_the_noise() -> None:
    """The loss of one run swings by 6% over a period of 2,000 steps, of which the law knows nothing."""
    logs = [noisy(0.02, 0), noisy(0.02, 1, peak=PEAKS["plain"][1])]
    swing = 1 + 0.06 * np.sin(2 * np.pi * logs[0].step / 2000)
    one = forecast([Log(logs[0].step, logs[0].loss * swing, logs[0].lr, optimizer="SGD", name="swings"), logs[1]])
    assert 0.01 < one.misfit < one.error
    assert "The law misses these logs by" in " ".join(one.remarks)
    assert "beside their scatter" in " ".join(one.remarks)


def test_intervals_hold_the_noise_of_the_fitted_points() -> None:
    one, rates = found(0.16), noisy(0.0, 0).rates
    outlook = one.predict(rates, [LAST])
    assert np.log(outlook.high[0] / outlook.loss[0]) > 1.45 * one.error


def test_the_scatter_of_a_smooth_course_is_no_noise() -> None:
    t = np.arange(200.0)
    assert noise_of(np.sin(t / 20)) < 0.002  # The second differences of a sine of this period are 0.0025 of it.
    wave = 0.01 * np.sin(t / 20)
    assert misfit([wave], 0.007) == pytest.approx(0.007, rel=0.01)
