"""The explorer in a real browser: what it draws is what the library computes, and everything can be reached and kept."""

from __future__ import annotations

import csv
import io
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live import ROOT

from nqm import SGD, HeavyBall, LeastSquares, Quadratic, Schedule, Spectrum, optimal_schedule, steps_to_target, sweep
from nqm.nets import Fit

pytestmark = pytest.mark.slow

DIGITS = ROOT / "nqm" / "web" / "static" / "examples" / "digits.json"
SIZES = "sizes=4,64,1024,16384"
PAPER = Quadratic(Spectrum.power_law(10_000))
SETTING = "run=HeavyBall(lr=0.05,momentum=0.9)&batch=256&steps=3000"
VIEWS = ("steps", "loss", "settings", "schedule", "map", "network")


def close(shown: Any, exact: Any) -> None:
    """Equal to 1e-6, with nothing shown where there is no number."""
    expected = np.asarray(exact, dtype=float)
    np.testing.assert_allclose(
        np.array(shown, dtype=float), np.where(np.isfinite(expected), expected, np.nan), rtol=1e-6
    )


# Every view.


def test_steps_against_batch_size(open_page):
    page = open_page(f"view=steps&o=SGD()&o=HeavyBall()&{SIZES}")
    for optimizer in (SGD(), HeavyBall()):
        exact = sweep(PAPER, optimizer, [4, 64, 1024, 16384], target=0.01)
        close(page.line(str(optimizer)), exact.steps)
        marks = page.shown("figure")["panels"][0]["marks"]
        role = next(
            line["role"] for line in page.shown("figure")["panels"][0]["lines"] if line["label"] == str(optimizer)
        )
        critical = [mark["at"] for mark in marks if mark["kind"] == "v" and mark["role"] == role]
        expected = exact.critical_batch_size()
        close(critical, [expected] if np.isfinite(expected) else [])
    close(page.line("Bayes bound"), exact.bounds()["bayes"])
    assert min(page.colours()) > 20
    regimes = page.shown("figure")["panels"][0]["strips"]
    close([regimes[1]["parts"][0]["to"]], [exact.regimes()["perfect"][1]])


def test_loss_over_steps(open_page):
    page = open_page(f"view=loss&{SETTING}")
    exact = PAPER.run(HeavyBall(0.05, 0.9), 256, 3000)
    close(page.line("loss"), exact.loss)
    close(page.line("signal"), exact.signal)
    close(page.line("noise / batch size"), exact.noise / 256)
    close(page.line("h 0.01 to 0.1", panel=1), exact.band_signal[2])
    floor = next(m for m in page.shown("figure")["panels"][0]["marks"] if m["label"].startswith("floor"))
    close([floor["at"]], [exact.floor])
    hit = steps_to_target(PAPER, HeavyBall(0.05, 0.9), 256, 0.01)
    assert f"{hit.steps:,}" in page.text("#facts")
    assert min(page.colours()) > 20


def test_best_settings(open_page):
    page = open_page(f"view=settings&o=SGD()&o=HeavyBall()&{SIZES}")
    exact = sweep(PAPER, HeavyBall(), [4, 64, 1024, 16384], target=0.01)
    close(page.line("HeavyBall()"), exact.effective_lr)
    titles = [panel["title"] for panel in page.shown("figure")["panels"]]
    assert titles == ["Best effective learning rate", "Best momentum"]
    close(page.line("HeavyBall()", panel=1), [optimizer.momentum for optimizer in exact.optimizers])
    page.page.select_option("#rate", "lr")
    page.settle()
    close(page.line("HeavyBall()"), exact.lr)
    assert min(page.colours()) > 10


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
    page.page.locator(".edge .grip").nth(4).scroll_into_view_if_needed()
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


