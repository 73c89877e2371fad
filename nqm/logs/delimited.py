"""CSV, TSV and other tables of text: the delimiter is found from the header, and every row is accounted for."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence

from ..types import Wrong, short
from .sheets import Sheet, counted, lines_of, listed

DELIMITERS = (",", ";")  # Tabs, if there are any, come before them.
MAX_FIELDS = 100_000  # Columns of a table, at most.


def delimited(text: str, file: str, name: str) -> Sheet:
    """A table of text with a header. A last line that is cut off is omitted, with a remark."""
    lines = lines_of(text)
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise Wrong(f"{file} is empty", argument="paths")
    while lines[first].startswith("#") and first + 1 < len(lines) and not _numeric(lines[first + 1]):
        first += 1
    head = lines[first].lstrip("#").strip("\ufeff ")
    delimiter = _delimiter(head)
    header = _header(_fields(head, delimiter), f"{file}, line {first + 1:,}")
    remarks: list[str] = []
    found = None if delimiter is None or '"' in text else _plain_cells(lines, first, delimiter, header)
    columns, places = found or _cells(lines[first + 1 :], first + 1, delimiter, header, file, remarks)
    comma = delimiter in ("\t", ";") and _has_decimal_commas(columns)
    if comma:
        remarks.append("Numbers are written with a decimal comma.")
    return Sheet(file, name, columns, places, decimal_comma=comma, remarks=tuple(remarks))


def _plain_cells(
    lines: Sequence[str], first: int, delimiter: str, header: Sequence[str]
) -> tuple[dict[str, Sequence[object]], list[int]] | None:
    """The columns of a table without quotes in which every line has as many fields as the header; None for another."""
    body = lines[first + 1 :]
    others = len(header) - 1
    if lines[first] in body or any(line.count(delimiter) != others for line in body if line):
        return None
    if "" in body:
        places = [first + 2 + i for i, line in enumerate(body) if line]
        body = [line for line in body if line]
    else:
        places = list(range(first + 2, first + 2 + len(body)))
    cells = delimiter.join(body).split(delimiter) if body else []
    return {name: cells[i :: len(header)] for i, name in enumerate(header)}, places


def _cells(
    body: Sequence[str], before: int, delimiter: str | None, header: list[str], file: str, remarks: list[str]
) -> tuple[dict[str, Sequence[object]], list[int]]:
    """The columns of any table, row by row."""
    rows, places = _rows(body, delimiter, before, file)
    rows, places = _whole_rows(rows, places, header, file, before + len(body), remarks)
    return dict(zip(header, zip(*rows, strict=True) if rows else [[] for _ in header], strict=True)), places


def _has_decimal_commas(columns: Mapping[str, Sequence[object]]) -> bool:
    """Whether the first rows hold numbers such as 0,5, and no other commas."""
    cells = [str(cell) for column in columns.values() for cell in column[:100] if "," in str(cell)]
    return bool(cells) and all(_comma_number(cell) for cell in cells)


def _numeric(line: str) -> bool:
    """Whether a line begins with a number, so that the line before it may be a header."""
    words = line.replace(",", " ").replace(";", " ").split()
    return bool(words) and _is_number(words[0])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _comma_number(cell: str) -> bool:
    return cell.count(",") == 1 and _is_number(cell.replace(",", "."))


def _delimiter(head: str) -> str | None:
    """The delimiter of a header: a tab, or the more frequent of comma and semicolon; None stands for spaces."""
    if "\t" in head:
        return "\t"
    best = max(DELIMITERS, key=head.count)
    return best if best in head else None


def _fields(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    except csv.Error:
        return [line]


def _header(names: Sequence[str], where: str) -> list[str]:
    header = [name.strip() or f"column {i}" for i, name in enumerate(names, 1)]
    if all(_is_number(name) for name in names):
        remedy = "write a first line with the names of the columns, such as step,lr,loss"
        raise Wrong(f"{where} holds numbers where the names of the columns are expected; {remedy}", argument="paths")
    if len(header) > MAX_FIELDS:
        raise Wrong(f"{where} names {len(header):,} columns; at most {MAX_FIELDS:,} are read", argument="paths")
    twice, count = Counter(header).most_common(1)[0]
    if count > 1:
        raise Wrong(f"{where} names the column {short(twice)!r} twice", argument="paths")
    return header


def _rows(body: Sequence[str], delimiter: str | None, before: int, file: str) -> tuple[list[list[str]], list[int]]:
    """The rows that are not blank, and the line in which each ends."""
    if delimiter is None:
        rows = [line.split() for line in body]
        kept = [i for i, row in enumerate(rows) if row]
        return [rows[i] for i in kept], [before + 1 + i for i in kept]
    reader = csv.reader(body, delimiter=delimiter, strict=True, skipinitialspace=True)
    rows, places = [], []
    try:
        for row in reader:
            if row:
                rows.append(row)
                places.append(reader.line_num + before)
    except csv.Error as error:
        raise Wrong(f"{file}, line {reader.line_num + before:,} is not a row of a table: {error}", "paths") from None
    return rows, places


def _whole_rows(
    rows: list[list[str]], places: list[int], header: list[str], file: str, last: int, remarks: list[str]
) -> tuple[list[list[str]], list[int]]:
    """The rows that have a field for each column; repeated headers and a last line that is cut off are omitted."""
    width = len(header)
    if rows and len(rows[-1]) < width and places[-1] == last and (len(rows) == 1 or places[-2] < last):
        remarks.append(f"The last line, line {last:,}, is cut off and was omitted.")
        rows, places = rows[:-1], places[:-1]
    odd = [i for i, row in enumerate(rows) if len(row) != width or row[0].strip() == header[0]]
    again = [i for i in odd if [cell.strip() for cell in rows[i]] == header]
    wrong = [i for i in odd if len(rows[i]) != width]
    if wrong:
        i = wrong[0]
        sentence = f"{file}, line {places[i]:,} has {counted(len(rows[i]), 'field')}, and the header has {width:,}"
        raise Wrong(sentence, argument="paths")
    if again:
        remarks.append(
            f"The header is repeated in {counted(len(again), 'line')} ({listed([places[i] for i in again])})."
        )
        omitted = set(again)
        keep = [i for i in range(len(rows)) if i not in omitted]
        rows, places = [rows[i] for i in keep], [places[i] for i in keep]
    return rows, places
