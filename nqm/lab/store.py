"""The store: one SQLite file, in which a trial is found by the hash of everything that decides its outcome.

Only runners write, in short transactions, and each result is written once. However a runner ends, the file holds all
trials that had ended. A runner *claims* the trials that it sends to workers. Its claims lapse when it ends, when its
process is gone, or when it has been silent for a minute. So several runners of one machine can share the work on one file.
Workers never open the file and may run anywhere.

Every row has a checksum of what it says. A row that does not match its checksum is damaged: it is named and not read, and all
other rows are.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import socket
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..nets.training.trial import Result, Trial
from ..types import Wrong
from .study import Study

APPLICATION = 0x6E716D4C  # The letters "nqmL" in the header of the file, by which a store is recognised.
STORE_FORMAT = 3  # The number of the file format, kept in the file's header.
LEASE_SECONDS = 60.0  # The claims of a runner that has been silent for this long lapse.
LOCK_SECONDS = 60.0  # A runner waits at most this long while another runner writes.
CHECKSUM_LENGTH = 16  # hexadecimal digits of a checksum; one in 10^19 damaged rows would go unnoticed
CURVE_DIGITS = 6  # Curves are stored with this many significant digits.

REMEDIES = {
    "SQLITE_FULL": "make room on its disk",
    "SQLITE_READONLY": "allow writing to the file and its folder, or name another store with --store",
    "SQLITE_CANTOPEN": "check that its folder exists and can be written, or name another store with --store",
    "SQLITE_BUSY": "another program has locked it: end that program",
}

SCHEMA = f"""
CREATE TABLE studies(key TEXT PRIMARY KEY, name TEXT, data TEXT, used REAL);
CREATE TABLE runners(id TEXT PRIMARY KEY, study TEXT, place TEXT, pid INTEGER, started REAL, beat REAL, ended REAL,
  versions TEXT);
CREATE TABLE claims(worker TEXT, key TEXT, runner TEXT, PRIMARY KEY(worker, key));
CREATE TABLE trials(id INTEGER PRIMARY KEY AUTOINCREMENT, worker TEXT, key TEXT, study TEXT, label TEXT, kind TEXT,
  trial TEXT, outcome TEXT, steps TEXT, seconds REAL, message TEXT, how TEXT, runner TEXT, finished REAL, checksum TEXT,
  UNIQUE(worker, key));
