"""The verbs of the lab: what they print is what the library has, and what is wrong is one sentence."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli import shell
from click.testing import Result
from lab_studies import TOML, Table

from nqm.cli import main
from nqm.cli.options import verbs
from nqm.lab import Results, Store, Study
from nqm.lab.plan import cells
from nqm.lab.source import versioned


def call(*args: object) -> Result:
    return shell.call("lab", *args)


def told(*args: object, status: int = 2) -> str:
    return shell.told(call(*args), status)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs")
    (folder / "digits.toml").write_text(TOML.format(worker="run_trials"))
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a study and its store."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    if not (folder / "digits.db").exists():
        assert call("run", "digits.toml", "--on", "here").exit_code == 0
    return folder


def test_run_prints_the_table(undisturbed: Table) -> None:
    result = call("run", "digits.toml", "--on", "here", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["table"] == undisturbed
    assert "goes on" not in result.stderr
    text = call("run", "digits.toml", "--on", "here").stdout
    assert "EMA(HeavyBall), steps to train_loss 0.05" in text
    assert "it lies between low and high with probability 75%" in text


def test_status_says_what_the_store_has(undisturbed: Table) -> None:
    for file in ("digits.toml", "digits.db"):
        assert json.loads(call("status", file, "--json").stdout)["table"] == undisturbed
    assert call("status", "digits.db").stdout.endswith("nothing is running\n")
    rows = list(csv.DictReader(io.StringIO(call("status", "digits.db", "--csv", "-").stdout)))
    assert [int(row["steps"]) for row in rows] == [row["steps"] for row in undisturbed]


def test_list_picks_trials() -> None:
    rows = json.loads(call("list", "digits.db", "--json").stdout)
    assert len(rows) == len(Results.open("digits.db").trials())
    some = json.loads(call("list", "digits.db", "--optimizer", "HeavyBall", "-b", 16, "--json").stdout)
    assert some == [row for row in rows if (row["optimizer"], row["batch_size"]) == ("HeavyBall", 16)]
    assert {"lr", "momentum", "steps", "steps ema(0.9)", "outcome", "kind", "key"} <= set(some[0])
    stopped = json.loads(call("list", "digits.db", "--outcome", "stopped", "--json").stdout)
    assert stopped == [row for row in rows if row["outcome"] == "stopped"]
    assert stopped
    assert f"{len(rows)} trials" in call("list", "digits.db").stdout


def test_show_has_all_of_a_trial() -> None:
    point = Results.open("digits.db")["HeavyBall"][1]
    assert point.trial is not None
    found = json.loads(call("show", "digits.db", point.trial.key[:12], "--json").stdout)
    assert found["trial"] == point.trial.to_dict() | {"limit": found["trial"]["limit"]}
    assert found["result"]["steps"]["raw"] == point.steps
    text = call("show", "digits.toml", point.trial.key).stdout
    assert f"{point.steps}" in text
    rows = list(csv.DictReader(io.StringIO(call("show", "digits.db", point.trial.key, "--csv", "-").stdout)))
    assert list(rows[0]) == ["step", "raw", "ema(0.9)", "ema(0.99)"]


@pytest.mark.parametrize("what", ["results", "trials", "curves"])
def test_export(what: str, inside: Path) -> None:
    rows = json.loads(call("export", "digits.db", "--what", what, "--json").stdout)
    text = call("export", "digits.db", "--what", what).stdout
    assert call("export", "digits.db", "--what", what, "--out", "some.csv").stderr == "wrote some.csv\n"
    assert (inside / "some.csv").read_text() == text
    found = list(csv.DictReader(io.StringIO(text)))
    assert len(found) == len(rows)
    assert [row["optimizer"] for row in found] == [row["optimizer"] for row in rows]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert call("export", "digits.db", "--what", what, "--out", "some.parquet").exit_code == 0
    back = parquet.read_table("some.parquet").to_pylist()
    assert [{k: v for k, v in row.items() if v is not None} for row in back] == [
        {k: v for k, v in row.items() if v is not None} for row in rows
    ]


def test_parquet_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "Parquet needs pyarrow: pip install pyarrow" in told(
        "export", "digits.db", "--out", "some.parquet", status=1
    )


def test_a_study_that_changed_on_disk_is_another(inside: Path) -> None:
    (inside / "other.toml").write_text(TOML.format(worker="run_trials").replace("target = 0.05", "target = 0.1"))
    assert call("run", "other.toml", "--on", "here", "--store", "both.db").exit_code == 0
    assert call("run", "digits.toml", "--on", "here", "--store", "both.db").exit_code == 0
    text = call("status", "both.db").stdout
    assert "studies in both.db: digits (" in text
    assert f"shown is {Results.open('both.db', 'digits').study.key}" in text
    other = json.loads(call("status", "both.db", "--study", "other", "--json").stdout)
    assert other["study"]["study"]["target"] == 0.1


def test_a_target_out_of_reach_is_status_1(inside: Path) -> None:
    text = TOML.format(worker="run_trials").replace("target = 0.05", "target = 1e-9").replace("4000", "40")
    (inside / "hard.toml").write_text(text)
    result = call("run", "hard.toml", "--on", "here")
    assert result.exit_code == 1
    assert "trials reached 1e-09 within 40 steps" in result.stdout
    assert "train_loss 1e-09; take an easier target, or more steps" in told(
        "plot", "hard.toml", "--out", "hard.png", status=1
    )
    assert call("list", "hard.db", "--outcome", "failed").stdout == "0 trials\n"


def test_a_worker_that_fails_is_one_sentence(inside: Path) -> None:
    (inside / "bad.toml").write_text(TOML.format(worker="raises"))
    result = call("run", "bad.toml", "--on", "here")
    assert result.exit_code == 1
    sentence = result.stderr.splitlines()[-1]
    assert sentence.startswith(
        "Error: the worker lab_workers:raises failed with ZeroDivisionError: on purpose (lab_workers.py"
    )
    assert "; bad.db has what had ended, and nqm lab run bad.toml goes on" in sentence
    assert 'raise ZeroDivisionError("on purpose")' in result.stderr  # from the traceback of the worker


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("run", "none.toml"), "does not exist"),
        (("run", "digits.db"), "is not a TOML file"),
        (("run", "digits.toml", "--on", "cloud"), "on must be local, here, dask"),
        (
            ("run", "digits.toml", "--on", "here", "--workers", "2"),
            "with --on here, this process is the only one: omit it",
        ),
        (
            ("run", "digits.toml", "--on", "tcp://a:1", "--workers", "2"),
            "a scheduler has the workers it has: omit it",
        ),
        (("run", "digits.toml", "--store", "digits.toml"), "it is no SQLite file; it was left as it is"),
        (("run", "digits.toml", "--store", "-"), "must be the name of a file, got '-'"),
        (("run", "digits.toml", "--stacking", "maybe"), "'maybe' is not one of"),
        (("status", "digits.db", "--study", "none"), "has no study 'none'; there are digits"),
        (("list", "digits.db", "--outcome", "won"), "there is no outcome 'won'"),
        (("list", "digits.db", "--outcome", ""), "there is no outcome ''"),
        (("list", "digits.db", "--optimizer", "sgd"), "no optimizer in digits called 'sgd'"),
        (
            ("list", "digits.db", "--optimizer", "EMA(HeavyBall)"),
            "computed from the trials of HeavyBall: --optimizer HeavyBall",
        ),
        (("list", "digits.db", "-b", "7"), "no batch size 7 in digits; there are 4, 16, 64"),
        (("show", "digits.db", "xyz"), "no trial has a key that begins with 'xyz'"),
        (("export", "digits.db", "--out", "some.xls"), "should end in .csv, .parquet"),
        (("rum",), "did you mean run?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_calls_are_one_sentence(args: tuple[str, ...], sentence: str) -> None:
    assert sentence in told(*args)


EXAMPLES = [e for name, verb in verbs(main).items() if name.startswith("lab ") for e in verb.examples]


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_parse(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name a study of digits, which here is one that needs no torch, and a key that no one knows beforehand."""
    words = shlex.split(line)
    assert words[:2] == ["nqm", "lab"]
    (point, *_) = Results.open("digits.db").points
    assert point.trial is not None
    words = [point.trial.key[:8] if word == "3f2a" else word for word in words]
    if "--on" in words or words[2] in ("compare", "plot", "report"):
        return  # there is no such scheduler
    if ".parquet" in line:
        pytest.importorskip("pyarrow")
    result = call(*words[2:])
    assert result.exit_code == 0, result.output


