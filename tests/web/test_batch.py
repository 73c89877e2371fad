"""Which batch size to use: the endpoint answers what the library answers, and the page shows it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from asking import post, strict

from nqm.nets import BatchChoice
from nqm.web.api import respond

TRAINING = {"noise_scale": 700, "devices": 8, "per_device": 32, "seconds": 0.2, "training_steps": 10_000}


def test_the_answer_is_that_of_a_plain_loop() -> None:
    answer = post("batch", **TRAINING, low=400, high=1200)
    best = (np.inf, 0)
    for devices in (1, 2, 4, 8, 16, 32, 64, 128):
        steps = 10_000 * (1 + 700 / (32 * devices)) / (1 + 700 / 256)
        hours = steps * 0.2 / 3600
        best = min(best, (hours * devices * hours, 32 * devices))
    assert answer["batch_size"] == best[1] == 512
    assert answer["chosen"]["hours"] * answer["chosen"]["device_hours"] == pytest.approx(best[0], rel=1e-12)
    assert answer["speed"] == pytest.approx((1 + 700 / 256) / (1 + 700 / 512), rel=1e-12)
    assert answer["cost"] == pytest.approx(2 / answer["speed"], rel=1e-12)
    assert (answer["low"], answer["high"], answer["by_batch"]) == (512, 1024, None)
    curve = answer["by_devices"]
    np.testing.assert_allclose(curve["device_hours"], np.multiply(curve["devices"], curve["hours"]))


@pytest.mark.parametrize("more", [{}, {"low": "2^8", "high": "2^10"}, {"other_per_device": 64, "other_seconds": 0.25}])
def test_the_lines_of_python_give_the_same_answer(more: dict[str, Any]) -> None:
    answer = post("batch", **TRAINING, **more)
    scope: dict[str, Any] = {}
    exec(answer["python"], scope)
    assert isinstance(scope["answer"], BatchChoice)
    found = scope["answer"].to_dict()
    assert {name: answer[name] for name in found} == found
    assert answer["command"] == ""


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [({"devices": 0}, "devices", "from 1 to 1e+06"), ({"other_seconds": 1}, "other_per_device", "both or neither"),
     ({"low": 900}, "noise_scale", "not between"), ({"seconds": None}, "seconds", "missing"),
     ({"other_per_device": 64, "other_seconds": 0.1}, "other_seconds", "further apart")],
)  # fmt: skip
def test_what_is_wrong_is_named(change: dict[str, Any], field: str, words: str) -> None:
    status, content = respond("batch", json.dumps({**TRAINING, **change}).encode())
    told = strict(content)
    assert (status, told["field"]) == (422, field)
    assert words in told["error"]


@pytest.mark.slow
def test_the_page_recommends_a_batch_size(open_page) -> None:
    page = open_page("view=batch&noise=700&noise_low=400&noise_high=1200&training_steps=10000")
    known = BatchChoice(**TRAINING, low=400, high=1200)
    assert page.text("#headline") == known.sentence()
    np.testing.assert_allclose(page.line("more devices"), [one.hours for one in known.by_devices()], rtol=1e-6)
    assert page.line("now") + page.line("use") == pytest.approx([known.present.hours, known.chosen.hours])
    assert page.page.locator("#code h3").all_inner_texts() == ["Python"]
    assert min(page.colours()) > 10
    page.set("#other-per-device", "64")
    assert "both or neither" in page.text("#error")
    page.set("#other-seconds", "0.25")
    timed = BatchChoice(**TRAINING, low=400, high=1200, other=(64, 0.25))
    assert page.text("#headline") == timed.sentence()
    np.testing.assert_allclose(page.line("hours"), [one.hours for one in timed.by_batch()], rtol=1e-6)
    assert open_page(page.link()).text("#headline") == timed.sentence()
    page.set("#noise-text", "3000")
    assert page.page.input_value("#noise-low") == ""  # the interval was that of another number
