"""A store that version 0.1.0 wrote, before modules moved and before rows had checksums: read alike, and not continued.

``tests/data/lab/digits.db`` is the study ``digits.toml``, run with ``nqm lab run digits.toml --widen``; beside it is what
that version said of it. The worker is recorded there as ``nqm.nets.trials:run_trials``, and there is no such module now.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import pytest

from nqm.lab import Results, Study, run
from nqm.lab.compare import curves_of, findings
from nqm.lab.compare.curves import MEASURED
from nqm.lab.compare.report import finding_rows
from nqm.lab.study import RECORDED_WORKER, WORKER
from nqm.show.verdict import Verdict
from nqm.types import Wrong

DATA = Path(__file__).parents[1] / "data" / "lab"
KEYS = {
    "digits": "11082e5ae51b", "digits_checkpoint": "95623a4a9336", "fashion_cnn": "69119f03eff3", "fashion_large": "d9b0da84d68d",
}  # fmt: skip
"""Keys of the example studies of version 0.1.0, in ``tests/data/lab/studies``, as that version computed them."""


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
    table = json.loads(json.dumps(found.table()))
    assert {row.pop("searches") for row in table} == {1}  # There were no repeated searches.
    assert table == before["table"]
    with (DATA / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(kept.trial.key, kept.result.outcome) for kept in found.trials()] == [
        (r["key"], r["outcome"]) for r in rows
    ]
    assert all(found.curve(point)[0] for point in found.points)


def test_comparisons_are_as_they_were_and_undecided(old: Path) -> None:
    """Steps and critical batch sizes stay; one search does not tell how far to trust them."""
    before = json.loads((DATA / "compare.json").read_text())
    curves = curves_of(Results.open(old).points)
    table = [row for curve in curves for row in curve.table()]
    assert [
        {name: row[name] for name in old_row} for row, old_row in zip(table, before["table"], strict=True)
    ] == before["table"]
    known = [r["statement"] for r in before["findings"]]
    assert [row["statement"] for row in finding_rows(findings(curves)) if row["statement"] in known] == known
    assert {finding.verdict for finding in findings(curves)} == {Verdict.open}
    for curve in curves:
        for definition in MEASURED:
            found, told = curve.critical_batch_size(definition), before["critical_batch_size"][curve.name][definition]
            assert found.value == pytest.approx(math.inf if told["value"] is None else told["value"], rel=1e-12)
            assert math.isnan(found.low)


@pytest.mark.parametrize("retry", [False, True])
def test_it_is_not_continued_and_not_changed(retry: bool, old: Path) -> None:
    before = old.with_suffix(".db").read_bytes()
    with pytest.raises(
        Wrong, match=r"written by an earlier version of nqm, .* it can be read, and not continued; name another"
    ):
        run(old, retry_failed=retry)
    assert old.with_suffix(".db").read_bytes() == before
    assert sorted(path.name for path in old.parent.iterdir()) == ["digits.db", "digits.toml"]


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_the_example_studies_stay(name: str) -> None:
    study = Study.load(DATA / "studies" / f"{name}.toml")
    assert study.key == KEYS[name]


def test_a_study_that_names_the_first_address_is_the_same_study(tmp_path: Path) -> None:
    text = (DATA / "digits.toml").read_text()
    path = tmp_path / "digits.toml"
    path.write_text(text.replace("[study]", f'[study]\nworker = "{RECORDED_WORKER}"'))
    assert Study.load(path) == Study.load(DATA / "digits.toml")
