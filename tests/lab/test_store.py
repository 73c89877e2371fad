"""The store: keeps each result once, recognises what is not its own, and shares out work."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lab_studies import small
from lab_workers import train

from nqm.lab import LabError, Study, Trial, run
from nqm.lab import store as module
from nqm.lab.store import Store
from nqm.types import Wrong

KEYS = ["a", "b", "c"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "with space?.db"


def trials(study: Study, count: int = 3) -> list[Trial]:
    return [study.trial("HeavyBall", 16, {"lr": 0.1 * (i + 1), "momentum": 0.5}) for i in range(count)]


def test_what_is_kept_comes_back(path: Path, study: Study) -> None:
    pairs = [(trial, train(trial)) for trial in trials(study)]
    with Store.open(path, write=True) as store:
        store.register(study)
        assert store.add("me", study, "HeavyBall", "search", pairs) == 3
        assert store.add("you", study, "HeavyBall", "search", pairs) == 0  # each once
    with Store.open(path) as store:
        assert store.studies() == [study]
        kept = list(store.trials())
        assert [k.trial for k in kept] == [trial for trial, _ in pairs]
        assert [k.runner for k in kept] == ["me"] * 3
        for k, (trial, result) in zip(kept, pairs, strict=True):
            assert (k.result.outcome, k.result.steps) == (result.outcome, result.steps)
            assert store.curve(k.id) == (result.times, result.curves)
            assert store.find(trial.key[:10]) == k
        known, last = store.results(study.worker)
        assert set(known) == {trial.key for trial, _ in pairs}
        assert store.results(study.worker, last) == ({}, last)
        assert store.results("another:worker")[0] == {}
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # one file, once no one is at it


def test_find_names_what_is_wrong(path: Path, study: Study) -> None:
    with Store.open(path, write=True) as store:
        store.add("me", study, "HeavyBall", "search", [(t, train(t)) for t in trials(study)])
        with pytest.raises(ValueError, match="no trial has"):
            store.find("x")
        with pytest.raises(ValueError, match="3 trials have a key that begins with ''; give more of it"):
            store.find("")


def test_failed_trials_can_be_forgotten(path: Path) -> None:
    study = small(optimizers={"HeavyBall": {"broken": True}})
    with Store.open(path, write=True) as store:
        store.add("me", study, "HeavyBall", "search", [(t, train(t)) for t in trials(study)])
        assert store.forget_failed(study) == 3
        assert store.results(study.worker)[0] == {}


# Files that are not stores.


def test_there_must_be_one_to_read(path: Path) -> None:
    with pytest.raises(ValueError, match="there is no store"):
        Store.open(path)
    assert not path.exists()


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine(x)")
    db.close()


def newer(path: Path) -> None:
    Store.open(path, write=True).__exit__()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {module.STORE_FORMAT + 1}")
    db.close()


def torn(path: Path) -> None:
    """A store whose pages hold something else, from the second on."""
    filled(path)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def cut(path: Path) -> None:
    filled(path)
    path.write_bytes(path.read_bytes()[:-8192])


def emptied(path: Path) -> None:
    """A file that says it is ours and has none of our tables."""
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA application_id = {module.APPLICATION}")
        db.execute("CREATE TABLE mine(x)")
    db.close()


def filled(path: Path) -> None:
    study = small()
    with Store.open(path, write=True) as store:
        store.register(study)
        store.add("me", study, "HeavyBall", "search", [(t, train(t)) for t in trials(study, 40)])


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda path: path.write_text("[study]\n"), Wrong, "no SQLite file"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), Wrong, "no SQLite file"),
        (foreign, Wrong, "another program's SQLite file"),
        (newer, Wrong, "another version of nqm"),
        (torn, LabError, "is damaged"),
        (cut, LabError, "is damaged"),
        (emptied, LabError, "is damaged"),
    ],
    ids=["text", "stump", "foreign", "newer", "torn", "cut", "emptied"],
)
@pytest.mark.parametrize("write", [True, False], ids=["write", "read"])
def test_what_is_not_a_store_is_refused_and_left_alone(
    make: Callable[[Path], None], error: type[Exception], why: str, write: bool, tmp_path: Path
) -> None:
    path = tmp_path / "some.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(error, match=why) as caught:
        Store.open(path, write=write)
    assert caught.value.argument == "store" if isinstance(caught.value, Wrong) else not caught.value.resumable
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["some.db"]


def test_an_empty_file_becomes_a_store(tmp_path: Path, study: Study) -> None:
    path = tmp_path / "some.db"
    path.touch()
    with pytest.raises(Wrong, match=r"some.db' is an empty file; nqm lab run makes a store of it"):
        Store.open(path)
    assert path.read_bytes() == b""
    with Store.open(path, write=True) as store:
        store.register(study)
    with Store.open(path) as store:
        assert store.studies() == [study]


def test_a_store_in_a_folder_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.db"
    filled(path)
    connect = sqlite3.connect

    class Refuses:
        def execute(self, *_: object) -> None:
            raise sqlite3.OperationalError("unable to open database file")

        def close(self) -> None:
            pass

    def refuse(name: str, **extra: Any) -> Any:
        return Refuses() if "mode=ro" in name else connect(name, **extra)

    monkeypatch.setattr(sqlite3, "connect", refuse)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    with Store.open(path) as store:
        assert len(list(store.trials())) == 40


# Who does what.


def test_claims_are_exclusive_until_given_up(path: Path, study: Study) -> None:
    with Store.open(path, write=True) as one, Store.open(path, write=True) as two:
        one.enlist("one", study, {})
        two.enlist("two", study, {})
        assert one.claim("one", study.worker, ["a", "b"])
        assert not two.claim("two", study.worker, ["b", "c"])  # all or none
        assert two.claim("two", study.worker, ["c"])
        assert two.claim("two", "another:worker", ["a"])
        assert len(one.at_work(study.worker)) == 3
        one.release(study.worker, ["b"])
        assert two.claim("two", study.worker, ["b"])
        one.discharge("one")
        assert two.claim("two", study.worker, ["a"])


def test_what_is_kept_cannot_be_claimed(path: Path, study: Study) -> None:
    (trial,) = trials(study, 1)
    with Store.open(path, write=True) as store:
        store.enlist("one", study, {})
        assert store.claim("one", study.worker, [trial.key])
        store.add("one", study, "HeavyBall", "search", [(trial, train(trial))])
        assert not store.at_work(study.worker)
        assert not store.claim("one", study.worker, [trial.key])


def test_claims_lapse_with_a_silent_runner(path: Path, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path, write=True) as store:
        store.enlist("one", study, {})
        store.enlist("two", study, {})
        assert store.claim("one", study.worker, KEYS)
        now = time.time()
        monkeypatch.setattr(module.time, "time", lambda: now + module.LEASE_SECONDS - 5)
        store.beat("one")
        monkeypatch.setattr(module.time, "time", lambda: now + 2 * module.LEASE_SECONDS - 10)
        assert not store.claim("two", study.worker, KEYS)
        monkeypatch.setattr(module.time, "time", lambda: now + 2 * module.LEASE_SECONDS)
        assert store.claim("two", study.worker, KEYS)


def test_claims_lapse_with_a_dead_process(path: Path, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with Store.open(path, write=True) as store:
        monkeypatch.setattr(module.os, "getpid", lambda: gone.pid)
        store.enlist("one", study, {})
        assert store.claim("one", study.worker, KEYS)
        assert store.claim("two", study.worker, KEYS)
        elsewhere = module.place()
        store.enlist("three", study, {})
        assert store.claim("three", study.worker, KEYS)
        monkeypatch.setattr(module, "place", lambda: elsewhere + " elsewhere")
        assert not store.claim("two", study.worker, KEYS)  # of another machine's processes nothing is known


@pytest.mark.slow
def test_a_reader_does_not_take_the_log_away_from_a_runner(path: Path, study: Study) -> None:
    """A process that opens its store twice keeps its locks: what it writes after others have looked is there for all."""
    look = f"from nqm.lab import Store\nwith Store.open({str(path)!r}) as s: print(len(list(s.trials())))"
    with Store.open(path, write=True) as store:
        store.register(study)
        with Store.open(path, write=True) as second:  # as the thread that says that a runner is alive
            second.beat("nobody")
            for count, trial in enumerate(trials(study)):
                assert store.add("me", study, "HeavyBall", "search", [(trial, train(trial))]) == 1
                seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
                assert seen.strip() == str(count + 1)
                assert path.with_name(path.name + "-wal").exists()


# Disks that take nothing.


def test_a_full_disk_is_one_sentence_and_loses_nothing(path: Path, study: Study) -> None:
    pairs = [(trial, train(trial)) for trial in trials(study, 200)]
    with Store.open(path, write=True) as store:
        store.add("me", study, "HeavyBall", "search", pairs[:3])
        ((pages,),) = store.db.execute("PRAGMA page_count").fetchall()
        store.db.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(LabError, match=r"with space\?\.db': database or disk is full; make room on its disk$"):
            store.add("me", study, "HeavyBall", "search", pairs)
        assert len(list(store.trials())) == 3
        store.db.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert store.add("me", study, "HeavyBall", "search", pairs) == 197


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, at = tmp_path / "some.db", module._at
    filled(path)
    monkeypatch.setattr(module, "_at", lambda path, how: at(path, how.replace("mode=rwc", "mode=ro")))
    with pytest.raises(
        LabError, match=r"cannot write to the store .*some\.db': attempt to write a readonly .* --store"
    ):
        Store.open(path, write=True)
    with Store.open(path) as store:
        assert len(list(store.trials())) == 40


def test_a_disk_that_fills_up_ends_a_run_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept is there, and the same call goes on; no thread of the runner leaves a traceback."""
    path, connect = tmp_path / "small.db", module._connect

    def small_disk(path: Path, write: bool) -> Any:
        connection = connect(path, write)
        connection.execute("PRAGMA max_page_count = 16")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(module, "_connect", small_disk)
        patch.setattr(threading, "excepthook", lambda args: pytest.fail(f"{args}"))
        with pytest.raises(LabError, match="is full; make room"):
            run(small(), store=path)
    with Store.open(path) as store:
        assert len(list(store.trials())) > 0
    assert run(small(), store=path).finished