def test_noise_of_minibatches(open_page):
    page = open_page("view=loss&spectrum=power_law(300,noise=2)&run=SGD(lr=0.3)&batch=4&steps=2000&target=1")
    page.page.select_option("#noise-kind", "least_squares")
    page.page.locator("#label-noise").wait_for()
    page.settle()
    assert page.page.input_value("#label-noise-text") == "2"  # as noisy as the spectrum was
    assert page.page.locator("#law-noise").count() == 0
    page.set("#label-noise-text", "0.5")
    problem = LeastSquares(Spectrum.power_law(300), label_noise=0.5)
    close(page.line("loss"), problem.run(SGD(0.3), 4, 2000).loss)
    assert f"{problem.stability_limit(SGD(), 4):.4g}" in page.text("#facts")
    curve, hit = page.shown("commands")
    assert curve["command"].endswith("--problem least_squares --label-noise 0.5")
    scope: dict[str, Any] = {}
    exec(hit["python"], scope)
    assert scope["answer"].steps == steps_to_target(problem, SGD(0.3), 4, 1).steps
    again = open_page(page.page.url.partition("#")[2])
    assert again.shown("figure") == page.shown("figure")
    page.view("schedule")
    close(page.line("constant rate"), problem.run(SGD(0.3), 4, 2000, grid="linear").loss)
    assert page.page.is_disabled("#best-loss")
    assert "fixed variance only" in page.text("#view-controls")
    page.view("map")
    assert "Maps need noise of fixed variance" in page.text("#error")
    assert page.page.locator(".plot").count() == 0  # the loss of the view before does not pass for a map
    assert page.page.is_hidden("#code")
    page.view("network")
    assert "The noise here is the spectrum's own" in page.text("#facts")
    page.page.select_option("#noise-kind", "quadratic")
    page.view("loss")
    close(page.line("loss"), Quadratic(Spectrum.power_law(300, noise=2)).run(SGD(0.3), 4, 2000).loss)


def test_a_sweep_of_a_regression(open_page):
    page = open_page("view=steps&o=SGD()&spectrum=power_law(20)&kind=least_squares&label_noise=1&sizes=4,64&target=0.1")
    exact = sweep(LeastSquares(Spectrum.power_law(20), label_noise=1.0), SGD(), [4, 64], target=0.1)
    close(page.line("SGD()"), exact.steps)


def test_phase_map_and_its_points(open_page):
    page = open_page("view=map&run=SGD(lr=0.5)&x=lr&y=batch_size&xrange=0.01..4&yrange=64..4096&cells=6")
    (answer,) = page.shown()
    for i, j in [(0, 0), (1, 5), (3, 4), (5, 5)]:
        hit = steps_to_target(PAPER, SGD(answer["x"]["values"][i]), answer["y"]["values"][j], 0.01)
        assert answer["steps"][j][i] == hit.steps
        assert answer["outcome"][j][i] == hit.outcome.name
    edge = PAPER.stability_limit(SGD())
    assert all(x == pytest.approx(edge, rel=1e-6) for x, _ in answer["boundary"])
    assert min(page.colours()) > 10
    page.page.focus(".plot")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "Enter"):
        page.page.press(".plot", key)
    page.settle()
    opened = page.page.evaluate("window.nqm.state()")
    assert opened["view"] == "loss"
    assert (
        opened["run"] == f"SGD(lr={float(np.format_float_positional(answer['x']['values'][3], 6, fractional=False))})"
    )


def test_a_measured_network(open_page):
    page = open_page("view=network")
    page.page.select_option("#spectrum-kind", "file")
    page.page.set_input_files("#file", DIGITS)
    page.page.locator("text=digits.json").first.wait_for()
    page.settle()
    data = json.loads(DIGITS.read_text())
    order = np.argsort(data["top_h"])
    close(page.line("c along the largest curvatures"), np.array(data["top_c"])[order])
    assert min(page.colours()) > 10
    fit = Fit.load(DIGITS)
    state = page.page.evaluate("window.nqm.state()")
    exact = fit.predict(HeavyBall(0.05, 0.9), float(state["batch"]), int(state["steps"]))
    close(page.line("predicted", panel=3), exact.loss)
    page.view("loss")
    close(page.line("loss"), fit.problem.run(HeavyBall(0.05, 0.9), float(state["batch"]), int(state["steps"])).loss)
    again = open_page(page.page.url.partition("#")[2])  # the link carries the measurement
    close(again.line("loss"), page.line("loss"))


