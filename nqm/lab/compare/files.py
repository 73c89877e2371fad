"""Measured curves from the file that ``nqm lab compare --csv`` writes, without the store of their study."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from ...show.tables import Row, Table
from ...types import Array, Wrong
from .curves import Curve

NEEDED_COLUMNS = (
    "optimizer", "batch_size", "steps", "searched", "effective_lr", "lr", "at_edge", "state", "allowed", "label", "rule", "growth",
    "fresh_seeds", "searches", "search_rates",
)  # fmt: skip
"""Columns without which a table is not that of a study."""
KNOWN_COLUMNS = (*NEEDED_COLUMNS, "low", "high", "more_than", "examples", "seeds", "predicted")
"""Columns that are not settings of an optimizer."""


def read_table(path: str | Path) -> Table:
    """The rows of a file; numbers are numbers, and an empty cell is None."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]
    missing = [name for name in NEEDED_COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise Wrong(f"{path} is not a table of nqm lab compare --csv: it has no {', '.join(missing)}", "path")
    return rows


def read_curves(table: Table) -> list[Curve]:
    """The curves of a table, which give the same critical batch sizes and verdicts as the study itself."""
    rows: dict[str, Table] = {}
    for row in table:
        rows.setdefault(str(row["optimizer"]), []).append(row)
    return [_curve(name, own) for name, own in rows.items()]


def _curve(name: str, rows: Table) -> Curve:
    return Curve(
        name,
        np.array([row["batch_size"] for row in rows], dtype=float),
        np.array([_searched(row) for row in rows]),
        tuple(_steps(row["fresh_seeds"]) for row in rows),
        tuple(
            {k: v for k, v in row.items() if (k == "lr" or k not in KNOWN_COLUMNS) and v is not None} for row in rows
        ),
        tuple(tuple(str(row["at_edge"]).split(", ")) if row["at_edge"] else () for row in rows),
        str(rows[0]["label"]),
        str(rows[0]["rule"]),
        tuple(_searches(row) for row in rows),
        float(rows[0]["growth"]),
        tuple(np.array(str(row["search_rates"] or "").split(), dtype=float) for row in rows),
        tuple(float(row["allowed"] or 0) for row in rows),
        tuple(row["state"] != "done" for row in rows),
    )


def _value(text: str) -> float | str | None:
    """A number where the text is one."""
    try:
        return float(text) if text else None
    except ValueError:
        return text


def _searched(row: Row) -> float:
    """Steps of a search: infinity if it ended without a trial that reached the target, NaN if it has not ended."""
    if row["searched"] is not None:
        return float(row["searched"])
    return math.inf if row["state"] == "done" else math.nan


def _searches(row: Row) -> tuple[Array, ...]:
    text = row["searches"]
    return tuple(_steps(part) for part in str(text).split(";")) if text is not None else ()


def _steps(text: object) -> Array:
    """The inverse of `curves.in_words`."""
    found = [] if text is None else f"{text:.0f}".split() if isinstance(text, float) else str(text).split()
    return np.array([math.inf if one == "never" else float(one) for one in found])
