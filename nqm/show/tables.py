"""What reports are made of: tables as lists of rows, Markdown and CSV of them, numbers as a reader wants them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..types import Wrong

Table = list[dict[str, Any]]


def column(table: Table, name: str, **where: Any) -> np.ndarray:
    """One column of the rows that match, nan where a row has none."""
    values = [row.get(name) for row in table if all(row[k] == v for k, v in where.items())]
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def distinct(table: Table, name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in table))


def header(table: Table) -> list[str]:
    """Every column that a row has, in the order in which they appear."""
    return list(dict.fromkeys(name for row in table for name in row))


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; numbers short."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(short(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write_csv(table: Table, path: Path) -> None:
    """A table as CSV; the header names every column that a row has, and a missing value is empty."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header(table), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v is None or v != v else v for k, v in row.items()} for row in table)


def made(folder: str | Path, page: str) -> Path:
    """The folder, there and open to the page that will be written last; refused before the work is done if not."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / page).touch()
    except OSError as error:
        raise Wrong(f"cannot write into the folder {str(folder)!r}: {error.strerror or error}") from None
    return folder


def short(value: Any) -> str:
    """A number as a reader wants it: whole steps in full, others to four digits."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.4g}"


def spelled(values: Iterable[float], digits: str = ".3g") -> str:
    """Numbers in a row: ``.855, .843``."""
    return ", ".join(format(float(v), digits) for v in values)


def percent(share: float) -> str:
    """Two digits: ``4.7%``.

    >>> percent(0.0468), percent(0.3), percent(0.00109), percent(1.234), percent(6.4e7)
    ('4.7%', '30%', '0.11%', '123%', '6.4e+07 times')
    """
    if share >= 10:
        return f"{share:.2g} times"
    return f"{100 * share:.0f}%" if share >= 1 else f"{100 * share:.2g}%"
