"""Comparing with a pinned setting, schedules against the best, and a finger instead of a mouse."""

from __future__ import annotations

import math

import pytest
from pages import PAPER, SIZES, VIEWS

from nqm import SGD, optimal_schedule, sweep

pytestmark = pytest.mark.slow
PLACE = """async () => {
    const [{limits}, {forward}] = await Promise.all([import("/js/model.js"), import("/js/format.js")]);
    const panel = window.nqm.shown.figure.panels[0];
    const {x, y} = limits(panel);
    const part = ([low, high], value) => (forward.log2(value) - forward.log2(low)) / (forward.log2(high) - forward.log2(low));
    const box = document.querySelector(".u-over").getBoundingClientRect();
    const line = panel.lines.findLast((one) => one.pick);
    return [box.left + part(x, line.x[1]) * box.width, box.bottom - part(y, line.y[1]) * box.height];
}"""
"""The place on the screen of the second point of the last line whose points can be chosen."""


MARKED = """async () => {
    const [{limits}, {backward, forward}] = await Promise.all([import("/js/model.js"), import("/js/format.js")]);
    const {x, y} = limits(window.nqm.shown.figure.panels[0]);
    const box = document.querySelector(".u-over").getBoundingClientRect();
    const dot = document.querySelector(".now i").getBoundingClientRect();
    const at = ([low, high], part) => backward.log(forward.log(low) + part * (forward.log(high) - forward.log(low)));
    const [across, down] = [(dot.left + dot.right) / 2 - box.left, (dot.top + dot.bottom) / 2 - box.top];
    return {step: at(x, across / box.width), loss: at(y, 1 - down / box.height)};
}"""
"""Step and loss at which the marker of the time line is on the screen."""


