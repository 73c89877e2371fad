"""Tables are lists of rows, and a row maps names of columns to values. Data is written as CSV, as Markdown and as JSON here."""

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
    """Every column that a row has, in the order in which they appear."""
    return list(dict.fromkeys(name for row in table for name in row))


def column(table: Table, name: str, **where: object) -> Array:
    """One column of the rows that match, NaN where a row lacks it."""
    values = [row.get(name) for row in table if all(row[k] == v for k, v in where.items())]
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def distinct(table: Table, name: str) -> list[Any]:
    """The values of a column, each once."""
    return list(dict.fromkeys(row[name] for row in table))


def rows_of(columns: Mapping[str, Array]) -> Table:
    """Arrays of equal length as rows."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*(v.tolist() for v in columns.values()), strict=True)]


def some(table: Sequence[Row], most: int) -> list[Row]:
    """At most ``most`` rows, evenly spaced, with the first and the last among them."""
    if len(table) <= most:
        return list(table)
    return [table[round(i * (len(table) - 1) / (most - 1))] for i in range(most)]


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers are shown to four digits."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(shown(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def to_csv(table: Sequence[Row], path: str | Path | None = None) -> str:
    """A table as CSV, also written to ``path`` if given; a value that is missing or not finite is empty.

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
    """A table as a data frame; a value that is missing is NaN among numbers."""
    try:
        import pandas as pd
    except ImportError:
        same = "table() and to_csv() need nothing and have the same rows"
        raise Wrong(f"to_pandas needs pandas: pip install pandas; {same}") from None
    return pd.DataFrame(list(table), columns=header(table))


def plain(value: object) -> object:
    """Data as strict JSON has it, without NaN and infinity: None for numbers that are not finite, lists for tuples."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(data: object) -> str:
    """Strict JSON on indented lines.

    >>> print(to_json({"loss": math.nan}))
    {
      "loss": null
    }
    """
    return json.dumps(plain(data), indent=2, allow_nan=False)


def with_folder(path: str | Path) -> Path:
    """The path of a file, after its folder has been made."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path)


def made(folder: str | Path, page: str) -> Path:
    """The folder, after it has been made; a folder in which ``page`` could not be written is refused before any work."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / page).touch()
    except OSError as error:
        raise Wrong(f"cannot write into the folder {str(folder)!r}: {error.strerror or error}", "folder") from None
    return folder
