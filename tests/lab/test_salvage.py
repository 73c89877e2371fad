"""What is saved of a damaged store: all rows but those of the damaged pages, with which a run goes on to the same table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from lab_studies import small, stored

from nqm.lab import LabError, run
from nqm.lab.salvage import salvage
from nqm.lab.store import Store
from nqm.types import Wrong

PAGE = 4096  # bytes of a page of SQLite


@pytest.mark.parametrize("place", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_a_damaged_page_costs_its_own_rows(place: float, tmp_path: Path) -> None:
    """A page is overwritten: the run is refused with the remedy, and the remedy gives the table of before."""
    path, saved = tmp_path / "small.db", tmp_path / "saved.db"
    before, had = run(small(), store=path).table(), stored(path)
    data = bytearray(path.read_bytes())
    start = PAGE * int(place * len(data) / PAGE)
    data[start : start + PAGE] = b"\xa5" * PAGE
    path.write_bytes(data)
    with pytest.raises(
        LabError, match=r"is damaged .* nqm lab salvage .* --out saved\.db .* go on with --store saved\.db"
    ):
        run(small(), store=path)
    found = salvage(path, saved)
    assert path.read_bytes() == data
    kept = stored(saved)
    assert set(kept) <= set(had)
    assert found.saved["trials"] == len(kept) == len(had) - found.lost
    assert found.lost < 0.8 * len(had)
    assert run(small(), store=saved).table() == before
    assert sorted(stored(saved)) == sorted(had)


def test_a_sound_store_is_copied_but_for_rows_that_do_not_match_their_checksum(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    before = run(small(), store=path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE trials SET steps = replace(steps, '1', '2') WHERE id = 5")
    assert salvage(path, tmp_path / "saved.db").lost == 1
    with Store.open(tmp_path / "saved.db") as store:
        assert store.damaged() == []
    assert run(small(), store=tmp_path / "saved.db").table() == before.table()


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Wrong, match="there is no store"):
        salvage(tmp_path / "none.db", tmp_path / "new.db")
    (tmp_path / "text.db").write_text("text")
    with pytest.raises(Wrong, match=r"nothing of .* can be read"):
        salvage(tmp_path / "text.db", tmp_path / "new.db")
    run(small(batch_sizes=[4]), store=tmp_path / "small.db")
    with pytest.raises(Wrong, match="exists already"):
        salvage(tmp_path / "small.db", tmp_path / "text.db")
    old = tmp_path / "small.db"
    with closing(sqlite3.connect(old)) as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(Wrong, match="written by another version"):
        salvage(old, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
