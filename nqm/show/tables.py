"""Tables as CSV, Markdown and JSON. A table is a list of rows, and a row maps names of columns to values."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types import Array, Wrong
from .numbers import shown

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Table = list[Row]


def header(table: Iterable[Row]) -> list[str]:
    """The names of all columns, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in table for name in row))


def column(table: Table, name: str, **where: object) -> Array:
    """One column of the rows whose values equal those of ``where``; NaN where a row lacks it."""
    values = [row.get(name) for row in table if all(row[k] == v for k, v in where.items())]
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def distinct(table: Table, name: str) -> list[Any]:
    """The different values of a column, in the order in which they first appear."""
    return list(dict.fromkeys(row[name] for row in table))


def rows_of(columns: Mapping[str, Array]) -> Table:
    """Arrays of equal length as rows."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*(v.tolist() for v in columns.values()), strict=True)]


def some(table: Sequence[Row], most: int) -> list[Row]:
    """At most ``most`` rows, evenly spaced and including the first and the last."""
    if len(table) <= most:
        return list(table)
    return [table[round(i * (len(table) - 1) / (most - 1))] for i in range(most)]


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers are shown to four digits."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(shown(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def to_csv(table: Sequence[Row], path: str | Path | None = None) -> str:
    """A table as CSV, also written to ``path`` if given. A value that is missing or not finite is left empty.

    >>> print(to_csv([{"steps": 1}, {"steps": 2, "lr": float("inf")}]), end="")
    steps,lr
    1,
    2,
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, header(table), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain(value) for name, value in row.items()} for row in table)
    if path is not None:
        with_folder(path).write_text(text.getvalue(), encoding="utf-8")
    return text.getvalue()


def to_pandas(table: Sequence[Row]) -> pd.DataFrame:
    """A table as a pandas data frame, with NaN for missing numbers."""
    try:
        import pandas as pd
    except ImportError:
        raise Wrong("to_pandas needs pandas: pip install pandas, or use table() or to_csv() without it") from None
    return pd.DataFrame(list(table), columns=header(table))


def plain(value: object) -> object:
    """Data that strict JSON can hold: None replaces numbers that are not finite, and lists replace tuples."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(data: object) -> str:
    """Data as strict JSON, indented.

    >>> print(to_json({"loss": math.nan}))
    {
      "loss": null
    }
    """
    return json.dumps(plain(data), indent=2, allow_nan=False)


def with_folder(path: str | Path) -> Path:
    """The path of a file, whose folder is made if it is missing."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path)


def made(folder: str | Path, page: str) -> Path:
    """Make the folder and check that ``page`` can be written in it, before any work is done; returns its path."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / page).touch()
    except OSError as error:
        raise Wrong(f"cannot write into the folder {str(folder)!r}: {error.strerror or error}", "folder") from None
    return folder
