"""Tables as rows: what is missing stays missing, and text cannot break them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from nqm.show.numbers import shown, spelled
from nqm.show.tables import column, distinct, header, made, markdown, to_csv

TABLE = [{"who": "a", "x": 1.0}, {"who": "b", "x": None}, {"who": "a", "y": math.nan}]


def test_columns() -> None:
    assert header(TABLE) == ["who", "x", "y"]
    assert distinct(TABLE, "who") == ["a", "b"]
    assert np.array_equal(column(TABLE, "x"), [1.0, np.nan, np.nan], equal_nan=True)
    assert column(TABLE, "x", who="a")[0] == 1.0
    assert len(column(TABLE, "x", who="c")) == 0


def test_csv_leaves_what_is_missing_empty(tmp_path: Path) -> None:
    to_csv(TABLE, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "who,x,y\na,1.0,\nb,,\na,,\n"


def test_markdown_and_numbers() -> None:
    assert markdown(["a"], [["x|y"], [1234567.8], [0.123456], [None]]).splitlines()[2:] == [
        r"| x\|y |",
        "| 1,234,568 |",
        "| 0.1235 |",
        "| - |",
    ]
    assert shown(math.inf) == "inf"
    assert spelled([0.8551, 2]) == "0.855, 2"


def test_a_folder_is_made_or_refused(tmp_path: Path) -> None:
    assert made(tmp_path / "a" / "b", "page.md") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b" / "page.md").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write into the folder '.*file'"):
        made(tmp_path / "file", "page.md")