def test_brackets_in_names_are_printed(inside: Path) -> None:
    """A label, a name or a message that looks like markup, or like the name of a picture, is neither."""
    label = "[red]SGD[/] :smile:"
    text = TOML.format(worker="run_trials").replace("optimizers.SGD]", f"optimizers.'{label}']\noptimizer = 'SGD'")
    (inside / "odd.toml").write_text(text.replace("[study]", "[study]\nname = '[bold]x'"))
    result = call("run", "odd.toml", "--on", "here")
    assert result.exit_code == 0, result.output
    assert f"{label}, steps to train_loss" in result.stdout
    assert f"{label} at batch size 4: " in result.stderr
    assert label in call("list", "odd.db", "--optimizer", label).stdout
    assert f"called '[/x]'; there are {label}, HeavyBall" in told("list", "odd.db", "--optimizer", "[/x]")
    assert "there are [bold]x (" in told("status", "odd.db", "--study", "[/x]")


def test_alone_it_shows_its_verbs() -> None:
    result = call()
    assert result.exit_code == 0
    for name in ("run", "status", "list", "show", "export"):
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("run", "digits.toml", "--on", "here"),
        ("status", "digits.db"),
        ("list", "digits.db"),
        ("export", "digits.db"),
        ("compare", "digits.db"),
        (),
    ],
    ids=lambda args: args[0] if args else "lab",
)  # fmt: skip
@pytest.mark.parametrize("number", shell.BROKEN)
def test_what_cannot_be_printed_is_told(args: tuple[str, ...], number: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert shell.BROKEN[number] in shell.told_without_output(("lab", *args), number, capfd)


def test_a_study_with_a_byte_order_mark_is_read(inside: Path) -> None:
    (inside / "marked.toml").write_bytes(b"\xef\xbb\xbf" + (inside / "digits.toml").read_bytes())
    assert call("run", "marked.toml", "--on", "here", "--store", "digits.db").exit_code == 0


def test_a_dry_run_trains_nothing_and_says_what_it_would_take(inside: Path) -> None:
    (inside / "dry.toml").write_text(TOML.format(worker="run_trials").replace("searches = 1", "searches = 2"))
    found = json.loads(call("run", "dry.toml", "--dry-run", "--workers", "2", "--json").stdout)
    assert not (inside / "dry.db").exists()
    rows = {(row["optimizer"], row["batch_size"]): row for row in found["table"]}
    # Two searches of six trials; three fresh seeds for each row, and heavy ball has a row for its averages.
    assert rows["SGD", 4]["trials"] == 2 * (6 + 3)
    assert rows["HeavyBall", 64]["trials"] == 2 * (6 + 2 * 3)
    assert rows["SGD", 4]["most_steps"] == 2 * (6 + 3) * 4000
    assert found["trials"] == sum(row["trials"] for row in found["table"])
    text = call("run", "dry.toml", "--dry-run").stdout
    assert "time and memory are not known: the worker's module has no function cost(trial)" in text
    assert call("run", "dry.toml", "--on", "here").exit_code == 0
    assert json.loads(call("run", "dry.toml", "--dry-run", "--json").stdout)["trials"] == 0  # It has ended.


def test_a_dry_run_refuses_what_a_run_would(inside: Path) -> None:
    text = TOML.format(worker="run_trials").replace("high = 0.99}", "high = 1.5, scale = 'linear'}")
    (inside / "wrong.toml").write_text(text)
    assert "momentum must be in [0, 1)" in told("run", "wrong.toml", "--dry-run")


@pytest.mark.slow
def test_a_dry_run_of_a_network_knows_time_and_memory(inside: Path) -> None:
    root = Path(__file__).parents[2]
    found = json.loads(call("run", root / "examples/studies/digits.toml", "--dry-run", "--json").stdout)
    assert all(row["step_seconds"] > 0 and row["memory"] > 1 for row in found["table"])
    assert found["most_seconds"] == pytest.approx(sum(row["most_seconds"] for row in found["table"]))


def test_status_names_cells_at_work_and_damage(inside: Path) -> None:
    (inside / "busy.toml").write_text(TOML.format(worker="run_trials").replace("seeds = 3", "seeds = 3\nseed = 5"))
    study = versioned(Study.load("busy.toml"), inside)
    with Store.open("busy.db", write=True) as store:
        store.register(study)
        store.enlist("me", study, {})
        (cell, *_) = cells(study)
        store.claim("me", study.worker, [trial.key for trial in cell.round or ()])
    text = call("status", "busy.toml").stdout
    assert "4 trials are running\n- at work: SGD at batch size 4 (search), 4 trials" in text
    assert json.loads(call("status", "busy.db", "--json").stdout)["at_work"] == {"SGD at batch size 4 (search)": 4}
    shutil.copy("digits.db", "hurt.db")
    with closing(sqlite3.connect("hurt.db")) as db, db:
        db.execute("UPDATE trials SET outcome = 'failed' WHERE id = 3")
    assert "- damaged and not counted: row 3 (" in call("status", "hurt.db").stdout


def test_export_refuses_a_missing_folder(inside: Path) -> None:
    assert "there is no folder 'nowhere' to write some.csv in; make it" in told(
        "export", "digits.db", "--out", "nowhere/some.csv"
    )
    assert not (inside / "nowhere").exists()
