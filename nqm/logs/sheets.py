"""What a file holds before it is understood: named columns of cells, and the place in the file where each row stands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..types import Array, Wrong, short

MISSING_WORDS = frozenset({"", "none", "null", "na", "n/a", "-"})
"""Cells in lower case that stand for a missing value. NaN is not among them: it is a value that was logged."""


@dataclass(frozen=True)
class Sheet:
    """Rows of one file, or of one run in it. ``lines`` has the place of each row, counted in ``unit``."""

    file: str
    name: str
    columns: Mapping[str, Sequence[object]]
    lines: Sequence[int]
    unit: str = "line"
    kind: str = "csv"
    decimal_comma: bool = False
    remarks: tuple[str, ...] = ()
    files: tuple[str, ...] = field(default=())  # the file of each row, if the rows come from several files

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """Where a row stands, as messages name it."""
        return f"{self.files[row] if self.files else self.file}, {self.unit} {self.lines[row]:,}"

    def rows(self, rows: Sequence[int], name: str, columns: Mapping[str, Sequence[object]] | None = None) -> Sheet:
        """Some of the rows as a sheet of their own."""
        chosen = {key: [cells[i] for i in rows] for key, cells in (columns or self.columns).items()}
        files = tuple(self.files[i] for i in rows) if self.files else ()
        return replace(self, name=name, columns=chosen, lines=[self.lines[i] for i in rows], files=files)

    def numbers(self, name: str) -> tuple[Array, Array]:
        """A column as floats, NaN where a cell is missing, and whether each cell is there."""
        cells = self.columns[name]
        if not set(map(type, cells)) & {bool, type(None)}:
            try:
                return np.fromiter(map(float, cells), float, len(cells)), np.ones(len(cells), dtype=bool)  # type: ignore[arg-type]
            except (TypeError, ValueError, OverflowError):
                pass  # Some cell is missing or is not a number: each one is looked at.
        there = np.array([not missing(cell) for cell in cells], dtype=bool)
        values = [self._number(name, i, cells[i]) if there[i] else math.nan for i in range(len(cells))]
        return np.array(values, dtype=float), there

    def _number(self, name: str, row: int, cell: object) -> float:
        try:
            if isinstance(cell, str):
                return float(cell.replace(",", ".") if self.decimal_comma else cell)
            if isinstance(cell, int | float) and not isinstance(cell, bool):
                return float(cell)
        except (ValueError, OverflowError):
            pass
        shown = short(repr(cell), 60)
        raise Wrong(f"{self.where(row)}: {shown} in the column {name!r:.60} is not a number", argument="paths")


def missing(cell: object) -> bool:
    """Whether a cell holds no value."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING_WORDS)


def stacked(sheets: Sequence[Sheet]) -> Sheet:
    """Sheets of one run, one below the other; a cell that a sheet does not have is missing."""
    if len(sheets) == 1:
        return sheets[0]
    names = dict.fromkeys(name for sheet in sheets for name in sheet.columns)
    columns = {
        name: [cell for sheet in sheets for cell in sheet.columns.get(name, [None] * len(sheet))] for name in names
    }
    return replace(
        sheets[0],
        columns=columns,
        lines=[line for sheet in sheets for line in sheet.lines],
        files=tuple(file for sheet in sheets for file in (sheet.files or (sheet.file,) * len(sheet))),
        remarks=tuple(dict.fromkeys(remark for sheet in sheets for remark in sheet.remarks)),
    )


def lines_of(text: str) -> list[str]:
    """The lines of a text, which may end as on any system; the empty one after the last end is not among them.

    >>> lines_of("a\\r\\nb\\n"), lines_of("a\\u2028b")
    (['a', 'b'], ['a\\u2028b'])
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def listed(values: Sequence[object], most: int = 5) -> str:
    """Values in a sentence, the first few of them if there are many.

    >>> listed([10, 2000]), listed(range(8), 3)
    ('10 and 2,000', '0, 1, 2 and 5 more')
    """
    shown = [f"{v:,}" if isinstance(v, int | np.integer) else str(v) for v in values[:most]]
    if len(values) > most:
        return f"{', '.join(shown)} and {len(values) - most:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}" + "s" * (count != 1)


def were(count: int) -> str:
    """The verb after a count."""
    return "was" if count == 1 else "were"
