"""Beyond a few times what the logs hold there is neither interval nor advice, unless it is asked for."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from known_laws import LAST, known_forecast

from nqm import SGD, steps_to_target, tune
from nqm.engine.run import Outcome
from nqm.engine.schedule import Schedule
from nqm.logs import Forecast, Log
from nqm.logs import reach as module
from nqm.logs.allowance import SETTINGS_OF_ERROR
from nqm.logs.fitting import INTERVAL_90
from nqm.logs.reach import LENGTH_REACH, LOW_PEAK_REACH, PEAK_REACH, SIZE_REACH
from nqm.types import Wrong

HIGH, LOW = 2e-3, 1e-3


@cache
def found() -> Forecast:
    return known_forecast("norm")


def rates(peak: float, steps: int = LAST) -> np.ndarray:
    return np.full(steps, peak)


INSIDE: dict[str, Callable[..., object]] = {
    "peak": lambda f, **k: f.predict(rates(0.999 * PEAK_REACH * HIGH), [LAST], **k),
    "small peak": lambda f, **k: f.predict(rates(LOW / 29), [LAST], **k),
    "length": lambda f, **k: f.predict(HIGH, [int(LENGTH_REACH * LAST)], **k),
    "batch size": lambda f, **k: f.predict(HIGH, [LAST], batch_size=SIZE_REACH * 64, **k),
    "small batch size": lambda f, **k: f.predict(HIGH, [LAST], batch_size=64 / SIZE_REACH, **k),
}
BEYOND: dict[str, tuple[Callable[..., object], str]] = {
    "peak": (lambda f, **k: f.predict(rates(10.0), [LAST], **k), "its peak rate 10 is 5,000 times the largest of the logs, 0.002"),
    "small peak": (lambda f, **k: f.predict(rates(1e-5), [LAST], **k), "is 100 times smaller than the smallest of the logs, 0.001"),
    "length": (lambda f, **k: f.predict(HIGH, [100 * LAST], **k), "it is 100 times as long as the longest log, 10,000 steps"),
    "batch size": (
        lambda f, **k: f.predict(HIGH, [LAST], batch_size=25_600, **k),
        "its batch size 25,600 is 400 times the largest of the logs, 64",
    ),
    "a schedule of batch sizes": (
        lambda f, **k: f.predict(sizes_that_rise(), [LAST], peak=HIGH, **k),
        "its batch size 6,400 is 100 times the largest of the logs, 64",
    ),
}  # fmt: skip


def sizes_that_rise() -> Schedule:
    return Schedule([5000, 5000], batch_size=[1.0, 100.0])


@pytest.mark.parametrize("name", INSIDE)
def test_within_reach_there_is_an_interval(name: str) -> None:
    outlook = INSIDE[name](found())
    assert np.isfinite(outlook.low).all()  # type: ignore[attr-defined]
    assert outlook.beyond == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", BEYOND)
def test_beyond_it_there_is_none_and_the_sentence_says_how_far(name: str) -> None:
    ask, sentence = BEYOND[name]
    outlook, wide = ask(found()), ask(found(), extrapolate=True)
    assert math.isnan(outlook.low[-1])  # type: ignore[attr-defined]
    assert math.isnan(outlook.high[-1])  # type: ignore[attr-defined]
    assert sentence in outlook.sentence  # type: ignore[attr-defined]
    assert "there is no interval" in outlook.sentence  # type: ignore[attr-defined]
    assert sentence in " ".join(outlook.beyond)  # type: ignore[attr-defined]
    assert outlook.to_dict()["low"][-1] is None  # type: ignore[attr-defined]
    assert wide.loss[-1] == outlook.loss[-1]  # type: ignore[attr-defined]
    assert wide.low[-1] < wide.loss[-1] < wide.high[-1]  # type: ignore[attr-defined]
    assert "so its interval is a guess" in wide.sentence  # type: ignore[attr-defined]


def test_a_reach_without_end_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PEAK_REACH", math.inf)
    with pytest.raises(AssertionError):
        test_beyond_it_there_is_none_and_the_sentence_says_how_far("peak")


def test_a_long_run_has_its_interval_up_to_the_reach() -> None:
    outlook = found().predict(HIGH, [LAST, int(LENGTH_REACH * LAST), 7 * LAST])
    assert np.isfinite(outlook.low).tolist() == [True, True, False]
    assert "there is no interval after step 60,000" in outlook.sentence


@pytest.mark.parametrize(
    ("ask", "argument"),
    [
        (lambda f, **k: f.optimal_schedule(LAST, 1.0, pieces=2, **k), "max_lr"),
        (lambda f, **k: f.optimal_schedule(100 * LAST, pieces=2, **k), "steps"),
        (lambda f, **k: f.optimal_schedule(LAST, batch_size=1e5, pieces=2, **k), "batch_size"),
        (lambda f, **k: f.optimal_schedule(LAST, trunk=rates(1.0, 100), pieces=2, **k), "trunk"),
        (lambda f, **k: f.losses_by_length([LAST, 10 * LAST], **k), "steps"),
        (lambda f, **k: f.next_run(max_lr=1.0, **k), "max_lr"),
    ],
)
def test_advice_is_refused_with_how_far_it_may_go(ask: Callable[..., object], argument: str) -> None:
    with pytest.raises(Wrong, match=r"forecasts were checked for .*: ask for at most .*, or extrapolate") as refused:
        ask(found())
    assert refused.value.argument == argument


@pytest.mark.slow
def test_advice_is_given_if_it_is_asked_for() -> None:
    best = found().optimal_schedule(LAST, 1.0, pieces=2, extrapolate=True)
    assert best.low < best.loss < best.high


def test_a_rate_of_the_logs_is_not_outside() -> None:
    """Logs that decay hold smaller rates than their peaks; and 2% more than the largest peak is that peak."""
    decay = HIGH * np.linspace(1, 0.1, LAST)
    steps = np.arange(100, LAST + 1, 100)
    logs = [Log(steps, log.loss, decay, 64, "AdamW", 0.1, name=log.name) for log in found().logs]
    decaying = replace(found(), logs=tuple(logs))
    inside = decaying.predict(rates(0.5 * HIGH), [LAST]).sentence
    assert inside.startswith(
        "This run is within the rates and lengths of the logs, whose peak rates are 0.002 and more."
    )
    assert "0.0001 is 20 times smaller" in decaying.predict(rates(0.05 * HIGH), [LAST]).sentence
    assert "outside" not in found().predict(rates(1.02 * HIGH), [LAST]).sentence
    assert "1.07 times the largest" in found().predict(rates(1.07 * HIGH), [LAST]).sentence


def test_intervals_were_checked_as_far_as_they_go() -> None:
    """Of the last losses of runs that trained and are within reach, intervals held most; docs/forecast.md has the table."""
    path = Path(__file__).parents[2] / "docs" / "checks" / "forecast_reach.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["error"]) < 0.5]
    for what, low, high in (
        ("peak rate", 1 / LOW_PEAK_REACH, PEAK_REACH),
        ("length", 1.0, LENGTH_REACH + 0.25),
        ("batch size", 1 / SIZE_REACH, SIZE_REACH),
    ):
        near = [row for row in rows if row["what"] == what and 0.99 * low <= float(row["ratio"]) <= high]
        count = sum(int(row["runs"]) for row in near)
        assert sum(int(row["runs"]) * float(row["last_held"]) for row in near) > 0.7 * count
        assert max(max(float(row["ratio"]), 1 / float(row["ratio"])) for row in near) > 0.95 * high


def test_wider_for_other_batch_sizes_and_never_narrower() -> None:
    widths = [
        float(np.log(o.high[0] / o.loss[0]))
        for size in (64, 128, 256)
        for o in [found().predict(HIGH, [LAST], batch_size=size)]
    ]
    assert widths[0] < widths[1] < widths[2]
    assert widths[2] >= INTERVAL_90 * SETTINGS_OF_ERROR.size * math.log(4)


def test_searches_end_at_the_reach() -> None:
    problem = found().problem
    hit = steps_to_target(problem, SGD(HIGH), 64, 2.51)
    assert hit.outcome is Outcome.out_of_steps
    assert "60,000 steps" in hit.message
    assert "lengths up to 6 times that of the longest log, 10,000 steps: extrapolate to go on" in hit.message
    assert tune(problem, SGD(), 64, target=2.51).steps is None
    for ask in (
        lambda: steps_to_target(problem, SGD(1.0), 64, 3.0),
        lambda: steps_to_target(problem, SGD(HIGH), 1e5, 3.0),
        lambda: problem.run(SGD(HIGH), 64, 100 * LAST),
        lambda: tune(problem, SGD(), 1e5, target=3.0),
    ):
        with pytest.raises(Wrong, match="or extrapolate"):
            ask()
    assert np.isfinite(replace(problem, extrapolate=True).run(SGD(1.0), 1e5, 100 * LAST).loss).all()
