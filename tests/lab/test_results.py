"""Results: held against the stored trials themselves, and intervals against their probability."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab_studies import Table, small
from reading import check_reads_well

from nqm.lab import Results, Store, Study, run
from nqm.lab.compare import curves_of
from nqm.lab.plan import cells
from nqm.lab.results import point
from nqm.lab.seeds import COVERAGE, over_seeds
from nqm.lab.view import duration
from nqm.nets.estimates import Estimate


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(small(), store=tmp_path_factory.mktemp("results") / "small.db")


def test_every_number_again_from_the_trials(found: Results) -> None:
    """A second route: least steps over stored trials, without the search."""
    kept = found.trials()
    for p in found.points:
        mine = [k for k in kept if k.label == p.label and k.trial.batch_size == p.batch_size]
        search = [k for k in mine if k.kind == "search"]
        names = ["raw"] if p.name == p.label else ["ema(0.9)", "ema(0.99)"]
        steps = {(s, n): k for k in reversed(search) for n in names if (s := k.result.steps.get(n)) is not None}
        least = min(s for s, _ in steps)
        assert p.steps == least
        assert p.examples == least * p.batch_size
        assert p.trial is not None
        assert p.trial.key in {k.trial.key for (s, _), k in steps.items() if s == least}
        assert p.feasible == sum(k.result.outcome != "diverged" for k in search) == 6
        assert p.infeasible == len(search) - 6
        again = [
            k for k in mine if k.kind == "confirm" and k.trial.settings == p.settings and p.readout in k.result.steps
        ]
        assert sorted(p.seeds, key=str) == sorted((k.result.steps[p.readout] for k in again[-3:]), key=str)
        assert p.confirmed is not None
        assert p.confirmed.value == np.median([s for s in p.seeds if s is not None])


def test_rows_name_their_fields(found: Results) -> None:
    table = found.table()
    row = next(r for r in table if r["optimizer"] == "EMA(HeavyBall)")
    assert list(row)[:5] == ["optimizer", "batch_size", "steps", "more_than", "examples"]
    assert row["ema_decay"] in (0.9, 0.99)
    assert {"lr", "momentum", "low", "high", "coverage", "seeds", "arrived", "at_edge", "state", "key"} <= set(row)
    assert found.names == ["SGD", "HeavyBall", "EMA(HeavyBall)"]
    assert [p.batch_size for p in found["SGD"]] == [4, 16, 64]
    with pytest.raises(KeyError, match="no 'Adam'"):
        found["Adam"]


def test_results_read_well(found: Results) -> None:
    trials = f"9 of 9 points done after {len(found.keys)} trials"
    names = "small: SGD, HeavyBall, EMA(HeavyBall) to train_loss"
    check_reads_well(found, names, trials, rows=9, pictures=1)
    check_reads_well(found.points[0], f"Point(SGD, batch_size=4: {found.points[0].message})")
    for curve in curves_of(found.points):
        check_reads_well(curve, f"Curve({curve.name}, batch sizes 4 to 64: ", rows=3)
    assert "curves" not in repr(found.trials()[0].result)


def test_curves_of_best_trials(found: Results) -> None:
    times, values = found.curve(found["EMA(HeavyBall)"][0])
    assert times[0] == 1
    assert values == [1.0, 0.05]


def test_two_workers_with_the_same_trials(tmp_path: Path) -> None:
    """Each has its own results, though what decides a trial is the same."""
    path, one, other = tmp_path / "small.db", small(batch_sizes=[4]), small(batch_sizes=[4], worker="flat", name="flat")
    first, second = run(one, store=path), run(other, store=path)
    assert first.keys & second.keys
    for found, last in ((first, 0.05), (second, 7.0)):
        assert [found.curve(point)[1][-1] for point in found.points] == [last] * 3
        assert len(found.trials()) == len(found.keys)
    point = first.points[0]
    assert point.trial is not None
    for name, last in (("small", 0.05), ("flat", 7.0)):
        with Store.open(path) as store:
            kept = store.find(point.trial.key[:12], Results.open(path, name).study.worker)
            assert store.curve(kept.id)[1]["raw"][-1] == last


def test_a_study_that_has_not_begun(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    run(small(batch_sizes=[4]), store=path)
    with Store.open(path) as store:
        found = Results.of(study, store)
    assert not found.finished
    assert [p.message for p in found["SGD"]][1:] == ["not begun", "not begun"]
    assert found.table()[1]["steps"] is None


def test_a_target_out_of_reach_is_said(tmp_path: Path) -> None:
    found = run(small(target=1e-9, max_steps=50, batch_sizes=[4]), store=tmp_path / "small.db")
    assert found["SGD"][0].message.startswith("none of 6 trials reached 1e-09 within 50 steps")
    assert found["SGD"][0].more_than == found.table()[0]["more_than"] == 50
    assert found.curve(found["SGD"][0]) == ([], [])
    (curve, *_) = curves_of(found.points)
    assert (curve.ran_out.tolist(), curve.least.tolist()) == ([True], [50])
    diverged = small(optimizers={"SGD": {"lr": {"low": 3, "high": 60}}}, batch_sizes=[4])
    (lost,) = run(diverged, store=tmp_path / "lost.db").points
    assert lost.more_than is None
    assert curves_of([lost])[0].ran_out.tolist() == [False]


def test_an_edge_of_any_search_is_an_edge_of_the_row(tmp_path: Path) -> None:
    """A curve rests on all repeated searches, so the best one does not hide an edge of another."""
    study = small(searches=2, batch_sizes=[16], optimizers={"SGD": {"lr": {"low": 0.01, "high": 1.2}}}, trials=8)
    run(study, store=tmp_path / "small.db")
    both = cells(Results.open(tmp_path / "small.db").study)
    with Store.open(tmp_path / "small.db") as store:
        known, _ = store.results(study.worker)
    for one, lr in zip(both, (0.0101, 1.19), strict=True):
        one.advance(known)
        best = one.best["SGD"]
        one.best["SGD"] = replace(best, trial=replace(best.trial, settings={"lr": lr}))
    assert point(both, "SGD").at_edge == {"lr": "high and low"}
    assert point(both[:1], "SGD").at_edge == {"lr": "low"}


def test_few_feasible_trials_are_said(tmp_path: Path) -> None:
    study = small(optimizers={"SGD": {"lr": {"low": 1, "high": 60}}}, max_trials=8, batch_sizes=[64])
    (p,) = run(study, store=tmp_path / "small.db").points
    assert p.feasible < 6
    assert f"only {p.feasible} of 8 trials were feasible" in p.message


def test_a_study_file_of_any_ending_finds_its_store(tmp_path: Path) -> None:
    text = '[study]\nworkload = "none"\ntarget = 1\nbatch_sizes = [4]\n[optimizers.SGD]\n'
    for name in ("one.toml", "two.study", "three"):
        (tmp_path / name).write_text(text)
        study = Study.load(tmp_path / name)
        with Store.open(tmp_path / f"{study.name}.db", write=True) as store:
            store.register(study)
        assert Results.open(tmp_path / name).study == Results.open(tmp_path / f"{study.name}.db").study == study


# Intervals over seeds.


@pytest.mark.parametrize("n", [3, 5, 6, 9, 20])
def test_intervals_hold_the_median_as_often_as_they_say(n: int) -> None:
    """Of a law with a long tail, whose median is 100; z-score of 4,000 seeded draws, of which a planted bug is far off."""
    draws = np.random.default_rng(n).lognormal(np.log(100), 1, (4000, n))
    intervals = [over_seeds([int(1000 * x) for x in row]) for row in draws]
    held = np.mean([i.low <= 100_000 <= i.high for i in intervals])
    said = intervals[0].coverage
    z = (held - said) / np.sqrt(said * (1 - said) / 4000)
    assert abs(z) < 4
    assert said >= COVERAGE or n < 6
    k = sorted(int(1000 * x) for x in draws[0]).index(int(intervals[0].low)) + 1
    narrower = np.mean(
        [np.sort(row)[k] <= 100 <= np.sort(row)[-k - 1] for row in draws]
    )  # one order statistic further in
    assert said - narrower > 4 * np.sqrt(said * (1 - said) / 4000)


def test_intervals_of_trainings_that_do_not_arrive() -> None:
    assert math.isnan(over_seeds([]).value)
    assert math.isnan(over_seeds([]).coverage)
    assert over_seeds([7]) == Estimate(7, 7, 7, coverage=0)
    late, never = over_seeds([5, None, 6, None, 7]), over_seeds([None, None, 6])
    assert (late.value, late.low, late.high) == (7, 5, math.inf)
    assert (never.value, never.low) == (math.inf, 6)


def test_tables_survive_csv(found: Results, tmp_path: Path) -> None:
    from nqm.show.tables import to_csv

    path = tmp_path / "table.csv"
    to_csv(found.table(), path)
    rows: Table = list(csv.DictReader(path.open()))
    assert [float(row["steps"]) for row in rows] == [p.steps for p in found.points]


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 59.7, 3599, 86400)] == ["0 s", "1 min 0 s", "59 min 59 s", "24 h 0 min"]
