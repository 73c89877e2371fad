"""How the law of forecasts is chosen: the rule itself, and that nqm has what three sets of runs choose."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import forecast_choice as module
from benchmarks.forecast_choice import (
    OPTIONS,
    SETS,
    SIMPLEST,
    Law,
    Measured,
    choose,
    criterion,
    measure,
    run_error,
    settings_of,
)
from benchmarks.forecast_intervals import FIELDS, Case, Cases, Run, likeliest
from nqm.logs import Log
from nqm.logs.allowance import SETTINGS_OF_ERROR, ErrorSettings, Gaps
from nqm.logs.fitting import SETTINGS_OF_FIT

CHECKS = Path(__file__).parents[2] / "docs" / "checks"


def rows(name: str) -> list[dict[str, str]]:
    with (CHECKS / f"forecast_{name}.csv").open() as file:
        return list(csv.DictReader(file))


def law_of(row: dict[str, str]) -> Law:
    """The law of a row: the options are found by their text."""
    return tuple(next(o for o in options if str(o) == row[name]) for name, options in OPTIONS.items())


def test_nqm_has_what_three_sets_choose() -> None:
    chosen = [row for row in rows("choice") if row["chosen_on"] == " + ".join(SETS)]
    assert [row["set"] for row in chosen] == list(SETS)
    for row in chosen:
        assert settings_of(law_of(row)) == SETTINGS_OF_FIT
        for name in FIELDS:  # The settings have two digits.
            assert getattr(SETTINGS_OF_ERROR, name) == pytest.approx(float(row[name]), rel=0.06)


def test_every_set_is_reported_by_laws_that_did_not_see_it() -> None:
    blind = {
        (row["set"], row["chosen_on"]) for row in rows("choice") if row["set"] not in row["chosen_on"].split(" + ")
    }
    for name, others in {"25M": "100M + 124M", "100M": "25M + 124M", "124M": "25M + 100M"}.items():
        assert (name, others) in blind


def test_a_law_of_the_table_is_measured_again() -> None:
    row = next(row for row in rows("choice") if (row["set"], row["chosen_on"]) == ("100M", "25M + 124M"))
    found = measure("100M", law_of(row), all_starts=True)
    # The fit ends where its steps are below 1e-8, and processors differ in the last digits of a matrix product.
    assert found.figures["mean_r2"] == pytest.approx(float(row["mean_r2"]), abs=1e-5)


def test_the_criterion_is_the_error_and_what_is_above_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"25M": Measured(2.0, {}, 0.0), "100M": Measured(3.0, {}, 0.5)}
    monkeypatch.setattr(module, "tried", lambda name, law: known[name])
    assert criterion(["25M", "100M"], SIMPLEST) == pytest.approx((math.log(2) + math.log(3) + 0.5) / 2)


def test_the_rule_finds_the_best_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that are a sum over entries: the best option of each is found, and an option that gains too little is not taken."""
    best = tuple(options[-1] for options in OPTIONS.values())
    asked = set()

    def tried(name: str, law: Law) -> Measured:
        asked.add(name)
        distance = sum(a != b for a, b in zip(law, best, strict=True))
        return Measured(math.exp(distance - 0.001 * (law[-1] == 5.0)), {}, 0.0)

    monkeypatch.setattr(module, "tried", tried)
    assert choose(["25M", "124M"]) == best
    assert asked == {"25M", "124M"}  # The set that is left out is not looked at.
    monkeypatch.setattr(module, "tried", lambda name, law: Measured(math.exp(-0.001 * (law[-1] == 5.0)), {}, 0.0))
    assert choose(["25M"]) == SIMPLEST


def test_the_error_of_a_run_by_hand() -> None:
    log = Log([10, 50, 100], [4.0, 3.0, 2.0], 0.1)
    predicted = np.array([9.0, 3.0 * math.exp(0.01), 2.0 * math.exp(-0.03)])
    # The first point is at a tenth of the run and counts.
    first = math.log(9 / 4)
    expected = ((first + 0.01 + 0.03) / 3 + 0.03) / 2
    assert run_error(predicted, log, np.arange(3)) == pytest.approx(expected)


def known_runs(slopes: ErrorSettings, rng: np.random.Generator, count: int = 60) -> tuple[Run, ...]:
    """Runs whose errors have the variance that the settings say, at random distances from one logged point."""
    found = []
    for _ in range(count):
        gaps = Gaps(
            rng.uniform(0, 2, (20, 1)),
            rng.uniform(0, 3, (20, 1)),
            float(rng.choice([0.0, 1.5])),
            np.ones(20),
            4e-4,
            5,
            False,
        )
        deviation = np.full(20, 3e-4)
        width = np.hypot(deviation, gaps.allowance(slopes))
        found.append(Run(width * rng.standard_normal(20), deviation, gaps))
    return tuple(found)


def test_the_likeliest_slopes_are_those_that_made_the_errors() -> None:
    """1,200 errors leave some 5% of a slope, and intervals of the slopes found hold 90% of new errors."""
    truth, rng = ErrorSettings(time=0.002, rate=0.001, peak=0.004), np.random.default_rng(0)
    found = likeliest([Cases((Case("split", "", known_runs(truth, rng)),))])
    for name in FIELDS:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.25)
    held = np.mean([run.held(found) for run in known_runs(truth, rng, 200)])
    z = (held - 0.9) / math.sqrt(0.9 * 0.1 / 4000)
    assert abs(z) < 4
    narrow = ErrorSettings(time=truth.time / 3, rate=truth.rate / 3, peak=truth.peak / 3)
    assert np.mean([run.held(narrow) for run in known_runs(truth, rng, 200)]) < 0.8
