"""What a run shows while it lasts: a table that changes on a terminal, plain lines elsewhere; both on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from .plan import Cell
from .runner import Snapshot, Watch

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

REFRESH_SECONDS = 0.25  # A terminal is redrawn at most this often.
LINE_SECONDS = 10.0  # Elsewhere, a line reports the progress this often.
SHOWN_ROUNDS = 3  # A line names at most this many rounds at work.
RECENT_TRIALS = 10  # The time of the next trials of a cell is estimated from this many of its last ones.


@contextmanager
def view(stream: TextIO) -> Iterator[Watch]:
    """A watcher of a run: a live table on a terminal, lines elsewhere."""
    if not stream.isatty():
        yield Lines(stream)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=stream), auto_refresh=False, transient=True) as live:
        yield _Live(live)


class _Live:
    """Redraws the table a few times a second."""

    def __init__(self, live: Live) -> None:
        self.live, self.shown = live, 0.0

    def __call__(self, at: Snapshot) -> None:
        if at.note:
            self.live.console.print(at.note, highlight=False, markup=False, emoji=False)
        if time.monotonic() - self.shown > REFRESH_SECONDS or at.finished:
            self.live.update(table(at), refresh=True)
            self.shown = time.monotonic()


class Lines:
    """Prints a line for each cell that ends, and a line with the progress every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.told, self.shown = stream, set[Cell](), time.monotonic()

    def __call__(self, at: Snapshot) -> None:
        first = not self.told and not at.new  # Cells that an earlier run has ended are not reported.
        for cell in at.cells:
            if cell.round is None and cell not in self.told:
                self.told.add(cell)
                if not first:
                    again = f", search {cell.repeat + 1}" if at.study.searches > 1 else ""
                    self._say(f"{cell.label} at batch size {cell.batch_size}{again}: {summary(cell)}")
        if at.note:
            self._say(at.note)
        if time.monotonic() - self.shown > LINE_SECONDS:
            self._say(headline(at))

    def _say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)
        self.shown = time.monotonic()


def headline(at: Snapshot) -> str:
    """The progress of all cells in one line."""
    ended, left = sum(cell.round is None for cell in at.cells), time_left(at)
    trials = sum(len(cell.done) + len(cell.fresh) for cell in at.cells)
    infeasible = sum(cell.count("diverged") + cell.count("failed") for cell in at.cells)
    cells = f"{at.study.name}: {ended} of {len(at.cells)} cells done, {trials} trials, {at.running} running"
    rest = f", about {duration(left)} left" if left else ""
    return f"{cells}, {infeasible} infeasible, {duration(at.seconds)} so far{rest}{rounds(at)}"


def rounds(at: Snapshot) -> str:
    """How far the rounds at work have come, for those that say so, the most advanced first; empty if none does."""
    known = sorted((one for one in at.rounds if one.step), key=lambda one: -one.step / one.most)
    told = [f"{one.cell.label} {one.cell.batch_size} at step {one.step:,} of {one.most:,} at most" for one in known]
    more = f" and {len(told) - SHOWN_ROUNDS} more" if len(told) > SHOWN_ROUNDS else ""
    return "; " + ", ".join(told[:SHOWN_ROUNDS]) + more if told else ""


def summary(cell: Cell) -> str:
    """How a cell ended."""
    if cell.broken:
        return f"failed: {cell.broken}"
    arrived = [name for name in cell.names if name in cell.best]
    found = [f"{cell.best[name].steps:,} steps" + (f" as {name}" if name != cell.label else "") for name in arrived]
    edges = {f"{setting} {end}" for name in cell.best for setting, end in cell.at_edge(name).items()}
    text = " and ".join(found) or "the target was not reached"
    return text + (f"; at the edge of its range: {', '.join(sorted(edges))}" if edges else "")


def time_left(at: Snapshot) -> float | None:
    """Seconds until the end, from what recent trials took; None while nothing is known."""
    recent = [[result.seconds for _, result in cell.done[-RECENT_TRIALS:]] for cell in at.cells]
    costs = [sum(seconds) / len(seconds) if seconds else None for seconds in recent]
    known = [cost for cost in costs if cost is not None]
    if not known:
        return None
    typical = sum(known) / len(known)
    done = {one.cell: one.trials * one.step / one.most for one in at.rounds if one.most}
    work = sum(
        max(0.0, cell.ahead() - done.get(cell, 0.0)) * (typical if cost is None else cost)
        for cell, cost in zip(at.cells, costs, strict=True)
    )
    # Trials may count processor time, and workers wait for one another, so a second of a trial may take longer.
    dilation = at.seconds * at.workers / at.spent if at.spent else 1.0
    return work / at.workers * min(max(dilation, 1.0), 10.0)


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(7), duration(95), duration(7300)
    ('7 s', '1 min 35 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def table(at: Snapshot) -> Group:
    """Best steps so far for each batch size and optimizer, and how many trials they rest on."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, pad_edge=False)
    found.add_column("batch size", justify="right")
    names = list(dict.fromkeys(name for cell in at.cells for name in cell.names))
    for name in names:
        found.add_column(Text(name), justify="right")
    for size in at.study.batch_sizes:
        here = {n: [c for c in at.cells if c.batch_size == size and n in c.names] for n in names}
        found.add_row(f"{size:,}", *(_shown(here[name], name) for name in names))
    return Group(Text(headline(at), style="italic"), found)  # As a title it would be folded to the table's width.


def _shown(repeats: Sequence[Cell], name: str) -> str:
    """The fewest steps of repeated searches, and how far the one that is behind has come."""
    found = [cell.best[name].steps for cell in repeats if name in cell.best]
    steps = f"{min(found):,}" if found else "-"
    if any(cell.broken for cell in repeats):
        return "failed"
    open_ = [cell for cell in repeats if cell.round is not None]
    if not open_:
        return f"[bold]{steps}[/]"
    behind = min(open_, key=lambda cell: len(cell.done))
    doing = {"confirm": "confirming", "refine": "refining"}.get(behind.phase, f"{behind.feasible}/{behind.quota}")
    return f"{steps} [dim]{doing}[/]"
