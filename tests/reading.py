"""What every result promises its reader: one line, HTML that stands alone, a data frame with the columns of its CSV."""

from __future__ import annotations

import base64
import csv
import io
import re
import sys

from nqm.engine.readable import Readable, Tabular

LONGEST = 240  # characters: two lines of a terminal
PNG = re.compile(r'src="data:image/png;base64,([^"]+)"')


def check_reads_well(result: Readable, *said: str, rows: int | None = None, pictures: int = 0) -> str:
    """Hold one result to all of it, and return its HTML.

    ``said`` are texts that its line has, ``rows`` is the length of its table, None if it has none.
    """
    line = repr(result)
    assert line.startswith(f"{type(result).__name__}(")
    assert line.endswith(")")
    assert "\n" not in line
    assert "array(" not in line
    assert "<" not in line
    assert len(line) <= LONGEST, line
    assert [text for text in said if text not in line] == [], line
    html = result._repr_html_()
    found = PNG.findall(html)
    assert len(found) == pictures
    assert all(base64.b64decode(data).startswith(b"\x89PNG") for data in found)
    pyplot = sys.modules.get("matplotlib.pyplot")  # A figure of pyplot stays open, and a notebook would show it again.
    assert pyplot is None or not pyplot.get_fignums()
    assert isinstance(result, Tabular) == (rows is not None)
    if isinstance(result, Tabular):
        check_table(result, rows or 0, html)
    return html


def check_table(result: Tabular, rows: int, html: str) -> None:
    """The same columns in rows, CSV and data frame; and no more than a dozen rows in a notebook."""
    table, text = result.table(), result.to_csv()
    columns = next(csv.reader(io.StringIO(text)))
    assert len(table) == len(list(csv.reader(io.StringIO(text)))) - 1 == rows
    assert columns == list(dict.fromkeys(name for row in table for name in row))
    assert html.count("<tr>") == 1 + min(rows, 12)
    assert (f"12 of {rows:,} rows" in html) == (rows > 12)
    try:
        import pandas  # noqa: F401
    except ImportError:  # The tests of pandas itself skip by name.
        return
    frame = result.to_pandas()
    assert list(frame.columns) == columns
    assert len(frame) == rows
    again = [{k: v for k, v in row.items() if v == v and v is not None} for row in frame.to_dict("records")]
    assert again == [{k: v for k, v in row.items() if v == v and v is not None} for row in table]
