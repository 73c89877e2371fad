"""What intervals allow for beside the parameters: by a second route, and only where no log has been."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from known_laws import LAST, PEAKS, WARMUP, known_forecast
from laws import effective_rates

from nqm.logs import Forecast
from nqm.logs import allowance as module
from nqm.logs.allowance import LEAST_RATE_SHARE, SETTINGS_OF_ERROR
from nqm.logs.asking import asked
from nqm.logs.fitting import INTERVAL_90
from nqm.types import Array

HIGH, LOW = PEAKS["norm"]
WARM = np.minimum(1.0, np.arange(1, LAST + 1) / WARMUP)


@pytest.fixture(scope="module")
def found() -> Forecast:
    """A forecast of four logs at two constant rates, whose parameters are known: the scatter of its fit is 0.001."""
    two = known_forecast("norm", None)
    fitted = replace(two.fitted, covariance=0 * two.fitted.covariance)
    return replace(two, logs=two.logs * 2, fitted=fitted)


def width(found: Forecast, rates: Array, at: int | None = None) -> float:
    """The relative standard deviation that an interval has at one step."""
    outlook = found.predict(rates, [len(rates) if at is None else at])
    return float(np.log(outlook.high[0] / outlook.loss[0])) / INTERVAL_90


def places(found: Forecast, rates: Array, times: list[int]) -> list[tuple[float, float]]:
    """Intrinsic times and effective rates at some steps, by a loop over single steps."""
    etas = effective_rates(rates.tolist(), [1.0] * len(rates), found.metric, found.law["r0"], continuous=True)
    return [(math.fsum(etas[:t]), etas[t - 1]) for t in times]


def by_hand(found: Forecast, rates: Array) -> float:
    """What the width at the end of a run should be, from distances to every logged point after the warm-up."""
    logged = [p for log in found.logs for p in places(found, log.rates, [t for t in log.step.tolist() if t >= 495])]
    floor = LEAST_RATE_SHARE * max(eta for _, eta in logged)
    S, eta = places(found, rates, [len(rates)])[0]
    s = SETTINGS_OF_ERROR
    nearest = min(
        (s.time * math.log(S / logged_S)) ** 2 + (s.rate * math.log(max(eta, floor) / max(logged_eta, floor))) ** 2
        for logged_S, logged_eta in logged
    )
    beyond = max(math.log(rates.max() / HIGH), math.log(LOW / rates.max()), 0)
    longer = max(math.log(len(rates) / LAST), 0)
    return math.sqrt(s.offset**2 + 1e-6 + nearest + (s.peak * beyond) ** 2 + (s.longer * longer) ** 2)


RUNS = {
    "longer": HIGH * np.append(WARM, np.ones(2 * LAST)),
    "higher": 3 * HIGH * WARM,
    "lower": LOW / 5 * WARM,
    "cosine": HIGH * WARM * (0.55 + 0.45 * np.cos(np.pi * np.arange(LAST) / LAST)),
    "to zero": HIGH * WARM * np.linspace(1, 0, LAST),
    "between": (HIGH + LOW) / 2 * WARM,
}


@pytest.mark.parametrize("name", RUNS)
def test_the_width_by_hand(name: str, found: Forecast) -> None:
    """Distances are to 40 points of each log, which are at most 250 steps apart: 2.5% in time at the end of a log."""
    expected = by_hand(found, RUNS[name])
    assert width(found, RUNS[name]) == pytest.approx(expected, rel=0.01)
    assert expected > 1.002 * width(found, found.logs[0].rates)


def test_a_run_of_the_logs_has_its_scatter_alone(found: Forecast) -> None:
    own = math.hypot(SETTINGS_OF_ERROR.offset, 1e-3)
    assert width(found, found.logs[0].rates) == pytest.approx(own, rel=1e-9)
    # The first step is at a tenth of the beginning, which is a tenth of the run.
    assert width(found, found.logs[0].rates, LAST // 100) > 9.9 * own
    two = replace(found, logs=found.logs[:2])  # Two logs leave too few residuals to go by.
    assert width(two, found.logs[0].rates) == pytest.approx(SETTINGS_OF_ERROR.few, rel=1e-9)


def test_a_norm_at_its_steady_state_widens_the_error_of_the_law() -> None:
    two = known_forecast("half", None)
    found = replace(two, logs=two.logs * 2, fitted=replace(two.fitted, covariance=0 * two.fitted.covariance))
    own = width(found, found.logs[0].rates)
    assert own == pytest.approx(math.hypot(SETTINGS_OF_ERROR.offset, 1e-3), rel=1e-9)
    far = math.sqrt(width(found, 3 * HIGH * WARM) ** 2 - own**2)
    plain = replace(SETTINGS_OF_ERROR, steady=1.0)
    gaps = module.Gaps.of(found, asked(found, 3 * HIGH * WARM, [LAST], None, None).course)
    assert far == pytest.approx(SETTINGS_OF_ERROR.steady * gaps.form(plain)[0], rel=1e-6)


def test_an_error_that_ignores_the_rate_shows(found: Forecast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_RATE_SHARE", 1e9)
    with pytest.raises(AssertionError):
        test_the_width_by_hand("cosine", found)


def test_the_sentence_has_what_the_interval_allows_for(found: Forecast) -> None:
    assert "within the peak rates and lengths" in found.predict(found.logs[0].rates).sentence
    longer = found.predict(RUNS["longer"])
    assert longer.sentence.startswith(
        "This run is outside the logs: it is 3 times as long as the longest log, 10,000 steps."
    )
    form = math.sqrt(by_hand(found, RUNS["longer"]) ** 2 - by_hand(found, found.logs[0].rates) ** 2)
    assert f"allows for an error of the law of {100 * form:.2g}% of the loss at the end" in longer.sentence
    assert "its peak rate 0.006 is 3 times the largest of the logs, 0.002" in found.predict(RUNS["higher"]).sentence
    assert "no log was near its last learning rate" in found.predict(RUNS["to zero"]).sentence
