"""Faults that were found by trying the page, in a real browser: each stays mended."""

from __future__ import annotations

import json

import pytest
from pages import DIGITS, PAPER, SETTING, SIZES

from nqm import SGD, HeavyBall, Quadratic, Spectrum, sweep, tune
from nqm.nets import Fit

pytestmark = pytest.mark.slow


def test_the_text_of_an_optimizer_is_explained(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    page.page.hover("#family-0-text")
    assert page.text("#hint").startswith("The optimizer as you would write it")


def test_the_crosshair_snaps_and_its_marks_do_not_hide_curves(open_page):
    page = open_page(f"view=steps&o=SGD()&o=HeavyBall()&{SIZES}")
    box = page.page.locator(".u-over").bounding_box()
    places = []
    for part in (0.30, 0.32):  # both nearest to 64
        page.page.mouse.move(box["x"] + part * box["width"], box["y"] + 0.5 * box["height"])
        assert page.text(".readout").startswith("batch size 2⁶ · SGD ")
        places.append(page.page.eval_on_selector(".u-cursor-x", "(node) => node.style.transform"))
    assert places[0] == places[1]
    dots = page.page.eval_on_selector_all(
        ".u-cursor-pt", "(nodes) => nodes.map((node) => getComputedStyle(node).backgroundColor)"
    )
    assert [*dict.fromkeys(dots)] == [
        "rgb(0, 114, 178)",
        "rgb(213, 94, 0)",
    ]  # of their curves, and of the points that were added
    page.page.mouse.move(0, 0)
    assert page.text(".readout").startswith("Choose a point")


def test_back_and_forward(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}&{SETTING}")
    page.view("loss").view("network")
    for move, view in [("back", "loss"), ("back", "steps"), ("forward", "loss"), ("forward", "network")]:
        getattr(page.page, f"go_{move}")()
        page.settle()
        assert page.shown("view") == view


def test_a_damaged_link_is_said_to_be_one(open_page):
    page = open_page("view=network&data=LcoxCs&name=spectrum.json")
    assert page.text("#error").startswith("The link is damaged: the file in it cannot be read.")


def test_bounds_of_less_than_a_step_are_not_drawn(open_page):
    page = open_page(f"view=steps&limits=shown&o=SGD()&{SIZES}&target=2&spectrum=power_law(10000, noise=0.01)")
    lines = page.shown("figure")["panels"][0]["lines"]
    bounds = [value for line in lines if "bound" in line["label"] for value in line["y"] if value is not None]
    assert all(value >= 1 for value in bounds)
    answer = page.shown()[0]["sweeps"][0]["bounds"]
    assert any(value is not None and value < 1 for value in answer["paper"] + answer["bayes"])


def test_nodes_of_rounding_errors_are_left_out(open_page):
    page = open_page(f"view=loss&{SETTING}")
    kept = page.page.evaluate(
        "async () => (await import('/js/views/network.js')).sorted({h: [1, 1e-17, 0.1], weight: [1, 1, 1e-20]})"
    )
    assert kept == {"h": [1], "weight": [1]}


def test_a_schedule_is_stretched_when_another_view_changes_the_steps(open_page):
    page = open_page("view=loss&run=SGD(lr=0.5)&batch=64&steps=3000&schedule=Schedule([2000,1000],[1,0.5])")
    page.set("#steps-text", "6000")
    page.view("schedule")
    assert page.page.evaluate("window.nqm.state().schedule") == "Schedule([4000, 2000], [1, 0.5])"
    assert page.shown("figure")["panels"][1]["lines"][1]["x"][-1] == 6000


def test_another_view_begins_at_its_top(open_page):
    page = open_page(f"view=loss&{SETTING}")
    page.page.evaluate("scrollTo(0, 500)")
    page.view("network")
    assert page.page.evaluate("scrollY") == 0


def test_an_error_stands_at_its_field(open_page):
    page = open_page(f"view=steps&o=SGD()&o=HeavyBall()&{SIZES}")
    page.set("#target-text", "-1")
    assert page.page.locator(".slider:has(#target-text) + .problem-text").inner_text().startswith("Target must be")
    page.set("#target-text", "0.01")
    assert page.page.locator(".problem-text").count() == 0
    page.set("#family-1-text", "HevyBall()")
    assert "did you mean HeavyBall?" in page.page.locator(".family-head + .problem-text").inner_text()
    assert page.text("#status") == "Not everything was answered."


def test_no_file_is_said_to_be_missing_beside_its_name(open_page):
    page = open_page("view=network")
    page.page.select_option("#spectrum-kind", "file")
    page.page.set_input_files("#file", str(DIGITS))
    page.eventually(lambda: page.page.evaluate("window.nqm.state().name") == "digits.json", "the file")
    page.settle()
    assert page.page.is_visible("text=Choose another file")
    box = page.page.locator("#file").bounding_box()
    assert box["x"] + box["width"] < 0  # the browser's own words are out of sight


def test_what_guided_texts_say_is_so(open_page):
    momenta = [optimizer.momentum for optimizer in sweep(PAPER, HeavyBall(), [64, 4096, 2**18], target=0.01).optimizers]
    assert momenta == sorted(momenta, reverse=True)
    page = open_page(f"view=loss&{SETTING}")
    tour = page.page.evaluate("async () => (await fetch('/js/tour.js')).text()")
    assert "Its best value falls as the batch grows" in tour
    quarter = float(tour.split('QUARTER = "')[1].split('"')[0])
    assert quarter / Fit.load(DIGITS).problem.initial_loss == pytest.approx(0.25, abs=0.005)


def test_undo_and_redo_take_back_anything(open_page):
    page = open_page(f"view=loss&{SETTING}")
    now = "JSON.stringify(window.nqm.state())"
    seen = [page.page.evaluate(now)]
    page.set("#batch-text", "512")
    seen.append(page.page.evaluate(now))
    page.page.click("#tune")
    page.eventually(lambda: "lr=0.05" not in page.page.evaluate("window.nqm.state().run"), "the tuned setting")
    page.settle()
    seen.append(page.page.evaluate(now))
    page.page.click("#reset")
    page.settle()
    seen.append(page.page.evaluate(now))
    assert len(set(seen)) == 4
    for link in seen[2::-1]:
        page.page.click("#undo")
        page.settle()
        assert page.page.evaluate(now) == link
    assert page.page.is_disabled("#undo")
    page.page.focus("#tab-loss")
    page.page.keyboard.press("Control+Shift+Z")
    page.settle()
    assert page.page.evaluate(now) == seen[1]
    assert json.loads(page.page.evaluate("JSON.stringify(window.nqm.shown.answers[0].batch_size)")) == 512


def test_best_does_not_move_what_it_is_compared_with(open_page):
    page = open_page("view=schedule&spectrum=power_law(300)&run=SGD(lr=0.01)&batch=64&steps=500&pieces=5")
    before = page.shown()[4]
    assert before["loss"] == pytest.approx(
        tune(Quadratic(Spectrum.power_law(300)), SGD(), 64, steps=500).loss, rel=1e-9
    )
    page.page.click("#best-loss")
    page.eventually(lambda: page.page.evaluate("window.nqm.state().run") != "SGD(lr=0.01)", "the best schedule")
    page.settle()
    scheduled, after = page.shown()[0], page.shown()[4]
    assert after == before
    lower = f"{100 * (1 - scheduled['loss'][-1] / before['loss']):.0f}% lower than at the best constant rate"
    assert lower in page.text("#headline")
