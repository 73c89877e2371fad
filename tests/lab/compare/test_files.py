"""Curves written as CSV and read again: the same numbers and verdicts as from the study itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab_curves import SIZES, hyperbola, never_at, with_rates
from lab_studies import small

from nqm.lab import run
from nqm.lab.compare import Curve, curves_of, findings, read_curves, read_table
from nqm.show.tables import to_csv
from nqm.types import Wrong


def study() -> list[Curve]:
    sgd = with_rates(hyperbola("SGD", 30, 100), np.minimum(SIZES, 64))
    momentum = never_at(with_rates(hyperbola("HeavyBall", 300, 10), SIZES / 3), 7)
    return [sgd, momentum, hyperbola("EMA(SGD)", 25, 110), hyperbola("KFAC", 900, 5)]


def written(curves: list[Curve], folder: Path, without: tuple[str, ...] = ()) -> Path:
    rows = [{k: v for k, v in row.items() if k not in without} for one in curves for row in one.table()]
    to_csv(rows, folder / "study.csv")
    return folder / "study.csv"


def test_a_file_has_all_that_a_verdict_needs(tmp_path: Path) -> None:
    made = study()
    found = read_curves(read_table(written(made, tmp_path)))
    assert findings(found) == findings(made)
    for one, other in zip(found, made, strict=True):
        assert (one.name, one.label, one.optimizer, one.averaged) == (
            other.name,
            other.label,
            other.optimizer,
            other.averaged,
        )
        for definition in ("20%", "2x", "ratio"):
            assert one.critical_batch_size(definition) == other.critical_batch_size(definition)
        assert one.effective_lr == pytest.approx(other.effective_lr, rel=1e-5)
        assert [row["steps"] for row in one.table()] == [row["steps"] for row in other.table()]


def test_the_table_of_a_study_that_was_run_is_read_as_its_results(tmp_path: Path) -> None:
    found = run(small(searches=2), store=tmp_path / "small.db")
    made = curves_of(found.points)
    again = read_curves(read_table(written(made, tmp_path)))
    assert findings(again) == findings(made)
    assert any(one.certain and len(one.rates[0]) == 2 for one in made)
    for one, other in zip(again, made, strict=True):
        assert np.concatenate(one.rates) == pytest.approx(np.concatenate(other.rates), rel=1e-5)
        # The table shows the search with the smallest median.
        shown = [int(np.argmin([np.median(seeds) for seeds in searches])) for searches in other.repeats]
        best = [rates[i] for rates, i in zip(other.rates, shown, strict=True)]
        assert other.effective_lr == pytest.approx(best, rel=1e-12)


def test_a_seed_more_or_less_would_show(tmp_path: Path) -> None:
    path = written(study(), tmp_path)
    text = path.read_text()
    first = study()[0].table()[0]["searches"]
    path.write_text(text.replace(str(first), str(first).split(";")[0], 1))
    assert findings(read_curves(read_table(path))) != findings(study())


def test_edges_bounds_and_what_is_not_finished_are_in_the_file(tmp_path: Path) -> None:
    sgd, momentum, *_ = study()
    sgd = replace(sgd, at_edge=(("lr high", "momentum low"), *((),) * 7), unfinished=(*(False,) * 7, True))
    made = [sgd, never_at(momentum, 7, allowed=90)]
    found = read_curves(read_table(written(made, tmp_path)))
    assert [one.doubts() for one in found] == [one.doubts() for one in made]
    assert len(found[0].doubts()) == 3
    assert found[1].ran_out.tolist() == [False] * 7 + [True]
    assert found[1].least.tolist() == made[1].least.tolist()


def test_a_table_without_searches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Wrong, match="it has no allowed, searches"):
        read_table(written(study()[:2], tmp_path, ("allowed", "searches")))


def test_another_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("lr,loss\n0.1,3\n")
    with pytest.raises(Wrong, match="it has no optimizer, batch_size"):
        read_table(tmp_path / "other.csv")
