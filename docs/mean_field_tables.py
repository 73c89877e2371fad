"""The tables of docs/mean-field.md from the file that ``python -m benchmarks.mean_field compare`` wrote."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from nqm.show.numbers import percent
from nqm.show.tables import markdown

COMPARED = Path(__file__).with_name("checks") / "mean_field_compared.csv"


@dataclass(frozen=True)
class Point:
    """A sampled loss with the loss of the mean field."""

    set: str
    optimizer: str
    dim: int
    batch_size: float
    start: str
    steps: int
    error: float  # of the mean field, relative to the sampled loss
    stderr: float  # of the sampled loss, relative to it
    doubted: bool  # whether the result says that it may be wrong

    @property
    def close(self) -> bool:
        """Whether it is within 1% or 3 standard errors."""
        return abs(self.error) <= max(0.01, 3 * self.stderr)


def points(which: str) -> list[Point]:
    """All comparisons of one set."""
    with COMPARED.open() as file:
        return [
            Point(
                row["set"], row["optimizer"], int(row["dim"]), float(row["batch_size"]), row["start"], int(row["steps"]),
                float(row["followed"]) / float(row["loss"]) - 1, float(row["stderr"]) / float(row["loss"]),
                bool(row["doubted"]),
            )
            for row in csv.DictReader(file) if row["set"] == which
        ]  # fmt: skip


def mean_field_settings() -> str:
    """Twelve settings of Adam: the error at each time, and how many points are close."""
    found = points("settings")
    said = [p for p in found if p.doubted]
    quiet = [p for p in found if not p.doubted]
    summary = (
        f"Of {len(found)} losses {sum(p.close for p in found)} are within 1% or 3 standard errors. Where the result says nothing "
        f"({len(quiet)} losses), the largest error is {_largest(quiet)}. Where it says that it may be wrong ({len(said)} losses), "
        f"the largest error is {_largest(said)}."
    )
    return f"{summary}\n\n{_by_time(found)}"


def mean_field_others() -> str:
    """Other optimizers: the error at each time."""
    return _by_time(points("others"))


def mean_field_grid() -> str:
    """Errors of Adam over the number of modes, beta2, the batch size and the start."""
    found = [p for p in points("grid") if p.stderr <= 0.01]
    beta2 = lambda p: p.optimizer.partition("beta2=")[2].rstrip(")") or "0.999"  # noqa: E731
    return "\n\n".join(
        [
            "Over beta2 (rows) and the number of modes (columns):",
            _crossed(found, "beta2", beta2, lambda p: f"{p.dim:,} modes"),
            "Over the batch size (rows) and the steps (columns), for beta2 of at least 0.97:",
            _crossed(
                [p for p in found if float(beta2(p)) >= 0.97], "batch size", lambda p: f"{p.batch_size:,.0f}",
                lambda p: f"{p.steps:,} steps",
            ),
            "Over the start (rows) and beta2 (columns):",
            _crossed(found, "start", lambda p: p.start, lambda p: f"beta2 {beta2(p)}"),
        ]
    )  # fmt: skip


def mean_field_elsewhere() -> str:
    """What random settings on other spectra say about the rules, in a sentence."""
    found = points("elsewhere")
    said, quiet = ([p for p in found if p.doubted == told] for told in (True, False))
    return (
        f"Of {len(found)} losses {sum(p.close for p in found)} are within 1% or 3 standard errors. The result says nothing for "
        f"{len(quiet)} of them, of which {sum(p.close for p in quiet)} are so. It says that it may be wrong for {len(said)}, "
        f"of which {sum(p.close for p in said)} are so; the largest error is {_largest(said)}."
    )


def _by_time(found: list[Point]) -> str:
    """A row for each run and a column for each time; errors that the result warns of are in brackets."""
    runs = list(dict.fromkeys((p.optimizer, p.batch_size, p.start) for p in found))
    times = sorted({p.steps for p in found})
    cells = {(p.optimizer, p.batch_size, p.start, p.steps): p for p in found}
    rows = [
        (f"`{run[0]}`", f"{run[1]:,.0f}", run[2], *(_cell(cells.get((*run, t))) for t in times)) for run in runs
    ]  # fmt: skip
    return markdown(["optimizer", "batch size", "start", *(f"{t:,}" for t in times)], rows)


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    text = f"{100 * point.error:+.2f}"
    if point.stderr > 0.005:
        text = f"{100 * point.error:+.1f} ± {100 * point.stderr:.1f}"
    return f"[{text}]" if point.doubted else text


def _crossed(found: list[Point], title: str, row: Callable[[Point], str], column: Callable[[Point], str]) -> str:
    """Median and largest error, in brackets the largest where the result warns."""
    rows, columns = list(dict.fromkeys(map(row, found))), list(dict.fromkeys(map(column, found)))
    cells = {key: [p for p in found if (row(p), column(p)) == key] for key in product(rows, columns)}
    return markdown([title, *columns], [(r, *(_summary(cells[r, c]) for c in columns)) for r in rows])


def _summary(cell: list[Point]) -> str:
    quiet, said = ([p for p in cell if p.doubted == told] for told in (False, True))
    return ", ".join(([_median(quiet)] if quiet else []) + ([f"[{_median(said)}]"] if said else []))


def _median(cell: list[Point]) -> str:
    return f"{percent(float(np.median([abs(p.error) for p in cell])))} ({_largest(cell)})"


def _largest(cell: list[Point]) -> str:
    return percent(max((abs(p.error) for p in cell), default=0.0))
