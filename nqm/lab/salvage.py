"""Saves what can still be read of a store whose file is damaged: every sound row, into a new store that a run goes on with."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..types import Wrong
from .store import STORE_FORMAT, Store, checksum, read_only

COPIED = ("studies", "trials", "curves")
"""Tables of a store that are saved; runners and their claims are not."""
CHECKED = {"trials": slice(1, -1), "curves": slice(1, -1)}
"""For a table whose rows end with a checksum, the columns that the checksum covers."""


@dataclass(frozen=True)
class Salvaged:
    """How many rows of each table of a damaged store were saved, and how many trials are lost as far as that is known."""

    saved: dict[str, int]
    lost: int


def salvage(path: str | Path, to: str | Path) -> Salvaged:
    """Copy every row of a store that can be read and matches its checksum into a new store; the damaged one is not changed.

    Rows are read one by one, by their numbers, so that a damaged page costs its own rows alone. Trials that are lost
    are trained again by a run that goes on with the new store.
    """
    path, to = Path(path), Path(to)
    if not path.is_file():
        raise Wrong(f"there is no store {str(path)!r}", argument="store")
    if to.exists():
        raise Wrong(f"{str(to)!r} exists already; name a new file", argument="out")
    with closing(read_only(path)) as source:
        last = {table: _last(source, table) for table in COPIED}
        if not any(last.values()):
            raise Wrong(f"nothing of {str(path)!r} can be read as a store of nqm lab", argument="store")
        if source.execute("PRAGMA user_version").fetchone()[0] != STORE_FORMAT:
            told = f"{str(path)!r} was written by another version of nqm, whose rows this version cannot check"
            raise Wrong(f"{told}: salvage it with that version", argument="store")
        with Store.open(to, write=True) as new:
            saved = {table: _copied(source, new, table, last[table]) for table in COPIED}
    return Salvaged(saved, last["trials"] - saved["trials"])


def _last(source: sqlite3.Connection, table: str) -> int:
    """The largest row number that the file tells of a table, 0 if it tells none."""
    asked = [f"SELECT MAX(rowid) FROM {table}"]
    if table in ("trials", "curves"):  # A curve has the number of its trial.
        asked += ["SELECT seq FROM sqlite_sequence WHERE name = 'trials'", "SELECT MAX(rowid) FROM trials"]
        asked += ["SELECT MAX(rowid) FROM curves"]
    found = [0]
    for query in asked:
        with suppress(sqlite3.DatabaseError):
            found += [row[0] or 0 for row in source.execute(query)]
    return max(found)


def _copied(source: sqlite3.Connection, new: Store, table: str, last: int) -> int:
    """Copy the sound rows of a table, and return how many there are."""
    rows = [row for number in range(1, last + 1) if (row := _sound(source, table, number)) is not None]
    with new.writing():
        for row in rows:
            new.db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    return len(rows)


def _sound(source: sqlite3.Connection, table: str, number: int) -> tuple[Any, ...] | None:
    """A row by its number; None if it cannot be read, does not match its checksum, or is not there."""
    try:
        row = source.execute(f"SELECT * FROM {table} WHERE rowid = ?", (number,)).fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return None
    if row is None or (table in CHECKED and row[-1] != checksum(*row[CHECKED[table]])):
        return None
    return row
