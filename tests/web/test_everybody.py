"""The page in a real browser, for everybody: by keyboard, on a phone, in the dark, with guided examples."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from pages import SETTING, SIZES, VIEWS

pytestmark = pytest.mark.slow


def test_keyboard_reaches_everything(open_page):
    page = open_page(f"view=schedule&{SETTING}&schedule=Schedule([2000,1000],[1,0.5])")
    seen, unnamed, invisible = [], [], []
    page.page.evaluate("document.body.focus()")
    for _ in range(80):
        page.page.keyboard.press("Tab")
        at = page.page.evaluate(
            """() => {
                const node = document.activeElement;
                const style = getComputedStyle(node);
                const inner = node.querySelector?.(".knob, .grip");
                const labels = [...(node.labels ?? [])].map((label) => label.textContent).join(" ");
                const name = node.getAttribute("aria-label") || labels || node.textContent.trim();
                const ring = style.outlineStyle !== "none" || (inner && parseFloat(getComputedStyle(inner).strokeWidth) > 3);
                return { id: node.id || node.getAttribute("class") || node.tagName, name, ring, body: node === document.body };
            }"""
        )
        if at["body"]:
            break
        seen.append(at["id"])
        unnamed += [] if at["name"] else [at["id"]]
        invisible += [] if at["ring"] else [at["id"]]
    assert {
        "tab-schedule",
        "target",
        "setting-text",
        "tune",
        "schedule-text",
        "best-loss",
        "piece",
        "edge",
        "plot",
        "save-html",
    } <= set(seen)
    assert unnamed == []
    assert invisible == []
    page.page.focus(".piece >> nth=1")
    for key in ("ArrowDown", "ArrowLeft"):
        page.page.keyboard.press(key)
    page.settle()
    assert page.page.evaluate("window.nqm.state().schedule") == "Schedule([2000, 1000], [1, 0.4204])"
    page.page.focus(".piece >> nth=0")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("+")
    page.settle()
    assert page.page.evaluate("window.nqm.state().schedule") == "Schedule([1015, 1015, 970], [1, 1, 0.4204])"
    page.page.focus("#tab-schedule")
    page.page.keyboard.press("ArrowLeft")
    page.settle()
    assert page.shown("view") == "settings"


def test_charts_are_read_by_keyboard_and_words_explained(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    page.page.focus(".plot")
    for _ in range(2):
        page.page.keyboard.press("ArrowRight")
    assert page.text(".readout").startswith("SGD(): ")
    page.page.keyboard.press("Enter")
    page.settle()
    assert page.shown("view") == "loss"
    page.page.hover("#setting label[data-term=lr]")
    assert len(page.text("#hint")) > 20
    page.page.mouse.move(0, 0)
    page.page.focus("#setting-lr-0")
    page.page.keyboard.press("ArrowRight")
    page.page.focus("#batch")
    assert page.page.get_attribute("#batch", "aria-describedby") == "hint"
    page.settle()


@pytest.mark.parametrize("colour", ["light", "dark"])
def test_every_view_fits_a_phone(open_page, colour):
    page = open_page(f"{SETTING}&{SIZES}&cells=12", color_scheme=colour)
    page.page.set_viewport_size({"width": 375, "height": 740})
    backgrounds = set()
    for view in VIEWS:
        page.view(view)
        assert page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
        assert min(page.colours()) > 5, view
        backgrounds.add(page.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        _keep(page, f"phone-{colour}-{view}")
    page.page.click("#theme")
    backgrounds.add(page.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_guided_examples(open_page):
    page = open_page("view=network&kind=least_squares&label_noise=1")  # which the examples do not mean
    for tour in range(3):
        page.page.click("#examples summary")
        page.page.click(f"#example-list li:nth-child({tour + 1}) button")
        page.settle()
        while page.page.locator("#tour .strong").count():
            assert page.page.is_hidden("#error")
            page.page.click("#tour .strong")
            page.settle()
        assert page.page.is_hidden("#error")
        page.page.click("#tour >> text=Close")


def test_report_how_long_a_move_takes(open_page, capsys):
    """Printed, not asserted: a machine may be busy."""
    page = open_page(f"view=loss&{SETTING}")
    rows = []
    controls = {"loss": "#setting-lr-0", "schedule": ".piece >> nth=2", "steps": "#target", "map": "#target"}
    for view, control in controls.items():
        page.view(view)
        page.page.focus(control)
        page.page.evaluate("window.nqm.timings.length = 0")
        for _ in range(8 if view in ("loss", "schedule") else 2):
            page.page.keyboard.press("ArrowDown")
            page.page.wait_for_timeout(120)
            if view in ("steps", "map"):
                page.settle()
        page.settle()
        found = page.page.evaluate("window.nqm.timings")
        quick = [t for t in found if t["moving"]] or found
        rows.append((view, len(quick), *(float(np.median([t[k] for t in quick])) for k in ("server", "draw", "ms"))))
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    with capsys.disabled():
        print(f"\nfrom a move to its picture, median in ms (load {load:.1f} for each core)")
        for view, count, server, draw, total in rows:
            print(f"  {view:9} {total:7.0f}   server {server:6.0f}   drawing {draw:4.0f}   ({count} moves)")


def _keep(page: Any, name: str) -> None:
    """Screenshots for a look, where NQM_SCREENSHOTS names a folder."""
    if folder := os.environ.get("NQM_SCREENSHOTS"):
        page.page.screenshot(path=f"{folder}/{name}.png", full_page=True)
