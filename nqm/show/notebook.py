"""A result as HTML for a notebook: one line, a small table, remarks and a picture. IPython is not imported."""

from __future__ import annotations

from ..engine.readable import Readable, Tabular
from .chart import png
from .html import pairs, paragraph, picture, table
from .tables import Table, header, some

NOTEBOOK_ROWS = 12  # A longer table is shortened to this many rows.
WIDE_COLUMNS = ("message", "key")  # A notebook omits these columns, which are wide.


def card(result: Readable) -> str:
    """A result as HTML. The picture is drawn by the result's own ``plot``, if it has one, and embedded."""
    parts = [paragraph(repr(result))]
    to_dict, draw = getattr(result, "to_dict", dict), getattr(result, "plot", None)
    if isinstance(result, Tabular):
        parts += small_table(result.table())
    elif plain := {name: value for name, value in to_dict().items() if isinstance(value, str | int | float)}:
        parts.append(pairs(dict(list(plain.items())[:NOTEBOOK_ROWS])))
    parts += map(paragraph, result._notes())
    if draw:
        figure = draw()
        parts.append(picture(png(figure, dpi=200), repr(result), width=round(100 * figure.get_figwidth())))
    return "\n".join(parts)


def small_table(rows: Table) -> list[str]:
    """A table of at most `NOTEBOOK_ROWS` rows without wide and empty columns, and, if rows are missing, a line that says so."""
    names = [n for n in header(rows) if n not in WIDE_COLUMNS and any(row.get(n) not in (None, "") for row in rows)]
    shown = table([{name: row.get(name) for name in names} for row in some(rows, NOTEBOOK_ROWS)])
    more = f"{NOTEBOOK_ROWS} of {len(rows):,} rows; table() and to_pandas() have all of them."
    return [shown, paragraph(more)] if len(rows) > NOTEBOOK_ROWS else [shown]
