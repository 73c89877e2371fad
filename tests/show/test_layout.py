"""Tables at any width: nothing is lost, and no number is broken."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nqm.show import layout
from nqm.show.layout import length, table_lines, wrapped
from nqm.show.numbers import shown

NUMBERS = st.one_of(st.floats(allow_nan=True), st.integers(-(10**12), 10**12), st.none())
NAMES = st.text("abcdefgh ", min_size=1, max_size=20).map(lambda text: " ".join(text.split()) or "x")
WORDS = st.text("abcdefghi (),=.123 漢é", max_size=60)
WIDTHS = st.integers(1, 130)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, object]]:
    names = draw(st.lists(NAMES, min_size=1, max_size=9, unique=True))
    kinds = {name: draw(st.sampled_from([NUMBERS, WORDS])) for name in names}
    return [{name: draw(kinds[name]) for name in names} for _ in range(draw(st.integers(1, 5)))]


def words_of(lines: list[str]) -> list[str]:
    return [word for line in lines for word in line.split()]


def missing(rows: list[dict[str, object]], lines: list[str]) -> set[str]:
    """Words of the cells and names of a table that are not among its lines."""
    cells = [shown(value) for row in rows for value in row.values()]
    return {word for text in (*cells, *rows[0]) for word in text.split()} - set(words_of(lines))


@given(tables(), WIDTHS)
def test_every_word_of_every_cell_is_on_one_line_at_every_width(rows: list[dict[str, object]], width: int) -> None:
    lines, _ = table_lines(rows, width)
    assert not missing(rows, lines)


def test_a_printer_that_crops_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, object]] = [{"batch size": 4, "steps": 13_340_838}]
    assert not missing(rows, table_lines(rows, 8)[0])
    monkeypatch.setattr(layout._Column, "narrowest", 5)
    monkeypatch.setattr(layout, "wrapped", lambda text, width: [text[: int(width)]])
    assert missing(rows, table_lines(rows, 12)[0])


@given(tables(), WIDTHS)
def test_a_line_is_wider_than_the_screen_only_for_what_cannot_be_narrower(
    rows: list[dict[str, object]], width: int
) -> None:
    lines, _ = table_lines(rows, width)
    longest = max(length(word) for word in words_of(lines)) if words_of(lines) else 0
    keys = min(layout.MOST_KEYS, len(rows[0]) - 1)
    most = (keys + 1) * (max(longest, layout.NARROWEST) + layout.GAP)
    assert max(map(length, lines)) <= max(width, most)


@given(tables())
def test_a_pipe_gets_each_row_as_one_line(rows: list[dict[str, object]]) -> None:
    lines, heads = table_lines(rows, math.inf)
    assert len(lines) == 1 + len(rows)
    assert heads == {0}
    narrow, _ = table_lines(rows, max(map(length, lines)))
    assert narrow == lines


def test_a_table_that_is_split_repeats_the_columns_that_tell_its_rows_apart() -> None:
    rows = [{"optimizer": o, "batch": b, "steps": 10**7, "examples": 10**9} for o in ("SGD", "Adam") for b in (4, 8)]
    lines, heads = table_lines(rows, 30)
    names = [lines[i].split() for i in sorted(heads)]
    assert names == [["optimizer", "batch", "steps"], ["optimizer", "batch", "examples"]]
    assert sum(line.startswith("Adam") for line in lines) == 4


def test_words_wrap_before_a_table_is_split() -> None:
    rows = [{"claim": "the average helps at small batch sizes and costs nothing", "share": 0.97}]
    lines, heads = table_lines(rows, 40, rule="─")
    assert heads == {0}
    assert lines[1] == "─" * 40
    assert all(len(line) <= 40 for line in lines)
    assert lines[2].endswith("0.97")


@given(WORDS, WIDTHS)
def test_wrapped_text_has_all_its_words(text: str, width: int) -> None:
    lines = wrapped(text, width, "  ")
    assert words_of(lines) == text.split()
    assert all(length(line) <= width or len(line.split()) == 1 for line in lines)


@pytest.mark.parametrize("number", ["1e-05", "-0.0061", "1.07e-05..8", "2^-10"])
def test_a_hyphen_does_not_break_a_number(number: str) -> None:
    assert number in wrapped(f"between {number} and {number}", len(number) + 2)
