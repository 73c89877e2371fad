"""Tables and sentences on a screen of some width. Nothing is cropped, and no number is broken over two lines.

Text wraps between words. A table that is still too wide is split by its columns, and its first columns stand in every part.
What cannot be made narrower, such as a long name, is printed wider than the screen.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from .numbers import shown
from .tables import Row, header

GAP = 2  # Spaces between columns.
NARROWEST = 20  # A column of words is not made narrower than this, because a sentence of two words a line is not read.
MOST_KEYS = 3  # A table that is split repeats as many first columns as tell its rows apart, at most so many.
NUMERIC = re.compile(r"[-+]?(\d[\d,]*\.?\d*(e[-+]?\d+)?|inf)%?|-")


@dataclass(frozen=True)
class _Column:
    name: str
    cells: list[str]

    @property
    def numeric(self) -> bool:
        """Whether every cell is a number or missing; such a column is aligned to the right."""
        return all(NUMERIC.fullmatch(cell) for cell in self.cells)

    @property
    def widest(self) -> int:
        """The width at which nothing wraps."""
        return max(length(text) for text in (self.name, *self.cells))

    @property
    def narrowest(self) -> int:
        """The width at which words wrap as much as they may, and no word is broken."""
        words = [length(word) for text in (self.name, *self.cells) for word in text.split()]
        return max([*words, 0 if self.numeric else min(self.widest, NARROWEST)])

    def lines(self, text: str, width: int) -> list[str]:
        """A cell or the name as lines that fill the width."""
        lines = wrapped(text, width) or [""]
        space = [" " * (width - length(line)) for line in lines]
        return [s + line if self.numeric else line + s for line, s in zip(lines, space, strict=True)]


def table_lines(rows: Sequence[Row], width: float, rule: str = "") -> tuple[list[str], set[int]]:
    """The lines of a table on a screen of ``width`` characters, and which of them are names of columns.

    ``rule`` is the character of the line below the names; without it there is none.

    >>> rows = [{"batch size": 4, "steps": 1507455, "what": "a loss"}, {"batch size": 16, "steps": 376000, "what": None}]
    >>> print("\\n".join(table_lines(rows, 80)[0]))
    batch size      steps  what
             4  1,507,455  a loss
            16    376,000  -
    >>> print("\\n".join(table_lines(rows, 18)[0]))
    batch
     size      steps
        4  1,507,455
       16    376,000
    <BLANKLINE>
    batch size  what
             4  a loss
            16  -
    """
    lines: list[str] = []
    heads: set[int] = set()
    for part in _parts(_columns(rows), width):
        lines += [""] if lines else []
        widths = _widths(part, width)
        head = _aligned(part, [column.name for column in part], widths, bottom=True)
        heads |= set(range(len(lines), len(lines) + len(head)))
        lines += head
        lines += [rule * (sum(widths) + GAP * (len(widths) - 1))] if rule else []
        for cells in zip(*(column.cells for column in part), strict=True):
            lines += _aligned(part, cells, widths)
    return lines, heads


def wrapped(text: str, width: float, indent: str = "") -> list[str]:
    """Text as lines of at most ``width`` characters, broken at spaces alone; every line after the first begins with ``indent``.

    >>> wrapped("the loss is 1e-05 after 13,340,838 steps", 20)
    ['the loss is 1e-05', 'after 13,340,838', 'steps']
    """
    if length(text) <= width:
        return [text]
    extra = length(text) - len(text)  # Wide letters take two places, so lines are made shorter by as many as there are.
    narrow = max(1, int(width) - extra)
    return textwrap.wrap(text, narrow, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def length(text: str) -> int:
    """The places that a text takes on a screen, where letters of some scripts take two and accents none."""
    if text.isascii():
        return len(text)
    return sum((unicodedata.east_asian_width(c) in "WF") + (not unicodedata.combining(c)) for c in text)


def _columns(rows: Sequence[Row]) -> list[_Column]:
    return [_Column(name, [shown(row.get(name)) or "-" for row in rows]) for name in header(rows)]


def _parts(columns: list[_Column], width: float) -> list[list[_Column]]:
    """The columns of each part of a table. The first columns, which tell its rows apart, are in every part."""
    if _narrowest(columns) <= width:
        return [columns]
    keys = _keys(columns)
    parts: list[list[_Column]] = []
    for column in columns[len(keys) :]:
        if parts and _narrowest([*parts[-1], column]) <= width:
            parts[-1].append(column)
        else:
            parts.append([*keys, column])
    return parts or [columns]


def _keys(columns: list[_Column]) -> list[_Column]:
    for count in range(1, min(MOST_KEYS, len(columns) - 1) + 1):
        rows = list(zip(*(column.cells for column in columns[:count]), strict=True))
        if len(set(rows)) == len(rows):
            return columns[:count]
    return columns[: min(1, len(columns) - 1)]


def _narrowest(columns: Sequence[_Column]) -> int:
    return sum(column.narrowest for column in columns) + GAP * (len(columns) - 1)


def _widths(columns: Sequence[_Column], width: float) -> list[int]:
    """The width of each column: the widest columns are made narrower until the table has room, or none can be."""
    widths, least = [column.widest for column in columns], [column.narrowest for column in columns]
    over = sum(widths) + GAP * (len(widths) - 1) - width
    while over > 0 and (loose := [i for i, w in enumerate(widths) if w > least[i]]):
        i = max(loose, key=lambda i: widths[i])
        rest = max((widths[j] for j in loose if widths[j] < widths[i]), default=0)
        cut = math.ceil(min(over, widths[i] - max(least[i], rest) or 1))
        widths[i] -= cut
        over -= cut
    return widths


def _aligned(
    columns: Sequence[_Column], cells: Sequence[str], widths: Sequence[int], bottom: bool = False
) -> list[str]:
    """The lines of a row, whose cells may have several."""
    cells_lines = [c.lines(cell, width) for c, cell, width in zip(columns, cells, widths, strict=True)]
    high = max((len(lines) for lines in cells_lines), default=0)
    filled = []
    for lines, width in zip(cells_lines, widths, strict=True):
        empty = [" " * width] * (high - len(lines))
        filled.append([*empty, *lines] if bottom else [*lines, *empty])
    return [(" " * GAP).join(line).rstrip() for line in zip(*filled, strict=True)]
