"""Tables in memory to sheets: a data frame of any library, or a dict of columns. No such library is imported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..types import Wrong
from .sheets import Sheet, listed


class Frame(Protocol):
    """What pandas and polars call a data frame, as far as it is asked here."""

    @property
    def columns(self) -> Sequence[object]: ...
    def __getitem__(self, name: object, /) -> object: ...


def is_table(source: object) -> bool:
    """Whether a source is a table: a data frame, or a dict."""
    return isinstance(source, Mapping) or (hasattr(source, "columns") and hasattr(source, "__getitem__"))


def table_sheets(table: Frame | Mapping[str, object], name: str) -> Iterator[Sheet]:
    """The content of a table; a dict of tables has one run in each, by name."""
    if not isinstance(table, Mapping):
        yield _sheet(_frame_columns(table), name)
    elif table and all(is_table(value) for value in table.values()):
        for key, value in table.items():
            yield from table_sheets(value, str(key))  # type: ignore[arg-type]
    else:
        yield _sheet({str(key): _cells(str(key), value) for key, value in table.items()}, name)


def _frame_columns(frame: Frame) -> dict[str, list[object]]:
    """The columns of a data frame, and its index if that has a name. NaN is what pandas has for a missing cell."""
    columns = {str(key): _cells(str(key), frame[key]) for key in frame.columns}
    index = getattr(frame, "index", None)
    if (name := getattr(index, "name", None)) is not None:
        columns.setdefault(str(name), _cells(str(name), index))
    if hasattr(frame, "isna"):
        columns = {
            name: [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells]
            for name, cells in columns.items()
        }
    return columns


def _cells(name: str, values: object) -> list[object]:
    """A column as a list of plain Python values."""
    plain = next((getattr(values, method)() for method in ("tolist", "to_list") if hasattr(values, method)), values)
    if isinstance(plain, str | bytes) or not isinstance(plain, Sequence):
        raise Wrong(f"a table of logs is a dict of columns, and {name!r:.60} is no column: got {values!r:.60}", "paths")
    return [cell.item() if hasattr(cell, "item") else cell for cell in plain]


def _sheet(columns: Mapping[str, list[object]], name: str) -> Sheet:
    lengths = {key: len(cells) for key, cells in columns.items()}
    if not columns or not max(lengths.values()):
        raise Wrong(f"{name} holds no rows", argument="paths")
    if len(set(lengths.values())) > 1:
        told = listed([f"{key} has {count:,}" for key, count in lengths.items()])
        raise Wrong(f"the columns of {name} must have as many cells as one another: {told}", argument="paths")
    return Sheet(name, name, columns, range(1, max(lengths.values()) + 1), "row", "table")
