"""Every view against axe-core's rules of accessibility, in light, in dark, and on a phone: nothing serious.

The package axe-playwright-python carries axe-core, so that nothing is loaded from elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest
from pages import DIGITS, SETTING, SIZES, VIEWS

pytestmark = pytest.mark.slow
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

SCREENS = {"light": (1280, 800), "dark": (1280, 800), "phone": (390, 844)}
SERIOUS = ("serious", "critical")


def faults(page: Any) -> list[str]:
    """What is serious: rule, element, and what axe-core says of it."""
    found = axe.Axe().run(page.page).response["violations"]
    return [
        f"{one['id']} at {node['target']}: {node['failureSummary']}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_serious(open_page: Any, screen: str) -> None:
    colour = "dark" if screen == "dark" else "light"
    page = open_page(f"{SETTING}&{SIZES}&cells=12", color_scheme=colour, bypass_csp=True)
    width, height = SCREENS[screen]
    page.page.set_viewport_size({"width": width, "height": height})
    found = {}
    for view in (*VIEWS, "advice", "runs"):
        page.page.click(f"#tab-{view}")
        page.settle()
        found[view] = faults(page)
    page.page.evaluate("document.querySelector('#drawer').open = true")
    page.view("network")
    page.page.select_option("#spectrum-kind", "file")
    page.page.set_input_files("#file", DIGITS)
    page.page.locator("text=digits.json").first.wait_for()
    page.settle()
    found["measured network"] = faults(page)
    page.page.click("#tab-runs")
    page.page.evaluate("window.nqm.update({data: ''})")
    page.page.click("#runs-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.page.click("#shape-wsd")
    page.settle()
    found["runs with a schedule"] = faults(page)
    assert {view: told for view, told in found.items() if told} == {}


def test_a_planted_fault_is_found(open_page: Any) -> None:
    page = open_page(f"view=loss&{SETTING}", bypass_csp=True)
    page.page.evaluate("document.querySelector('#view').append(document.createElement('button'))")
    assert any(told.startswith("button-name") for told in faults(page))
