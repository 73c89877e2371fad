"""What logs cannot decide: said where it is so, not said where it is not, and narrowed by the run that is advised."""

from __future__ import annotations

import numpy as np
import pytest
from known_laws import LAST, PEAKS, WARMUP, known_law

from nqm.logs import Log, forecast
from nqm.logs.course import Course
from nqm.logs.deciding import decays, narrowed
from nqm.logs.fitting import SETTINGS_OF_FIT
from nqm.types import Array

PEAK = PEAKS["norm"][0]
WARM = np.minimum(1.0, np.arange(1, LAST + 1) / WARMUP)


def run(shape: Array, name: str, seed: int) -> Log:
    """A log of the known law with realistic scatter."""
    law, steps, rng = known_law("norm"), np.arange(100, LAST + 1, 100), np.random.default_rng(seed)
    rates = PEAK * shape
    loss = law.loss(Course.of(rates, steps, 0.1)) * np.exp(
        4e-4 * rng.standard_normal(len(steps)) + 4e-4 * rng.standard_normal()
    )
    return Log(steps, loss, rates, optimizer="AdamW", weight_decay=0.1, name=name)


CONSTANT = run(WARM, "constant", 0)
LINEAR = run(WARM * np.linspace(1, 0, LAST), "linear", 1)


def test_constant_rates_cannot_tell_what_a_decay_brings() -> None:
    alone = forecast([CONSTANT])
    assert any("cannot tell what a decay brings" in each for each in alone.undecided)
    assert any("one batch size" in each or "no batch size" in each for each in alone.undecided)
    assert any("peak rate 0.002" in each for each in alone.undecided)
    both = forecast([CONSTANT, LINEAR])
    assert not any("cannot tell what a decay brings" in each for each in both.undecided)
    decay = WARM * np.minimum(1, 5 * (1 - np.arange(LAST) / LAST)) * PEAK
    widths = [float((o := found.predict(decay)).high[-1] - o.low[-1]) for found in (alone, both)]
    assert widths[0] > 2 * widths[1]  # Two logs have a width of their own, which no run narrows.


@pytest.mark.slow
def test_the_run_that_is_advised_narrows_the_answer() -> None:
    alone = forecast([CONSTANT])
    advice = alone.next_run()
    assert advice.rows[0]["width"] < 0.5 * advice.width
    assert [row["width"] for row in advice.rows] == sorted(row["width"] for row in advice.rows)
    assert advice.rows[-1]["run"].startswith("a constant rate")  # The same again teaches least.
    advised = forecast([CONSTANT, run(advice.rates[:LAST] / PEAK, "advised", 2)])
    again = forecast([CONSTANT, run(WARM, "again", 3)])
    goal = alone.optimal_schedule(LAST).rates
    widths = [float((o := found.predict(goal)).high[-1] - o.low[-1]) for found in (advised, again)]
    assert widths[0] < 0.5 * widths[1]
    assert f"±{advice.width:.4f}" in advice.sentence


@pytest.mark.slow
def test_the_width_now_is_that_of_predict() -> None:
    found = forecast([CONSTANT, LINEAR])
    advice, best = found.next_run(), found.optimal_schedule(LAST)
    outlook = found.predict(best.rates, [LAST])
    assert advice.width == pytest.approx(best.loss * float(np.log(outlook.high[0] / outlook.loss[0])), rel=1e-3)


def test_one_more_log_narrows_the_covariance_as_a_fit_with_it_would() -> None:
    """The rule for Gaussian posteriors against the information of all points, added up."""
    rng = np.random.default_rng(0)
    half, slopes = rng.standard_normal((4, 4)), 1 + 0.3 * rng.standard_normal((30, 4))
    covariance, scatter = 1e-4 * half @ half.T, 2e-3
    noise = scatter**2 * 30 / 15 * np.eye(30) + SETTINGS_OF_FIT.offset**2
    expected = np.linalg.inv(np.linalg.inv(covariance) + slopes.T @ np.linalg.inv(noise) @ slopes)
    np.testing.assert_allclose(narrowed(covariance, slopes, scatter, 15), expected, rtol=1e-6)
    # Without the offset, a run would promise nearly twice as much about what moves all of its points alike.
    apart = np.linalg.inv(np.linalg.inv(covariance) + slopes.T @ slopes / (2 * scatter**2))
    assert expected.sum() > 1.5 * apart.sum()


def test_decays_are_recognised() -> None:
    assert not decays(WARM)
    assert decays(WARM * np.linspace(1, 0.5, LAST))


def test_leaving_a_log_out_is_a_forecast_from_the_others() -> None:
    found = forecast([CONSTANT, LINEAR, run(WARM * np.where(np.arange(LAST) < 5000, 1, 0.2), "drop", 4)])
    check = found.check()
    by_hand = forecast(found.logs[1:]).predict(CONSTANT)
    np.testing.assert_allclose(check.outlooks[0].loss, by_hand.loss, rtol=1e-9)
    row = check.table()[0]
    assert row["final_error"] == by_hand.loss[-1] - CONSTANT.loss[-1]
    assert abs(row["final_error"]) < 0.03
