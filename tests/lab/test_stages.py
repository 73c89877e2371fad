"""Two stages and repeated searches: what follows from what, how a study goes on, and how close it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab_studies import small
from lab_workers import train

from benchmarks.lab_coverage import coverage
from benchmarks.lab_search import closeness
from nqm.lab import Result, Results, Study, Trial, run
from nqm.lab.plan import SEARCH, Cell
from nqm.lab.refine import REFINE
from nqm.lab.results import point
from nqm.lab.study import SEED_STRIDE


def finished(
    study: Study, label: str = "HeavyBall", repeat: int = 0, size: int = 16, training: Callable[[Trial], Result] = train
) -> Cell:
    one = Cell(study, label, size, repeat)
    known: dict[str, Result] = {}
    while one.round:
        known |= {trial.key: training(trial) for trial in one.round}
        one.advance(known)
    return one


def test_trials_grow_with_the_settings() -> None:
    """The counts of the docs for one, two, three and more settings."""
    box = {name: {"low": 0.1, "high": 1, "scale": "log"} for name in ("lr", "damping", "eps", "rho")}
    entries = {str(n): dict(list(box.items())[:n]) for n in (1, 2, 3, 4)}
    study = Study.from_dict({"study": {"workload": "x", "target": 1, "batch_sizes": [8]}, "optimizers": entries})
    assert [study.first_trials(n) for n in "1234"] == [10, 30, 30, 30]
    assert [study.refined_trials(n) for n in "1234"] == [12, 60, 108, 156]
    assert [replace(study, refine=7).refined_trials(n) for n in "123"] == [7, 7, 7]


def test_the_second_stage_has_its_trials_and_ends_with_the_minimum_of_the_fit() -> None:
    study = small(refine=15, trials=8)
    found = finished(study)
    first = sum(1 for trial, _ in found.done[:8])
    assert len(found.done) >= first + 2 * 15  # one stage for the weights and one for the averages
    assert set(found.fitted) == {"HeavyBall", "EMA(HeavyBall)"}
    assert found.done[-1][0].key == found.fitted["EMA(HeavyBall)"]
    for name in found.names:
        tried = {t.settings["lr"] for t, _ in found.confirmed[name]}
        assert len(tried) == 1
    assert all(0.001 < t.settings["lr"] < 1 for t, _ in found.done)


def test_a_second_stage_is_better_than_none() -> None:
    """The soonest trial, in the sum over batch sizes; at one of them the first stage may find the optimum."""

    def soonest(refine: int, size: int) -> int:
        return min(best.steps for best in finished(small(refine=refine, trials=8), size=size).arrived["HeavyBall"])

    plain, refined = (sum(soonest(n, size) for size in (1, 4, 16)) for n in (0, 20))
    assert refined < plain


def test_the_minimum_of_the_fit_is_confirmed_and_others_only_if_it_was_lucky() -> None:
    """Where fresh seeds take as long as the search, one setting is confirmed; where they take twice as long, all candidates."""
    found = finished(small(refine=15, trials=8), "SGD")
    fitted = next(t for t, _ in found.done if t.key == found.fitted["SGD"])
    fresh = [t.settings["lr"] for t in found.trials() if t.seed != found.seed]
    assert fresh == [fitted.settings["lr"]] * 3

    def unlucky(trial: Trial) -> Result:
        result = train(trial)
        late = {name: steps and 2 * steps for name, steps in result.steps.items()}
        return result if trial.seed == found.seed else replace(result, steps=late)

    again = finished(small(refine=15, trials=8), "SGD", training=unlucky)
    assert len({t.settings["lr"] for t in again.trials() if t.seed != again.seed}) == SEARCH.candidates


def test_repeated_searches_share_no_seed_and_no_point() -> None:
    study = small(refine=6)
    one, two = (finished(study, repeat=r) for r in (0, 1))
    assert {t.seed for t in one.trials()} & {t.seed for t in two.trials()} == set()
    assert two.seed == SEED_STRIDE
    assert {t.settings["lr"] for t, _ in one.done} & {t.settings["lr"] for t, _ in two.done} == set()


def test_the_row_is_that_of_the_search_that_is_fastest_over_fresh_seeds() -> None:
    study = small(searches=3, seeds=5)
    repeats = [finished(study, "SGD", r) for r in range(3)]
    found = point(repeats, "SGD")
    logs = [np.sort(np.log([s or np.inf for s in own])) for own in found.searches]
    fastest = int(np.argmin([own[1:4].mean() for own in logs]))
    assert len(logs) == 3
    assert found.seeds == found.searches[fastest]
    assert found.settings == found.tuned[fastest]
    assert found.feasible == sum(one.feasible for one in repeats)


def test_more_searches_and_more_refinement_add_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    before = run(small(searches=1, refine=6), store=path)
    more = run(small(searches=2, refine=6), store=path)
    assert before.keys < more.keys
    longer = run(small(searches=2, refine=12), store=path)
    fresh = run(small(searches=2, refine=12), store=tmp_path / "fresh.db")
    assert longer.table() == fresh.table()
    assert Results.open(path).table() == fresh.table()


def test_trials_of_another_search_are_kept_and_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose second stage had other points, and no mark that says so: the search goes on, and nothing is deleted."""
    path, study = tmp_path / "small.db", small(refine=12, batch_sizes=[16])
    with monkeypatch.context() as patched:
        patched.setattr("nqm.lab.refine.REFINE", replace(REFINE, rise=0.5, narrowest=0.6))
        old = run(study, store=path)
    found = Results.open(path)
    assert not found.finished
    assert {kept.trial.key for kept in found.uncounted()} == old.keys - found.keys - set(found.ahead)
    assert any(kept.kind == "confirm" for kept in found.uncounted())
    now = run(study, store=path)
    assert now.table() == run(study, store=tmp_path / "new.db").table()
    assert old.keys <= {kept.trial.key for kept in now.trials()}


@pytest.mark.slow
def test_a_search_of_two_settings_comes_within_a_tenth() -> None:
    """On the exact engine, seeds scatter by 10%: nine of ten, less three standard errors of 18 cells; without stage two, fewer."""
    found = closeness("Nesterov", ("steep", "outliers"), 0.1, 3)
    assert found.within() >= 0.9 - 3 * np.sqrt(0.09 / len(found.excess))
    plain = closeness("Nesterov", ("steep", "outliers"), 0.1, 3, trials=16, refine=0, searches=1)
    assert plain.within() < found.within() - 0.3


@pytest.mark.slow
def test_intervals_hold_the_truth_and_equal_optimizers_are_not_told_apart() -> None:
    """Simulated studies: coverage within three standard errors of 85 to 95%; equal pairs apart in 5% or less, likewise."""
    found = coverage("SGD", "steep", (64, 256, 1024, 4096), 0.1, 25)
    for hits in found.covered.values():
        error = 3 * np.sqrt(0.09 / len(hits))
        assert 0.85 - error <= hits.mean() <= 0.95 + error
    assert found.holds.mean() <= 0.05 + 3 * np.sqrt(0.0475 / len(found.holds))
