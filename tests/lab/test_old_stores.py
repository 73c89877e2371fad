"""A store that version 0.1.0 wrote, before modules moved: read alike, continued without training anything again.

``tests/data/lab/digits.db`` is the study ``digits.toml``, run with ``nqm lab run digits.toml --widen``; beside it is what
that version said of it. The worker is recorded there as ``nqm.nets.trials:run_trials``, and there is no such module now.
"""

from __future__ import annotations

import csv
import html
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from nqm.lab import Results, Snapshot, Store, Study, run
from nqm.lab.compare import curves_of, findings
from nqm.lab.compare.curves import MEASURED
from nqm.lab.compare.report import finding_rows, toml
from nqm.lab.study import RECORDED_WORKER, WORKER

DATA = Path(__file__).parents[1] / "data" / "lab"
KEYS = {
    "digits": "11082e5ae51b", "digits_checkpoint": "95623a4a9336", "fashion_cnn": "69119f03eff3", "fashion_large": "d9b0da84d68d",
}  # fmt: skip
"""Keys of the example studies, as version 0.1.0 computed them."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The study and its store, where a test may write."""
    for name in ("digits.toml", "digits.db"):
        shutil.copy(DATA / name, tmp_path / name)
    return tmp_path / "digits.toml"


@pytest.mark.parametrize("name", ["digits.db", "digits.toml"])
def test_results_are_read_as_they_were(name: str, old: Path) -> None:
    found, before = Results.open(old.with_name(name)), json.loads((DATA / "table.json").read_text())
    assert found.finished
    assert found.study.worker == WORKER
    assert found.study.key == before["key"]
    assert json.loads(json.dumps(found.table())) == before["table"]
    with (DATA / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(kept.trial.key, kept.result.outcome) for kept in found.trials()] == [
        (r["key"], r["outcome"]) for r in rows
    ]
    assert all(found.curve(point)[0] for point in found.points)


def test_comparisons_are_as_they_were(old: Path) -> None:
    before = json.loads((DATA / "compare.json").read_text())
    curves = curves_of(Results.open(old).points)
    assert [row for curve in curves for row in curve.table()] == before["table"]
    assert finding_rows(findings(curves)) == before["findings"]
    for curve in curves:
        for definition in MEASURED:
            told = before["critical_batch_size"][curve.name][definition]
            assert [told[k] if told[k] is not None else "beyond" for k in ("value", "low", "high")] == [
                x if x < 1e300 else "beyond" for x in curve.critical_batch_size(definition).to_dict().values()
            ]


def test_a_run_goes_on_and_trains_nothing_again(old: Path) -> None:
    seen: list[Snapshot] = []
    before = Results.open(old).table()
    assert run(old, watch=seen.append, widen=True).table() == before
    assert seen[-1].new == 0
    with Store.open(old.with_suffix(".db")) as store:
        assert [study.key for study in store.studies()] == [Study.load(old).key]


def test_what_a_run_adds_has_the_recorded_name(old: Path, tmp_path: Path) -> None:
    """So an earlier version reads the store too."""
    study = Study.load(old)
    with Store.open(old.with_suffix(".db"), write=True) as store:
        store.register(study)
        trial = study.trial("SGD", 16, {"lr": 0.123})
        assert store.claim("me", study.worker, [trial.key])
        assert not store.claim("me", study.worker, [next(store.trials()).trial.key])  # It is kept already.
        known = next(iter(store.results(study.worker)[0].values()))
        store.add("me", study, "SGD", "search", [(trial, known)])
    with sqlite3.connect(old.with_suffix(".db")) as db:
        assert db.execute("SELECT DISTINCT worker FROM trials").fetchall() == [(RECORDED_WORKER,)]
        assert db.execute("SELECT DISTINCT worker FROM claims").fetchall() in ([], [(RECORDED_WORKER,)])
        assert [json.loads(d)["study"]["worker"] for (d,) in db.execute("SELECT data FROM studies")] == [
            RECORDED_WORKER
        ]
    db.close()


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_the_example_studies_stay(name: str) -> None:
    study = Study.load(Path(__file__).parents[2] / "examples" / "studies" / f"{name}.toml")
    assert study.key == KEYS[name]


def test_a_study_that_names_the_first_address_is_the_same_study(tmp_path: Path) -> None:
    text = (DATA / "digits.toml").read_text()
    path = tmp_path / "digits.toml"
    path.write_text(text.replace("[study]", f'[study]\nworker = "{RECORDED_WORKER}"'))
    assert Study.load(path) == Study.load(DATA / "digits.toml")


def test_the_report_in_the_documentation_shows_the_study_as_it_is_now() -> None:
    root = Path(__file__).parents[2]
    shown = (root / "docs" / "results" / "digits.html").read_text()
    written = toml(Study.load(root / "examples" / "studies" / "digits.toml").to_dict())
    assert html.escape(written.strip()) in shown
