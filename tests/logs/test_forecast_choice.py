"""The law of forecasts is derived: what sets of runs would choose instead, and how wide intervals must be."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import forecast_choice as module
from benchmarks.forecast_choice import (
    BARS,
    DERIVED,
    LAWS,
    OPTIONS,
    SETS,
    TOWARDS_ONE,
    Law,
    Measured,
    choose,
    criterion,
    measure,
    run_error,
    settings_of,
)
from benchmarks.forecast_intervals import FIELDS, Case, Cases, Run, Widths, calibrated
from nqm.logs import Log
from nqm.logs.allowance import SETTINGS_OF_ERROR, ErrorSettings, Gaps
from nqm.logs.fitting import INTERVAL_90, SETTINGS_OF_FIT

CHECKS = Path(__file__).parents[2] / "docs" / "checks"


def rows(name: str) -> list[dict[str, str]]:
    with (CHECKS / f"forecast_{name}.csv").open() as file:
        return list(csv.DictReader(file))


def law_of(row: dict[str, str]) -> Law:
    """The law of a row: the options are found by their text."""
    return tuple(next(o for o in options if str(o) == row[name]) for name, options in OPTIONS.items())


def test_nqm_has_the_derived_law() -> None:
    assert settings_of(DERIVED) == SETTINGS_OF_FIT
    assert DERIVED in LAWS


def test_the_derived_law_reaches_every_bar() -> None:
    derived = {row["set"]: row for row in rows("choice") if row["chosen_on"] == "derived"}
    for name in SETS:
        for figure, bar in BARS[name].items():
            value = float(derived[name][figure])
            assert value >= bar if figure in TOWARDS_ONE else value <= bar, (name, figure)


def test_few_laws_reach_the_bars_of_all_sets() -> None:
    """The counts in a sentence of docs/forecast.md, from the file of all laws that were measured."""
    over: dict[Law, dict[str, bool]] = {}
    for row in rows("choice_tried"):
        over.setdefault(law_of(row), {})[row["set"]] = float(row["excess"]) > 0
    assert set(over) == set(LAWS)
    near = [law for law in LAWS if not (over[law]["25M"] or over[law]["100M"])]
    both = [law for law in near if not over[law]["124M"]]
    assert all(law[0] == 0.0004 and law[2][0] == 1.0 for law in both)
    page = " ".join((CHECKS.parent / "forecast.md").read_text().split())
    assert (
        f"of the 180 laws, {len(near)} reach all bars on 25M and 100M, and {len(both)} of these reach those on 124M"
        in page
    )


def test_nqm_has_the_widths_that_all_sets_calibrate() -> None:
    everything = " + ".join([*SETS, "engine"])
    found = [row for row in rows("intervals") if row["calibrated_on"] == everything]
    assert [row["set"] for row in found] == [*SETS, "engine"]
    for row in found:  # The settings have two digits.
        assert pytest.approx(float(row["reach"]), rel=0.06) == INTERVAL_90
        for name in FIELDS:
            assert getattr(SETTINGS_OF_ERROR, name) == pytest.approx(float(row[name]), rel=0.06)


def test_intervals_of_a_set_that_others_calibrate_hold_its_published_split() -> None:
    blind = {row["set"]: row for row in rows("intervals") if row["set"] not in row["calibrated_on"].split(" + ")}
    assert sorted(blind) == sorted(SETS)
    for row in blind.values():
        assert 0.8 <= float(row["held_published"]) <= 0.97


def test_every_set_is_reported_by_laws_that_did_not_see_it() -> None:
    blind = {
        (row["set"], row["chosen_on"]) for row in rows("choice") if row["set"] not in row["chosen_on"].split(" + ")
    }
    for name, others in [("25M", "100M + 124M"), ("100M", "25M + 124M"), ("124M", "25M + 100M")]:
        assert (name, others) in blind
    assert {("25M", "124M"), ("100M", "124M")} <= blind


def test_a_law_of_the_table_is_measured_again() -> None:
    row = next(row for row in rows("choice") if (row["set"], row["chosen_on"]) == ("100M", "25M + 124M"))
    found = measure("100M", law_of(row))
    # The fit ends where its steps are below 1e-8, and processors differ in the last digits of a matrix product.
    assert found.figures["mean_r2"] == pytest.approx(float(row["mean_r2"]), abs=1e-5)


def test_the_criterion_is_the_error_and_what_is_above_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"25M": Measured(2.0, {}, 0.0), "100M": Measured(3.0, {}, 0.5)}
    monkeypatch.setattr(module, "tried", lambda name, law: known[name])
    assert criterion(["25M", "100M"], DERIVED) == pytest.approx((math.log(2) + math.log(3) + 0.5) / 2)


def test_the_choice_is_the_best_of_all_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors in which two entries only pay together, where a choice of one entry after the other would stop before them."""
    best, asked = LAWS[-1], set()

    def tried(name: str, law: Law) -> Measured:
        asked.add(name)
        return Measured(1.0 if law == best else 2.0 + sum(a == b for a, b in zip(law, best, strict=True)), {}, 0.0)

    monkeypatch.setattr(module, "tried", tried)
    assert choose(["25M", "124M"]) == best
    assert asked == {"25M", "124M"}  # The set that is left out is not looked at.
    assert len(LAWS) == math.prod(len(options) for options in OPTIONS.values()) == len(set(LAWS))


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


def test_calibrated_widths_are_those_that_made_the_errors() -> None:
    """1,200 normal errors leave some 10% of a slope, and calibrated intervals hold 90% of new errors."""
    truth, rng = ErrorSettings(time=0.002, rate=0.001, peak=0.004), np.random.default_rng(0)
    found = calibrated([Cases((Case("split", "", known_runs(truth, rng)),))])
    assert found.reach == pytest.approx(1.645, rel=0.25)
    for name in FIELDS:
        assert found.reach * getattr(found.settings, name) == pytest.approx(1.645 * getattr(truth, name), rel=0.35)
    new = known_runs(truth, rng, 200)
    z = (np.mean([run.held(found) for run in new]) - 0.9) / math.sqrt(0.9 * 0.1 / 1200)
    assert (
        abs(z) < 4
    )  # The errors that calibrate are fewer than those that are held, and decide how near 90% they come.
    assert np.mean([run.held(Widths(found.reach / 2, found.settings)) for run in new]) < 0.8


def test_the_published_split_has_no_part_in_the_widths() -> None:
    rng = np.random.default_rng(1)
    runs = known_runs(ErrorSettings(), rng, 5)
    wild = tuple(Run(100 * run.error, run.deviation, run.gaps) for run in runs)
    widths = Widths(1.6, ErrorSettings())
    alone, beside = Cases((Case("split", "", runs),)), Cases((Case("split", "", runs), Case("published", "", wild)))
    assert alone.score(widths) == beside.score(widths)


def test_the_interval_score_by_hand() -> None:
    """Of three points, one is outside its interval, by 1: the width of 4 costs 4, and the point outside 20 more."""
    gaps = Gaps(np.zeros((3, 1)), np.zeros((3, 1)), 0.0, np.ones(3), 0.0, 5, False)
    run = Run(np.array([0.0, -2.0, 3.0]), np.ones(3), gaps)
    assert run.score(Widths(2.0, ErrorSettings(offset=0.0))) == pytest.approx(4 + 20 / 3)