# What is chosen, and how it is said.


def test_menus_text_command_and_python_say_the_same(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}", permissions=["clipboard-read", "clipboard-write"])
    page.page.click("#family-0-menus summary")
    page.page.select_option("#family-0-0", "HeavyBall")
    page.settle()
    page.set("#family-0-0-momentum", "0.9")
    page.page.select_option("#family-0-wrap", "EMA")
    page.settle()
    assert page.page.input_value("#family-0-text") == "EMA(HeavyBall(momentum=0.9))"
    (command,) = page.shown("commands")
    assert "'EMA(HeavyBall(momentum=0.9))'" in command["command"]
    page.page.click("#code .copy >> nth=0")
    assert page.page.evaluate("navigator.clipboard.readText()") == command["command"]
    scope: dict[str, Any] = {}
    exec(command["python"], scope)
    close(page.line("EMA(HeavyBall(momentum=0.9))"), scope["answer"][0].steps)


def test_a_link_is_a_figure(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    page.page.click("#family-add")
    page.settle()
    page.set("#target-text", "0.02")
    page.page.select_option("#critical", "2x")
    page.settle()
    page.page.wait_for_timeout(300)
    again = open_page(page.page.url.partition("#")[2])
    assert again.shown("figure") == page.shown("figure")
    assert again.page.input_value("#target-text") == "0.02"
    assert again.page.input_value("#critical") == "2x"
    page.view("loss")
    page.page.go_back()
    page.settle()
    assert page.shown("view") == "steps"


def test_wrong_input_is_one_sentence_at_its_field(open_page):
    page = open_page(f"view=steps&o=SGD()&o=HevyBall()&{SIZES}")
    assert "did you mean HeavyBall?" in page.text("#error")
    assert page.page.get_attribute("#family-1-text", "aria-invalid") == "true"
    assert page.line("SGD()")  # the others are drawn all the same
    page.set("#family-1-text", "HeavyBall()")
    assert page.page.is_hidden("#error")
    page.set("#target-text", "a lot")
    assert page.page.get_attribute("#target-text", "aria-invalid") == "true"
    page.view("loss")
    page.set("#target-text", "0.01")
    page.set("#setting-text", "HeavyBall(lr=0.1)")
    assert "momentum" in page.text("#error")
    page.set("#setting-text", "HeavyBall(lr=9, momentum=0.9)")
    assert "diverges" in page.text("#facts")
    page.page.select_option("#spectrum-kind", "file")
    page.page.set_input_files("#file", {"name": "x.json", "mimeType": "application/json", "buffer": b'{"h": 1'})
    page.page.locator("#error", has_text=".").wait_for()


def test_a_wrong_number_can_be_mended(open_page):
    page = open_page(f"view=loss&{SETTING}")
    before = page.page.evaluate("window.nqm.state().run")
    page.set("#setting-lr-0-text", "0,1")  # would be two arguments of the optimizer
    assert page.text("#error").startswith("'0,1' is not a number")
    assert page.page.get_attribute("#setting-lr-0-text", "aria-invalid") == "true"
    assert page.page.evaluate("window.nqm.state().run") == before
    page.set("#setting-lr-0-text", "0.05")
    assert page.page.is_hidden("#error")
    page.set("#setting-lr-0-text", "-1")
    assert page.page.get_attribute("#setting-lr-0-text", "aria-invalid") == "true"
    page.set("#setting-lr-0-text", "0.05")
    for field in ("#batch-text", "#setting-text", "#setting-lr-0-text"):
        shown = page.page.input_value(field)
        assert page.set(field, "").page.input_value(field) == shown
    page.set("#batch-text", "0")
    assert page.text("#error").startswith("Batch size must be a number")
    page.set("#batch-text", "256")
    page.set("#law-noise-text", "-1")
    assert page.text("#error").startswith("power_law: noise must be positive")
    assert page.page.get_attribute("#law-noise-text", "aria-invalid") == "true"
    page.set("#law-noise-text", "1")
    page.page.evaluate("window.nqm.update({view: 'schedule', schedule: 'Schedule([2000, 1000], [1, 0.5])'})")
    page.settle()
    page.set("#steps-text", "-1")
    assert page.text("#error").startswith("Steps must be a whole number")
    page.set("#steps-text", "3000")
    page.page.evaluate("window.nqm.update({view: 'map', cells: '4', target: '1'})")
    page.settle()
    page.set("#map-xrange", "2..1")
    assert page.page.get_attribute("#map-xrange", "aria-invalid") == "true"


def test_stale_questions_are_cancelled(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    failed: list[str] = []
    page.page.on("requestfailed", lambda request: failed.append(request.failure))
    page.page.route("**/api/sweep", lambda route: route.continue_() if failed else page.page.wait_for_timeout(1))
    page.page.fill("#target-text", "0.03")
    page.page.press("#target-text", "Enter")
    assert page.page.get_attribute("#figure", "aria-busy") == "true"
    assert "Computing" in page.text("#status")
    page.page.fill("#target-text", "0.05")
    page.page.press("#target-text", "Enter")
    page.page.wait_for_timeout(200)
    assert any("ABORTED" in reason for reason in failed)
    page.page.unroute("**/api/sweep")
    page.set("#target-text", "0.04")
    close(page.line("SGD()"), sweep(PAPER, SGD(), [4, 64, 1024, 16384], target=0.04).steps)


# Keeping what is shown.


def download(page: Any, kind: str, folder: Path) -> Path:
    with page.page.expect_download() as waiting:
        page.page.click(f"#save-{kind}")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


LINES = f"view=steps&o=SGD()&{SIZES}"
MAP = "view=map&run=SGD(lr=0.5)&y=batch_size&cells=8"


def test_downloads(open_page, tmp_path):
    page = open_page(f"view=steps&o=SGD()&o=HeavyBall()&{SIZES}")
    figure = page.shown("figure")
    picture = download(page, "png", tmp_path).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    drawing = ET.fromstring(download(page, "svg", tmp_path).read_text())
    assert sum(1 for node in drawing.iter() if node.tag.endswith("circle")) >= 8  # a dot for each point
    assert "HeavyBall()" in "".join(drawing.itertext())
    table = list(csv.DictReader(io.StringIO(download(page, "csv", tmp_path).read_text())))
    steps = [float(row["y"]) for row in table if row["series"] == "HeavyBall()"]
    close(steps, page.line("HeavyBall()"))
    kept = json.loads(download(page, "json", tmp_path).read_text())
    assert kept["answers"] == page.shown()
    assert len(figure["panels"][0]["lines"]) == 6


@pytest.mark.parametrize("state", [LINES, MAP], ids=["lines", "map"])
def test_one_file_page_needs_no_network(open_page, browser, tmp_path, state):
    page = open_page(state)
    path = download(page, "html", tmp_path)
    context = browser.new_context(offline=True)
    asked, complaints = [], []
    alone = context.new_page()
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("pageerror", lambda error: complaints.append(str(error)))
    alone.goto(path.as_uri())
    alone.wait_for_selector(".plot canvas")
    alone.wait_for_timeout(200)
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert complaints == []
    drawn = type(page)(alone, complaints)
    assert min(drawn.colours()) > 10
    assert page.shown("commands")[0]["command"] in alone.inner_text("body")
    context.close()


# Everybody.


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