CREATE TABLE curves(id INTEGER PRIMARY KEY, data BLOB, checksum TEXT);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {STORE_FORMAT};
"""


class LabError(OSError):
    """A failure of the machine: a disk is full, a store is damaged, workers are lost. Its text says what to do.

    It is neither a wrong call (`Wrong`) nor a bug. ``resumable`` tells whether the store has all trials that had ended,
    so that the same run can go on once the cause is removed.
    """

    def __init__(self, sentence: str, *, resumable: bool = True) -> None:
        super().__init__(sentence)
        self.resumable = resumable


@dataclass(frozen=True)
class Kept:
    """A trial as the store has it; `Store.curve` returns its curve."""

    id: int
    trial: Trial
    result: Result
    study: str
    label: str
    kind: str
    runner: str
    finished: float
    worker: str


class Store:
    """An open store, made by `Store.open`; it is a context manager, which closes the file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.db = path, connection

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Store:
        """Open a store, or create one if it is to be written; a file that is not a store is refused and not changed."""
        path = Path(path)
        fresh = not path.exists() or (write and path.stat().st_size == 0)
        if fresh and not write:
            raise Wrong(f"there is no store {str(path)!r}; nqm lab run makes one", argument="store")
        if not write and path.stat().st_size == 0:
            raise Wrong(f"{str(path)!r} is an empty file; nqm lab run makes a store of it", argument="store")
        try:
            if fresh:
                _create(path)
            _recognise(path)
            store = cls(path, _connect(path, write))
        except sqlite3.Error as error:
            raise LabError(_told(f"cannot open the store {str(path)!r}", error), resumable=False) from None
        try:
            if write:  # Only a statement that writes shows whether the file can be written, before anything is trained.
                store._write("DELETE FROM claims WHERE 0")
        except LabError as error:
            store.db.close()
            error.resumable = False
            raise
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction: all of it is kept, or nothing."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self.db.rollback()
                raise
            self.db.commit()
        except sqlite3.OperationalError as error:
            raise LabError(_told(f"cannot write to the store {str(self.path)!r}", error)) from None

    def _write(self, statement: str, *values: float | str) -> None:
        with self.writing():
            self.db.execute(statement, values)

    # Studies.

    def register(self, study: Study) -> None:
        """Store the study, so that the file can be read without the study's own file."""
        row = study.key, study.name, json.dumps(study.to_dict()), time.time()
        self._write("INSERT OR REPLACE INTO studies VALUES (?, ?, ?, ?)", *row)

    def studies(self) -> list[Study]:
        """The studies that were run on this file, the latest first."""
        rows = [json.loads(data) for (data,) in self.db.execute("SELECT data FROM studies ORDER BY used DESC, key")]
        return [Study.from_dict(data) for data in rows]

    # Results.

    def results(self, worker: str, after: int = 0) -> tuple[dict[str, Result], int]:
        """Results by key, without curves, that were stored after the result number ``after``; and the last number."""
        found = list(self.trials("WHERE worker = ? AND id > ?", worker, after))
        return {kept.result.key: kept.result for kept in found}, max((kept.id for kept in found), default=after)

    def trials(self, where: str = "", *values: int | str) -> Iterator[Kept]:
        """Sound trials in the order in which they were stored; ``where`` is a condition in SQL, by default none."""
        for row in self._rows(where, *values):
            if self._sound(row):
                (
                    number,
                    worker,
                    key,
                    study,
                    label,
                    kind,
                    trial,
                    outcome,
                    steps,
                    seconds,
                    message,
                    how,
                    runner,
                    finished,
                    _,
                ) = row
                result = Result(key, outcome, json.loads(steps), {}, [], seconds, message, how)
                yield Kept(number, Trial.from_json(trial), result, study, label, kind, runner, finished, worker)

    def damaged(self) -> list[str]:
        """What is known of each row that does not match its checksum: its number, and the key and the label that it has now."""
        return [f"row {row[0]} ({row[4]!s:.40} {str(row[2])[:12]})" for row in self._rows() if not self._sound(row)]

    def forget_damaged(self) -> int:
        """Delete damaged rows, so that their trials are run again; return how many there were."""
        numbers = [(row[0],) for row in self._rows() if not self._sound(row)]
        with self.writing():
            for table in ("trials", "curves"):
                self.db.executemany(f"DELETE FROM {table} WHERE id = ?", numbers)
        return len(numbers)

    def _rows(self, where: str = "", *values: int | str) -> Iterator[tuple[Any, ...]]:
        yield from self.db.execute(f"SELECT * FROM trials {where} ORDER BY id", values)

    def _sound(self, row: tuple[Any, ...]) -> bool:
        """Whether a row matches its checksum."""
        return row[-1] == checksum(*row[1:-1])

    def find(self, key: str, worker: str | None = None) -> Kept:
        """The one trial whose key begins with ``key``; if several workers have trained it, that of ``worker``."""
        found = list(self.trials("WHERE substr(key, 1, ?) = ?", len(key), key))
        if len({kept.trial.key for kept in found}) == 1:
            found = [kept for kept in found if kept.worker == worker] or found
        if len(found) != 1:
            many = f"{len(found)} trials have a key that begins with {key!r}; give more of it"
            raise Wrong(many if found else f"no trial has a key that begins with {key!r}", argument="key")
        return found[0]

    def curve(self, number: int) -> tuple[list[int], dict[str, list[float]]]:
        """Steps, and the metric at them for each read-out."""
        row = self.db.execute("SELECT * FROM curves WHERE id = ?", (number,)).fetchone()
        if row is None or row[2] != checksum(row[1]):
            told = f"the curve of row {number} of {str(self.path)!r} is damaged"
            raise LabError(f"{told}; everything else in the store can be read", resumable=False)
        found = json.loads(zlib.decompress(row[1]))
        return found["times"], {n: [math.nan if v is None else v for v in c] for n, c in found["curves"].items()}

    def add(self, runner: str, study: Study, label: str, kind: str, pairs: Iterable[tuple[Trial, Result]]) -> int:
        """Store results, each once, and give up the claims on them; return how many were new."""
        worker, rows, new = study.worker, [(*pair, _packed(pair[1])) for pair in pairs], 0
        insert = f"INSERT OR IGNORE INTO trials VALUES (NULL{', ?' * 14})"
        with self.writing():
            for trial, result, curve in rows:
                row = (
                    worker, trial.key, study.key, label, kind, trial.to_json(), result.outcome, json.dumps(result.steps),
                    float(result.seconds), result.message, result.how, runner, time.time(),
                )  # fmt: skip
                done = self.db.execute(insert, (*row, checksum(*row)))
                if done.rowcount == 1:
                    self.db.execute("INSERT INTO curves VALUES (?, ?, ?)", (done.lastrowid, curve, checksum(curve)))
                    new += 1
                self.db.execute("DELETE FROM claims WHERE worker = ? AND key = ?", (worker, trial.key))
        return new

    def forget_failed(self, study: Study) -> int:
        """Delete trials that an exception ended, so that they are run again; return how many there were."""
        with self.writing():
            where = "FROM trials WHERE worker = ? AND outcome = 'failed'"
            self.db.execute(f"DELETE FROM curves WHERE id IN (SELECT id {where})", (study.worker,))
            return self.db.execute(f"DELETE {where}", (study.worker,)).rowcount

    # Runners and their claims.

    def enlist(self, runner: str, study: Study, versions: dict[str, str]) -> None:
        """Record a runner of a study, and the versions of the packages it uses."""
        row = runner, study.key, place(), os.getpid(), time.time(), time.time(), json.dumps(versions)
        self._write("INSERT INTO runners VALUES (?, ?, ?, ?, ?, ?, NULL, ?)", *row)

    def beat(self, runner: str) -> None:
        """Record that the runner is alive."""
        self._write("UPDATE runners SET beat = ? WHERE id = ?", time.time(), runner)

    def discharge(self, runner: str) -> None:
        """Record that the runner has ended, and give up its claims."""
        with self.writing():
            self.db.execute("DELETE FROM claims WHERE runner = ?", (runner,))
            self.db.execute("UPDATE runners SET ended = ? WHERE id = ?", (time.time(), runner))

    def claim(self, runner: str, worker: str, keys: Sequence[str]) -> bool:
        """Claim all of the trials, or none if one of them is in the store or claimed by another living runner."""
        which = f"worker = ? AND key IN ({', '.join('?' * len(keys))})"
        with self.writing():
            if self.db.execute(f"SELECT 1 FROM trials WHERE {which}", (worker, *keys)).fetchone():
                return False
            held = self.db.execute(f"SELECT DISTINCT runner FROM claims WHERE {which}", (worker, *keys)).fetchall()
            if any(holder != runner and self._lives(holder) for (holder,) in held):
                return False
            self.db.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", [(worker, k, runner) for k in keys])
            return True

    def release(self, worker: str, keys: Sequence[str]) -> None:
        """Give up claims without a result."""
        with self.writing():
            rows = [(worker, key) for key in keys]
            self.db.executemany("DELETE FROM claims WHERE worker = ? AND key = ?", rows)

    def at_work(self, worker: str) -> set[str]:
        """The keys of trials that living runners have claimed."""
        rows = self.db.execute("SELECT runner, key FROM claims WHERE worker = ?", (worker,)).fetchall()
        living = {runner for runner in {runner for runner, _ in rows} if self._lives(runner)}
        return {key for runner, key in rows if runner in living}

    def _lives(self, runner: str) -> bool:
        row = self.db.execute("SELECT place, pid, beat, ended FROM runners WHERE id = ?", (runner,)).fetchone()
        if row is None or row[3] is not None or time.time() - row[2] > LEASE_SECONDS:
            return False
        return row[0] != place() or _alive(row[1])


