"""Every view in a real browser: what it draws is what the library computes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pages import DIGITS, PAPER, SETTING, SIZES, close

from nqm import SGD, HeavyBall, LeastSquares, Quadratic, Spectrum, steps_to_target, sweep
from nqm.nets import Fit

pytestmark = pytest.mark.slow


def test_steps_against_batch_size(open_page):
    page = open_page(f"view=steps&limits=shown&o=SGD()&o=HeavyBall()&{SIZES}")
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


def test_a_critical_batch_size_that_is_missing_is_a_dash_with_its_reason(open_page):
    page = open_page(f"view=steps&o=SGD()&o=HeavyBall()&{SIZES}")
    why = "there is no closed form with <momentum>"

    def without_knee(route: Any) -> None:
        headers = {**route.request.headers, "accept": "application/json"}  # the whole answer at once
        answer = route.fetch(headers=headers)
        told = answer.json()
        for one in told["sweeps"]:
            if one["label"] == "HeavyBall()":
                one["critical_batch_size"]["knee"], one["remarks"] = None, {"knee": why}
        route.fulfill(response=answer, json=told)

    page.page.route("**/api/sweep", without_knee)
    page.page.route("**/api/preview", lambda route: route.fulfill(status=422, json={"error": "no preview"}))
    page.set("#target-text", "0.02")
    sgd, heavy_ball = (page.page.locator("#facts tbody tr").nth(row) for row in (0, 1))
    at = page.page.locator("#facts th").all_inner_texts().index("knee")
    assert heavy_ball.locator("td").nth(at).inner_text() == "-"
    assert heavy_ball.locator("abbr").get_attribute("title") == why
    assert sgd.locator("td").nth(at).inner_text() != "-"
    assert sgd.locator("abbr").count() == 0
    page.page.select_option("#critical", "knee")
    page.settle()
    marks = page.shown("figure")["panels"][0]["marks"]
    assert len([mark for mark in marks if mark["kind"] == "v"]) == 1
    assert f"critical batch size of HeavyBall(): {why}" in [mark.get("listed") for mark in marks]
    assert why in page.text("#figure")


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
    again = open_page(page.link())
    assert again.shown("figure") == page.shown("figure")
    page.view("schedule")
    close(page.line("constant rate"), problem.run(SGD(0.3), 4, 2000, grid="linear").loss)
    assert page.page.is_disabled("#best-loss")
    assert "only for gradient noise of fixed variance" in page.text("#view-controls")
    page.view("map")
    assert "Maps need noise of fixed variance" in page.text("#error")
    assert page.page.locator(".plot").count() == 0  # the loss of the view before does not pass for a map
    assert page.page.is_hidden("#code")
    page.view("network")
    assert "This view shows the noise of the spectrum itself" in page.text("#facts")
    assert page.page.locator("#noise-kind").count() == 0  # it would change nothing here
    page.view("loss")
    page.page.select_option("#noise-kind", "quadratic")
    page.settle()
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
    close(page.line("predicted", panel=2), exact.loss)
    page.view("loss")
    close(page.line("loss"), fit.problem.run(HeavyBall(0.05, 0.9), float(state["batch"]), int(state["steps"])).loss)
    again = open_page(page.link())  # the link carries the measurement
    close(again.line("loss"), page.line("loss"))
