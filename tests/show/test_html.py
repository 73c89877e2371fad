"""One HTML page: well formed, self-contained, and nothing that is written on it can break out of its place."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import pytest

from nqm.show import html
from nqm.show.html import Marked

EVIL = "<script>alert('x')</script> & \"quotes\""


class Outline(HTMLParser):
    """The tags of a page, which must close in order, and what it refers to."""

    VOID = ("meta", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.data: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def full(text: str) -> str:
    """A page with every part, each of which holds the text."""
    return html.page(
        text,
        html.paragraph(text),
        html.paragraph(text, "quiet"),
        html.section(
            text,
            html.quote(text),
            html.code(text),
            html.picture(b"\x89PNG", text),
            html.entries([("one", text), ("verdict", Marked(text, "holds"))]),
            html.pairs({text: text, "number": 0.123456}),
            html.table([{"name": Marked(text, section="place"), text: 1234567.8}, {"name": text, "other": None}]),
            name="place",
        ),
        html.table([]),
    )


def test_a_page_is_well_formed_and_loads_nothing() -> None:
    page = Outline(full("Plain words"))
    assert page.tags[:2] == ["html", "head"]
    assert page.references == ["data:image/png;base64,iVBORw==", "#place"]
    assert {"h1", "h2", "blockquote", "pre", "figure", "dl", "table"} <= set(page.tags)


def test_text_stays_text() -> None:
    page = Outline(full(EVIL))
    assert "script" not in page.tags
    assert "".join(page.data).count(EVIL) == full("§§").count("§§") - 1  # but for the picture's description
    assert Outline(full("Plain words")).tags == page.tags


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.8, "1,234,568"), (335.15, "335"), (None, "-"), (math.nan, "-"), (0.99998769, "0.9999877")],
)
def test_numbers_are_those_of_the_command_line(value: float | None, text: str) -> None:
    assert f"<td>{text}</td>" in html.table([{"x": value}])


def test_versions_name_what_numbers_depend_on() -> None:
    found = html.versions()
    assert {"python", "machine", "nqm", "numpy", "scipy"} <= set(found)