def checksum(*values: object) -> str:
    """A hash of the values of a row, as SQLite returns them."""
    data = json.dumps([v.hex() if isinstance(v, bytes) else v for v in values]).encode()
    return hashlib.sha256(data).hexdigest()[:CHECKSUM_LENGTH]


def _told(what: str, error: sqlite3.Error) -> str:
    """The error of SQLite, and what to do about it; the lowest byte of its code is the kind of error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    remedies = (text for name, text in REMEDIES.items() if getattr(sqlite3, name) == code)
    return f"{what}: {error}; {next(remedies, 'check its disk')}"


def place() -> str:
    """The machine and its namespace of process numbers, because containers may share the name of a machine."""
    with suppress(OSError):
        return f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino}"
    return socket.gethostname()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # The process exists, and belongs to another user.
    return True


def _packed(result: Result) -> bytes:
    curves = {
        name: [float(f"{v:.{CURVE_DIGITS}g}") if v is not None else None for v in curve]
        for name, curve in result.to_dict()["curves"].items()
    }
    return zlib.compress(json.dumps({"times": list(result.times), "curves": curves}).encode())


def _recognise(path: Path) -> None:
    """Refuse a file that is not a sound store. Nothing is written, neither into the file nor beside it.

    SQLite must open the file, never ``open``: a process that closes a file loses all its locks on it, also those of its other
    connections, and another process would then remove the log that they write to.
    """
    name, how = repr(str(path)), _untouched(path)
    application, version, found = _header(path, how)
    if found != "ok" and _untouched(path) != how:  # A runner began to write in the meantime.
        application, version, found = _header(path, "mode=ro")
    if application not in (None, APPLICATION):
        why = f"{name} is not a store of nqm lab: it is another program's SQLite file; it was left as it is"
        raise Wrong(why, argument="store")
    if version not in (0, STORE_FORMAT):
        other = f"{name} was written by another version of nqm (format {version}, this one knows {STORE_FORMAT})"
        raise Wrong(f"{other}; it was left as it is: name another store with --store", argument="store")
    if found != "ok":
        raise LabError(
            f"the store {name} is damaged ({' '.join(found.split())}); it was left as it is: restore a copy, or let "
            f"nqm lab salvage {shlex.quote(str(path))} --out saved.db save what can still be read, and go on with --store saved.db",
            resumable=False,
        )


def _untouched(path: Path) -> str:
    """How to read without writing; a file with a write-ahead log beside it must be read together with the log."""
    return "mode=ro" if path.with_name(path.name + "-wal").exists() else "immutable=1"


def _header(path: Path, how: str) -> tuple[int | None, int, str]:
    """The application and the format in the header of a file, and ``ok`` or what is wrong with the file."""
    application, version = None, 0
    try:
        with closing(_at(path, how)) as db:
            application, version = (
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            )
            found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            db.execute("SELECT COUNT(*) FROM runners").fetchone()
    except sqlite3.DatabaseError as error:
        if application is None and error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            why = f"{str(path)!r} is not a store of nqm lab: it is no SQLite file; it was left as it is"
            raise Wrong(why, argument="store") from None
        if isinstance(error, sqlite3.OperationalError) and "no such table" not in str(error):
            raise  # The file is locked or not readable, and not damaged.
        found = str(error)
    return application, version, found


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, neither into the file nor beside it, and that does not ask whether the file is sound."""
    return _at(path, _untouched(path))


def _connect(path: Path, write: bool) -> sqlite3.Connection:
    """Open for writing or reading. A reader with write permission lets SQLite recover the log of a runner that was killed."""
    if write or (os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)):
        connection = _at(path, "mode=rwc" if write else "mode=rw")
        connection.execute("PRAGMA synchronous = NORMAL" if write else "PRAGMA query_only = 1")
        return connection
    try:
        connection = _at(path, "mode=ro")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:  # Nobody can write here, as there is no room for a write-ahead log.
        connection = _at(path, "immutable=1")
    return connection


def _at(path: Path, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=LOCK_SECONDS, isolation_level=None)


def _create(path: Path) -> None:
    """Create an empty store beside the path and then move it there, so that no other process sees an incomplete one."""
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    connection = _connect(new, write=True)
    connection.executescript(f"BEGIN; {SCHEMA} COMMIT; PRAGMA journal_mode = WAL;")
    connection.close()
    if path.exists() and path.stat().st_size == 0:
        new.replace(path)
        return
    try:
        with suppress(FileExistsError):  # Another runner was quicker.
            path.hardlink_to(new)
    finally:
        new.unlink()
