"""The schedule editor in a real browser: pieces are dragged by mouse, keys and touch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pages import PAPER, close

from nqm import SGD, Schedule, optimal_schedule

pytestmark = pytest.mark.slow


def test_schedule_editor(open_page):
    page = open_page(
        "view=schedule&run=SGD(lr=0.5)&batch=256&steps=3000&pieces=2&schedule=Schedule([2000,1000],[1,0.1])"
    )
    exact = PAPER.run(SGD(0.5), 256, 3000, Schedule([2000, 1000], [1, 0.1]), grid="linear")
    close(page.line("with the schedule"), exact.loss)
    close(page.line("constant rate"), PAPER.run(SGD(0.5), 256, 3000, grid="linear").loss)
    before = page.line("with the schedule")[-1]
    box = page.page.locator(".piece").nth(1).locator(".knob").bounding_box()
    page.page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 5, box["y"] + 40, steps=4)
    page.page.mouse.up()
    page.settle()
    dragged = page.page.evaluate("window.nqm.state().schedule")
    assert dragged.startswith("Schedule([2000, 1000], [1, 0.0")
    assert page.line("with the schedule")[-1] != before
    page.set("#batch-text", "512")
    page.page.click("#best-loss")
    page.settle()
    best = optimal_schedule(PAPER, SGD(), 512, steps=3000, pieces=2)
    # The page writes learning rate and multipliers with a few digits, and the optimum is flat.
    assert page.line("with the schedule")[-1] == pytest.approx(best.loss, rel=1e-4)
    assert min(page.colours()) > 10


def ends(page: Any) -> list[float]:
    return [float(node.get_attribute("aria-valuenow")) for node in page.page.locator(".edge").all()]


def test_ends_of_pieces_are_dragged_and_moved_by_keys(open_page):
    page = open_page(
        "view=schedule&run=SGD(lr=0.5)&batch=256&steps=3000&schedule=Schedule([1000,1000,1000],[1,0.3,0.1])"
    )
    grip = page.page.locator(".edge .grip").nth(0)
    assert grip.evaluate("node => getComputedStyle(node).stroke") not in ("none", "rgba(0, 0, 0, 0)")  # to be seen
    box = grip.bounding_box()
    page.page.mouse.move(box["x"] + 2, box["y"] + 9)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 62, box["y"] + 30, steps=3)
    page.page.mouse.up()
    page.settle()
    first, second = ends(page)
    assert second == 2000
    assert 1100 < first < 1500
    assert page.page.evaluate("window.nqm.state().schedule") == (
        f"Schedule([{first:g}, {2000 - first:g}, 1000], [1, 0.3, 0.1])"
    )
    assert f"End of piece 1 of 3: step {first:,.0f}" in page.text(".editor .readout")
    plan = Schedule([int(first), 2000 - int(first), 1000], [1, 0.3, 0.1])
    close(page.line("with the schedule"), PAPER.run(SGD(0.5), 256, 3000, plan, grid="linear").loss)
    page.page.focus(".edge >> nth=1")
    for key in ("ArrowRight", "Shift+ArrowRight", "PageDown"):
        page.page.keyboard.press(key)
    assert ends(page) == [first, 2000 + 30 + 3 - 300]
    page.page.keyboard.press("Home")
    assert ends(page) == [first, first + 1]
    page.page.keyboard.press("End")
    assert ends(page) == [first, 2999]
    page.settle()


def touch(page: Any, start: tuple[float, float], by: tuple[float, float]) -> None:
    """A finger that goes down, moves and leaves."""
    client = page.page.context.new_cdp_session(page.page)
    for kind, part in [("touchStart", 0), ("touchMove", 0.5), ("touchMove", 1), ("touchEnd", None)]:
        at = [] if part is None else [{"x": start[0] + part * by[0], "y": start[1] + part * by[1]}]
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})


def test_pieces_on_a_phone(open_page):
    page = open_page("view=schedule&run=SGD(lr=0.5)&batch=256&steps=3000&pieces=10", has_touch=True)
    page.page.set_viewport_size({"width": 390, "height": 740})
    page.page.locator(".edge .grip").nth(4).evaluate("(node) => node.scrollIntoView({block: 'center'})")
    box = page.page.locator(".edge .touch").nth(4).bounding_box()
    assert box["width"] >= 20  # as much as ten pieces leave
    assert box["height"] >= 24
    touch(page, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2), (12, 0))
    page.settle()
    assert ends(page)[4] > 1510
    assert ends(page)[3::2] == [1200, 1800, 2400]
    box = page.page.locator(".piece .knob").nth(2).bounding_box()
    touch(page, (box["x"] + 6, box["y"] + 6), (0, 30))
    page.settle()
    schedule = page.page.evaluate("window.nqm.state().schedule")
    lr = json.loads(schedule[schedule.rindex("[") : -1])
    assert lr[2] < 0.8
    assert lr[:2] == lr[3:5] == [1, 1]
    box = page.page.locator(".piece .bar").nth(7).bounding_box()
    touch(page, (box["x"] + box["width"] / 2, box["y"] + box["height"] - 40), (0, -60))  # scrolls the page
    page.settle()
    assert page.page.evaluate("window.nqm.state().schedule") == schedule
