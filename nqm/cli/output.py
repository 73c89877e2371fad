"""What the command line prints: tables, JSON, CSV and progress. Output to a pipe is plain text and never truncated."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..show.layout import table_lines, wrapped
from ..show.numbers import rounded, shown
from ..show.tables import Row, Table, some, to_csv, to_json, with_folder
from ..types import Progress
from .errors import FAILED
from .screen import remark, say, screen_width

if TYPE_CHECKING:
    from ..engine.run import Run
    from ..search import Scheduled, Tuned
    from ..search.sweeps import Sweep

TABLE_ROWS = 16  # A curve has at most this many rows on the screen; --csv and --json have every point.


@dataclass(frozen=True)
class Sink:
    """Where the answer of a verb goes: JSON, CSV or text to standard output, CSV and a picture to files."""

    as_json: bool = False
    csv: str | None = None
    plot: str | None = None

    def __post_init__(self) -> None:
        if self.as_json and self.csv == "-":
            raise click.UsageError("--json and --csv - both write to standard output; give --csv a file name")

    def deliver(
        self, data: Callable[[], object], show: Callable[[], None], rows: Callable[[], Sequence[Row]] | None = None,
        draw: Callable[[str], object] | None = None,
    ) -> None:  # fmt: skip
        """Make and write what was asked for. The answer is printed even if a file could not be written."""
        try:
            if rows and self.csv != "-":
                write(self.csv, lambda path: to_csv(rows(), path))
            if draw:
                write(self.plot, lambda path: draw(str(path)))
        finally:
            if self.as_json:
                click.echo(to_json(data()))
            elif self.csv == "-" and rows:
                click.echo(to_csv(rows()), nl=False)
            else:
                show()


def write(path: str | None, writer: Callable[[Path], object]) -> None:
    """Write a file if it was asked for, and say so on standard error."""
    if path:
        try:
            writer(with_folder(path))
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            # Writing to an open file does not name it; without a name the sentence would be about standard output.
            raise OSError(error.errno, error.strerror, path) from error
        click.echo(f"wrote {path}", err=True)


def answered(ok: bool) -> None:
    """End with status 1 if a computation has no answer. The sentence that says why has been printed before."""
    if not ok:
        raise click.exceptions.Exit(FAILED)


def show_table(rows: Sequence[Row], title: str = "", apart: bool = False) -> None:
    """Print rows as a table, with numbers aligned to the right. Where it is too wide for the terminal it is split by columns.

    Names of columns have spaces for underscores. With ``apart`` an empty line comes before the table.
    """
    if apart:
        click.echo()
    rows = readable(rows, ())
    width = screen_width()
    drawn = "─" if math.isfinite(width) and "utf" in (sys.stdout.encoding or "").lower() else ""
    lines, heads = table_lines(rows, width, drawn)
    for line in wrapped(title, width) if title else ():
        click.echo(click.style(line, bold=True))
    click.echo("\n".join(click.style(line, bold=True) if i in heads else line for i, line in enumerate(lines)) + "\n")


def readable(rows: Sequence[Row], hidden: Collection[str]) -> Table:
    """Rows for the screen: without the hidden columns, and with spaces for underscores in the names of the others."""
    return [{name.replace("_", " "): value for name, value in row.items() if name not in hidden} for row in rows]


def show_pairs(pairs: Row) -> None:
    """Print names and values, one pair a line; a long value goes on below its beginning."""
    lead, width = max(map(len, pairs)) + 2, screen_width()
    for name, value in pairs.items():
        first, *more = wrapped(shown(value), max(width - lead, 1)) or [""]
        click.echo("\n".join([f"{name:<{lead}}{first}", *(" " * lead + line for line in more)]))


@contextmanager
def progress(what: str) -> Iterator[Progress | None]:
    """Show a progress bar on standard error if that is a terminal, and give the function that moves it, otherwise None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    parts = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bar(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def curve_rows(run: Run, sampled: Run | None = None) -> Table:
    """A row for each step of a run. With ``sampled`` rows also have the mean, standard error and quantiles of that run."""
    if sampled is None:
        return run.table()
    beside = ({"sampled" if name == "loss" else name: value for name, value in row.items()} for row in sampled.table())
    return [row | other for row, other in zip(run.table(), beside, strict=True)]


def show_curve(run: Run, sampled: Run | None = None) -> None:
    rows, B = curve_rows(run, sampled), run.batch_size
    hidden, names = ("noise_scale", "curvature_noise_scale"), {"steps": "step", "noise": "noise / B"}
    parts = [
        {names.get(k, k): v / B if k == "noise" else v for k, v in row.items() if k not in hidden}
        for row in some(rows, TABLE_ROWS)
    ]
    show_table(parts, f"{run.optimizer}, batch size {shown(B)}")
    ending = f"; mean of {run.replicas:,} replicas" if run.sampled else f"; steady-state loss {shown(run.floor)}"
    say(run.message + ending)
    if sampled is not None:
        say(f"sampled: {sampled.message}; mean of {sampled.replicas:,} replicas")


def show_tuned(found: Tuned) -> None:
    from ..optimizers.base import parameters

    pairs = {"optimizer": str(found.optimizer)}
    pairs |= {name: p.value for name, p in parameters(found.optimizer).items()}
    shown_of = ("effective_lr", "steps", *(("examples",) if found.counts_examples else ()), "loss", "batch_size")
    pairs |= {k: found.to_dict()[k] for k in shown_of}
    pairs |= {} if found.stderr is None else {"stderr": found.stderr}
    say(found.message)
    show_pairs(pairs)
    if found.at_bound:
        say(f"best at the edge of its range: {', '.join(found.at_bound)}")


def show_schedule(found: Scheduled) -> None:
    show_table(found.table(), f"{found.optimizer}")
    say(f"{found.message}; loss {shown(found.loss)}")
    if found.warning:
        remark([found.warning])


def show_sweeps(sweeps: Sequence[Sweep], settings: bool = True) -> None:
    from ..search.sweeps import DEFINITIONS

    if len(sweeps) > 1:
        sizes = sweeps[0].batch_sizes.tolist()
        side = [{"batch size": B, **{s.label: s.steps[i] for s in sweeps}} for i, B in enumerate(sizes)]
        show_table(side, f"Tuned steps to loss {sweeps[0].target:g}")
    for s in sweeps if settings else ():
        rows = [row | {"added": "added" if row["added"] else ""} for row in s.table()]
        hidden = {"optimizer", "message", *(() if s.added else ("added",))}
        hidden |= {"effective_lr"} if all(row["effective_lr"] == row["lr"] for row in rows) else set()
        hidden |= set() if any(s.at_bound) else {"at_bound"}
        hidden |= {name for name in ("examples",) if all(row[name] is None for row in rows)}
        show_table(readable(rows, hidden), f"{s.label}, tuned to loss {s.target:g}")
    failed = dict.fromkeys(m for s in sweeps for m, T in zip(s.messages, s.steps, strict=True) if not T > 0)
    remark(failed)
    for s in sweeps:
        for message in dict.fromkeys(m.partition("; by mean field")[2] for m in s.messages if "; by mean field" in m):
            remark([f"{s.label}: by mean field{message}"])
    critical = [{"": s.label, **{d: rounded(s.critical_batch_size(d)) for d in DEFINITIONS}} for s in sweeps]
    counts = [{"points added": len(s.added)} if any(one.added for one in sweeps) else {} for s in sweeps]
    rows = [row | count for row, count in zip(critical, counts, strict=True)]
    show_table(rows, "Critical batch size", apart=bool(failed) or any(s.method == "mean field" for s in sweeps))
    show_pairs({f"  {name}": meaning for name, meaning in DEFINITIONS.items()})
    click.echo()
    remarks: dict[str, list[str]] = {}
    for s in sweeps:
        for definition, sentence in s.remarks().items():
            remarks.setdefault(sentence, []).append(f"{s.label} {definition}")
    remark(f"{', '.join(about)}: {sentence}" for sentence, about in remarks.items())
    show_table([_regimes(s) for s in sweeps], "Regimes", apart=bool(remarks))


def _regimes(s: Sweep) -> Row:
    names = {"perfect": "perfect scaling", "diminishing": "diminishing returns", "maximal": "no further gain"}
    spans = {
        names[k]: f"{shown(rounded(lo))} to {shown(rounded(hi))}" if lo < hi else "-"
        for k, (lo, hi) in s.regimes().items()
    }
    return {"": s.label, **spans, "fewest steps": s.smallest_steps}
