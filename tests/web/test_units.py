"""Pure parts of the page's JavaScript, in the browser that the tests install: ``units.js`` has one entry for each test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

UNITS = Path(__file__).with_name("units.js").read_text()
NAMES = re.findall(r'^  "(.*)": \[$', UNITS, re.MULTILINE)
RUN = """async ([units, name]) => {
    const [module, found, expected] = eval(units)[name];
    return [await found(await import(`/js/${module}.js`)), expected];
}"""


@pytest.fixture(scope="module")
def page(explorer: str, browser: Any) -> Iterator[Any]:
    context = browser.new_context(
        bypass_csp=True
    )  # The page's policy forbids eval, by which a test reaches the browser.
    opened = context.new_page()
    opened.goto(f"{explorer}icon.svg")  # The page itself need not run.
    yield opened
    context.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_pure_part(name: str, page: Any) -> None:
    found, expected = page.evaluate(RUN, [UNITS, name])
    assert json.loads(json.dumps(found)) == expected


def test_entries_are_found() -> None:
    assert len(NAMES) == len(re.findall(r"async \(m\) =>", UNITS)) > 20
