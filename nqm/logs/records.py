"""JSON: one object on each line, a list of objects, columns of values, or the state that Hugging Face's Trainer saves."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from ..types import Wrong, short
from .sheets import Sheet, lines_of

MAX_DEPTH = 8  # Objects within objects are opened this deep; what lies deeper is not a number and is not read.
MAX_CELLS = 2 * 10**8  # Rows times names, at most.
LINES_AT_ONCE = 10_000  # Lines that are parsed together: faster than one by one, and with less memory than all at once.
MEAN_SINCE = "Hugging Face's Trainer logs the mean of the training loss since the logged step before."


def json_sheet(text: str, file: str, name: str) -> Sheet:
    """The rows of a JSON or JSON-lines file."""
    if (whole := _whole(text, file)) is not None:
        return _document(whole, file, name)
    lines = lines_of(text)
    kept = [i for i, line in enumerate(lines) if line.strip()]
    columns: dict[str, list[object]] = {}
    remarks: tuple[str, ...] = ()
    count = 0
    for start in range(0, len(kept), LINES_AT_ONCE):
        chunk = kept[start : start + LINES_AT_ONCE]
        rows, remarks = _rows(lines, chunk, file, last=kept[-1])
        _append(columns, columns_of(rows, file, [i + 1 for i in chunk[: len(rows)]], "line"), count, len(rows), file)
        count += len(rows)
    return Sheet(file, name, columns, [i + 1 for i in kept[:count]], "line", "jsonl", remarks=remarks)


def _append(
    columns: dict[str, list[object]], more: Mapping[str, Sequence[object]], count: int, rows: int, file: str
) -> None:
    """Put rows below ``count`` rows; a cell that either does not have is missing."""
    for name in more:
        columns.setdefault(name, [None] * count)
    check_cells(columns, count + rows, file)
    for name, cells in columns.items():
        cells.extend(more[name] if name in more else [None] * rows)


def _rows(lines: Sequence[str], kept: Sequence[int], file: str, last: int) -> tuple[list[object], tuple[str, ...]]:
    """The values of some lines. The last line of the file may be cut off: it is then omitted, with a remark."""
    try:
        rows = json.loads("[" + ",".join([lines[i] for i in kept]) + "]")
        if len(rows) == len(kept):
            return rows, ()
    except (ValueError, RecursionError):
        pass  # Some line is not JSON, or holds several values: each one is looked at.
    return _each_line(lines, kept, file, last)


def _whole(text: str, file: str) -> object | None:
    """The value of a text that is one JSON document; None if it has one value on each line."""
    first, _, others = text.strip().partition("\n")
    if others and first.rstrip().endswith(("}", "]")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        known = isinstance(error, json.JSONDecodeError)
        where, reason = (f", line {error.lineno:,}", error.msg) if known else ("", "it cannot be parsed")
        raise Wrong(f"{file}{where} is not JSON: {reason}", argument="paths") from None


def _each_line(lines: Sequence[str], kept: Sequence[int], file: str, last: int) -> tuple[list[object], tuple[str, ...]]:
    rows: list[object] = []
    for i in kept:
        try:
            rows.append(json.loads(lines[i]))
        except (ValueError, RecursionError) as error:
            if i == last and (rows or kept[0] < last):
                return rows, (f"The last line, line {i + 1:,}, is cut off and was omitted.",)
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be parsed"
            raise Wrong(f"{file}, line {i + 1:,} is not JSON: {reason}", argument="paths") from None
    return rows, ()


def _document(value: object, file: str, name: str) -> Sheet:
    if isinstance(value, dict) and isinstance(history := value.get("log_history"), list):
        places = list(range(1, len(history) + 1))
        columns = columns_of(history, file, places, "entry")
        return Sheet(file, name, columns, places, "entry", "trainer_state")
    if isinstance(value, dict) and value and all(isinstance(cells, list) for cells in value.values()):
        lengths = {key: len(cells) for key, cells in value.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{short(key, 30)} {length:,}" for key, length in list(lengths.items())[:6])
            raise Wrong(f"{file}: the lists must have one length, got {shown}", argument="paths")
        places = list(range(1, max(lengths.values()) + 1))
        return Sheet(file, name, value, places, "entry", "json")
    rows = value if isinstance(value, list) else [value]
    places = list(range(1, len(rows) + 1))
    return Sheet(file, name, columns_of(rows, file, places, "entry"), places, "entry", "json")


def columns_of(rows: Sequence[object], file: str, places: Sequence[int], unit: str) -> dict[str, Sequence[object]]:
    """Objects as columns; a value inside an object inside a row is called ``outer/inner``."""
    names: dict[str, None] = {}
    nested = False
    for row, place in zip(rows, places, strict=True):
        if not isinstance(row, dict):
            raise Wrong(f"{file}, {unit} {place:,} is not a JSON object with names and values", argument="paths")
        names.update(dict.fromkeys(row))
        nested = nested or any(type(value) is dict for value in row.values())
    if nested:
        rows = [_flat(row) for row in rows]  # type: ignore[arg-type]
        names = dict.fromkeys(name for row in rows for name in row)
    check_cells(names, len(rows), file)
    return {name: [row.get(name) for row in rows] for name in names}  # type: ignore[union-attr]


def check_cells(names: Collection[str], rows: int, file: str) -> None:
    """Refuse a file whose rows have so many different names that their columns would fill the memory."""
    if len(names) * rows > MAX_CELLS:
        sentence = f"{file}: {rows:,} rows with {len(names):,} different names are too many; keep those that are needed"
        raise Wrong(sentence, argument="paths")


def _flat(row: Mapping[str, object], before: str = "", depth: int = 0) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            flat |= _flat(value, f"{before}{name}/", depth + 1)
        else:
            flat[before + name] = value
    return flat
