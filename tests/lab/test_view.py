"""What a run shows: a table on a terminal, lines elsewhere, and nothing that is not so."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from lab_studies import small

from nqm.lab import Snapshot, Study, run
from nqm.lab import view as module
from nqm.lab.view import Lines, headline, table, time_left, view


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def snapshots(study: Study, tmp_path: Path) -> list[str]:
    """Headlines of a run, and whether time was left."""
    seen: list[str] = []
    run(study, store=tmp_path / "s.db", watch=lambda at: seen.append(headline(at)))
    return seen


def test_headlines_count(snapshots: list[str]) -> None:
    assert snapshots[0].startswith("small: 0 of 6 cells done, 0 trials, 4 running, 0 infeasible, 0 s so far")
    assert snapshots[-1].startswith("small: 6 of 6 cells done, ")
    assert ", 0 running, " in snapshots[-1]
    assert "left" not in snapshots[-1]


def test_lines_name_each_cell_once(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    with view(out) as watch:
        run(study, store=tmp_path / "s.db", watch=watch)
    lines = out.getvalue().splitlines()
    assert len(lines) == 6
    assert sum(line.startswith("SGD at batch size 16: ") and line.endswith("steps") for line in lines) == 1
    assert any(" steps as EMA(HeavyBall)" in line for line in lines)
    again = io.StringIO()
    run(study, store=tmp_path / "s.db", watch=Lines(again))
    assert again.getvalue() == ""  # nothing new
    monkeypatch.setattr(module, "LINE_SECONDS", -1.0)
    run(small(seed=3), store=tmp_path / "s.db", watch=Lines(again))
    assert "cells done" in again.getvalue()


def test_a_terminal_shows_a_table(study: Study, tmp_path: Path) -> None:
    out = Terminal()
    with view(out) as watch:
        run(study, store=tmp_path / "s.db", watch=watch)
    assert "batch size" in out.getvalue()
    assert "EMA(HeavyBall)" in out.getvalue()


def test_the_table_has_the_best_so_far(study: Study, tmp_path: Path) -> None:
    from rich.console import Console

    seen: list[Snapshot] = []
    found = run(study, store=tmp_path / "s.db", watch=seen.append)
    page = Console(file=io.StringIO(), width=150)
    page.print(table(seen[-1]))
    text = page.file.getvalue()  # type: ignore[attr-defined]
    for size, *steps in zip((4, 16, 64), *([p.steps for p in found[n]] for n in found.names), strict=True):
        row = next(line.split() for line in text.splitlines() if line.split()[:1] == [str(size)])
        assert row[1:] == [f"{s:,}" for s in steps]


def test_time_left_is_work_over_workers(study: Study, tmp_path: Path) -> None:
    seen: list[tuple[float | None, int]] = []
    run(study, store=tmp_path / "s.db", watch=lambda at: seen.append((time_left(at), at.new)))
    assert seen[0] == (None, 0)
    known = [left for left, _ in seen if left is not None]
    assert known[0] > known[-1] == 0


def test_brackets_in_names_are_text(tmp_path: Path) -> None:
    seen: list[Snapshot] = []
    box = {"optimizer": "SGD", "lr": {"low": 0.1, "high": 1}}
    study = small(optimizers={"[red]SGD[/x]": box}, batch_sizes=[16], name="[bold]")
    run(study, store=tmp_path / "s.db", watch=seen.append)
    out = Terminal()
    with view(out) as watch:
        watch(replace(seen[-1], note="lost [/red] :smile:"))
    assert "[red]SGD[/x]" in out.getvalue()
    assert "[bold]: 1 of 1 cells done" in out.getvalue()
    assert "lost [/red] :smile:" in out.getvalue()


def test_failures_and_edges_are_said(tmp_path: Path) -> None:
    out = io.StringIO()
    broken = {"lr": {"low": 0.1, "high": 1}, "broken": True, "optimizer": "SGD"}
    study = small(optimizers={"SGD": {"lr": {"low": 1e-4, "high": 0.01}}, "bad": broken}, trials=16, batch_sizes=[16])
    run(study, store=tmp_path / "s.db", watch=Lines(out))
    assert "SGD at batch size 16: 3" in out.getvalue()
    assert "; at the edge of its range: lr high" in out.getvalue()
    assert "bad at batch size 16: failed: it broke" in out.getvalue()