def test_a_log_that_went_over_in_part_is_no_damage(path: Path, study: Study, tmp_path: Path) -> None:
    """On a full disk the log stays, with some of its pages in the file: the two make sense together."""
    with Store.open(path, write=True) as store:
        store.add("me", study, "HeavyBall", "search", [(t, train(t)) for t in trials(study, 200)])
        copy = tmp_path / "copy.db"
        for ending in ("", "-wal"):  # as a disk has them after kill -9
            subprocess.run(["cp", f"{path}{ending}", f"{copy}{ending}"], check=True)
    log, frame = copy.with_name("copy.db-wal").read_bytes(), 24 + 4096
    first = [log[at + 24 : at + frame] for at in range(32, len(log), frame) if log[at : at + 4] == b"\0\0\0\1"]
    copy.write_bytes(first[-1] + copy.read_bytes()[4096:])  # the page that says how many pages there are
    for write in (False, True):
        with Store.open(copy, write=write) as store:
            assert len(list(store.trials())) == 200


# Damage.


def test_a_damaged_row_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    before = run(small(), store=path).table()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE trials SET steps = replace(steps, '1', '2') WHERE id = 5")
        db.execute("UPDATE curves SET data = zeroblob(9) WHERE id = 6")
    with Store.open(path) as store:
        (named,) = store.damaged()
        assert named.startswith("row 5 (HeavyBall ")
        assert 5 not in [kept.id for kept in store.trials()]
        assert 6 in [kept.id for kept in store.trials()]
        with pytest.raises(LabError, match=r"the curve of row 6 of .* is damaged; everything else"):
            store.curve(6)
        assert store.curve(7) == ([], {}) or store.curve(7)[0]
    with pytest.raises(
        LabError, match=r"1 rows of .* are damaged: row 5 \(HeavyBall .*--retry-failed trains them again"
    ):
        run(small(), store=path)
    assert run(small(), store=path, retry_failed=True).table() == before
    with Store.open(path) as store:
        assert store.damaged() == []


@pytest.mark.parametrize("column", ["worker", "key", "trial", "outcome", "seconds", "message", "finished", "checksum"])
def test_every_column_is_under_the_checksum(column: str, tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    run(small(batch_sizes=[4]), store=path)
    with closing(sqlite3.connect(path)) as db, db:
        value = "0" if column in ("seconds", "finished") else f"{column} || 'x'"
        db.execute(f"UPDATE trials SET {column} = {value} WHERE id = 2")
    with Store.open(path) as store:
        assert len(store.damaged()) == 1