def test_a_pinned_setting_is_compared_in_words(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    page.page.click("#pin")
    page.settle()
    assert page.text("#compared") == "Against the pinned setting, plain SGD: the same steps."
    page.set("#target-text", "0.02")
    sizes = [4, 64, 1024, 16384]
    ratio = sweep(PAPER, SGD(), sizes, target=0.02).steps / sweep(PAPER, SGD(), sizes, target=0.01).steps
    mean = ratio.prod() ** (1 / len(sizes))
    assert page.text("#compared") == f"Against the pinned setting, plain SGD: {100 * (1 - mean):.0f}% fewer steps."
    assert page.line("pinned: SGD()") == pytest.approx(sweep(PAPER, SGD(), sizes, target=0.01).steps)
    again = open_page(page.link())
    assert again.text("#compared") == page.text("#compared")
    page.page.click("#pin")
    page.settle()
    assert page.page.is_hidden("#compared")


def test_a_schedule_is_held_against_the_best(open_page):
    page = open_page("view=schedule&run=SGD(lr=1.5)&batch=64&steps=5000&pieces=5")
    page.page.click("#shape-cosine")
    page.settle()
    assert page.page.evaluate("window.nqm.state().schedule").startswith(
        "Schedule([1000, 1000, 1000, 1000, 1000], [0.97"
    )
    best = optimal_schedule(PAPER, SGD(), 64, steps=5000, pieces=5)
    assert page.shown()[3]["loss"] == pytest.approx(best.loss, rel=1e-6)
    said = page.text("#headline")
    assert f"The best in 5 pieces ends at {best.loss:.4g}; this one" in said
    above = page.line("with the schedule")[-1] / best.loss
    assert f"{100 * (above - 1):.0f}% higher" in said if above < 2 else f"at {above:.2g} times that" in said
    box = page.page.locator("#figure .plot").bounding_box()
    assert box["y"] + box["height"] < 860 - 40  # the editor and its loss are on one screen


def test_what_limits_a_best_schedule_is_said(open_page):
    page = open_page("view=schedule&run=SGD(lr=1)&batch=2^18&steps=60&pieces=6")
    assert optimal_schedule(PAPER, SGD(), 2**18, steps=60, pieces=6).cap == "loss"
    assert "the bound on the loss" in page.text("#facts")
    assert not page.page.locator("#facts .warn").count()
    page.set("#max-rate", "inf")
    free = optimal_schedule(PAPER, SGD(), 2**18, steps=60, pieces=6, max_rate=math.inf)
    assert free.warning  # else this tests nothing
    assert free.warning in page.text("#facts .warn >> nth=0")
    page.set("#max-rate", "paper")
    assert "the paper's cap" in page.text("#facts")


def test_the_time_line_marks_its_step_on_the_curve(open_page):
    page = open_page("view=loss&run=SGD(lr=0.5)&batch=256&steps=3000")
    page.page.locator("#timeline-step").fill("120")
    curve = page.shown()[0]
    place = page.page.evaluate(MARKED)
    assert place["step"] == pytest.approx(curve["steps"][120], rel=0.02)
    assert place["loss"] == pytest.approx(curve["loss"][120], rel=0.05)
    page.page.click("#timeline-play")
    page.eventually(lambda: page.page.evaluate(MARKED)["step"] > 1.2 * place["step"], "the marker to move")
    page.eventually(lambda: page.text("#timeline-play") == "Play", "the end")
    assert page.page.evaluate(MARKED)["step"] == pytest.approx(3000, rel=0.02)


def test_the_first_tap_reads_and_the_second_opens(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}", has_touch=True)
    page.page.set_viewport_size({"width": 390, "height": 844})
    page.settle()
    page.page.locator("#figure .plot").scroll_into_view_if_needed()
    place = page.page.evaluate(PLACE)
    page.page.touchscreen.tap(*place)
    page.settle()
    assert page.shown("view") == "steps"
    assert page.text(".readout").startswith("batch size 2⁶ · SGD ")
    assert page.text(".readout").endswith("tap the point again to open it")
    page.page.touchscreen.tap(*place)
    page.settle()
    assert page.shown("view") == "loss"


def test_a_click_opens_a_point(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    page.page.mouse.click(*page.page.evaluate(PLACE))
    page.settle()
    assert page.shown("view") == "loss"


def test_the_figure_stays_in_sight_of_the_sliders_on_a_phone(open_page):
    page = open_page("view=loss&run=SGD(lr=0.5)&batch=64&steps=5000")
    page.page.set_viewport_size({"width": 390, "height": 844})
    page.page.evaluate("document.getElementById('drawer').open = true")
    page.page.evaluate("document.getElementById('headline').scrollIntoView()")
    sheet = page.page.locator("#drawer").bounding_box()
    plot = page.page.locator("#figure .plot").first.bounding_box()
    assert sheet["y"] + sheet["height"] <= 845
    assert plot["y"] + 0.6 * plot["height"] < sheet["y"]


def test_a_time_line_empties_and_fills(open_page):
    page = open_page("view=loss&run=SGD(lr=0.5)&batch=64&steps=5000")
    heights = "(nodes) => nodes.map((node) => parseFloat(node.style.height))"
    signal, noise = (page.page.eval_on_selector_all(f".fill.{kind}", heights) for kind in ("signal", "noise"))
    page.page.click("#timeline-play")
    page.eventually(lambda: page.page.input_value("#timeline-step") != "0", "the first frames")
    page.page.click("#timeline-play")
    page.page.evaluate(
        "const range = document.getElementById('timeline-step'); range.value = range.max; range.dispatchEvent(new Event('input'))"
    )
    curve = page.shown()[0]
    assert f"Step {curve['steps'][-1]:,}: loss {curve['loss'][-1]:.4g}" in page.text("#timeline .readout")
    later = [page.page.eval_on_selector_all(f".fill.{kind}", heights) for kind in ("signal", "noise")]
    assert all(b <= a for a, b in zip(signal, later[0], strict=True))
    assert all(b >= a for a, b in zip(noise, later[1], strict=True))
    assert later[0][0] == 0 < later[1][0]  # the steepest directions have lost their signal and hold noise


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_has_a_name_and_a_role(open_page, view):
    page = open_page(f"view={view}&{SIZES}&cells=12&run=HeavyBall(lr=0.05,momentum=0.9)&steps=1000")
    session = page.page.context.new_cdp_session(page.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "combobox", "slider", "checkbox", "tab", "link", "menuitem", "spinbutton"}
    controls = [node for node in nodes if not node.get("ignored") and node.get("role", {}).get("value") in roles]
    assert len(controls) > 15
    assert [node["role"]["value"] for node in controls if not node.get("name", {}).get("value", "").strip()] == []
    ids = page.page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
