"""Controls in a real browser: what is chosen is said the same everywhere, and what is wrong is said at its field."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pages import PAPER, SETTING, SIZES, close

from nqm import SGD, sweep
from nqm.web.pool import failure

pytestmark = pytest.mark.slow


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
    copied = "navigator.clipboard.readText()"
    page.eventually(lambda: page.page.evaluate(copied) == command["command"], "the copy of the command")
    scope: dict[str, Any] = {}
    exec(command["python"], scope)
    close(page.line("EMA(HeavyBall(momentum=0.9))"), scope["answer"][0].steps)


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
    assert page.text("#error").startswith("power_law: noise must be a number of at least 0")
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
    page.page.wait_for_selector('#figure[aria-busy="true"]')
    page.eventually(lambda: "Computing" in page.text("#status"), "the status to say so")
    page.page.fill("#target-text", "0.05")
    page.page.press("#target-text", "Enter")
    page.eventually(lambda: any("ABORTED" in reason for reason in failed), "the first question to be cancelled")
    page.page.unroute("**/api/sweep")
    page.set("#target-text", "0.04")
    close(page.line("SGD()"), sweep(PAPER, SGD(), [4, 64, 1024, 16384], target=0.04).steps)


def test_a_bug_is_shown_with_its_id_and_where_it_is_told(open_page):
    page = open_page(f"view=loss&{SETTING}")
    reply = failure(ValueError("operands could not be broadcast"), "/api/curve")
    page.page.route(
        "**/api/curve",
        lambda route: route.fulfill(status=reply.status, content_type="application/json", body=reply.content),
    )
    page.set("#batch-text", "128")
    assert f"bug in nqm, id {json.loads(reply.content)['id']}; nqm serve printed where" in page.text("#error")
    assert page.page.locator('[aria-invalid="true"]').count() == 0  # no field is wrong
    page.complaints.clear()  # the browser tells of the status, too


def test_a_slow_preview_is_shown_before_the_exact_answer(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")

    def late(route: Any) -> None:
        time.sleep(0.8)  # longer than a slider may rest before the exact sweep is asked for
        route.continue_()

    page.page.route("**/api/preview", late)
    page.page.evaluate("window.nqm.timings.length = 0")
    page.page.focus("#target")
    page.page.keyboard.press("ArrowRight")
    page.eventually(lambda: len(page.page.evaluate("window.nqm.timings")) == 2, "the preview and the exact sweep")
    page.settle()
    assert [one["moving"] for one in page.page.evaluate("window.nqm.timings")] == [True, False]
