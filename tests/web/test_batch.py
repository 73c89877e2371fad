"""Which batch size to use: the endpoint answers what the library answers, and the page shows it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import post, strict
from click.testing import CliRunner
from pages import DIGITS

from nqm.cli import main
from nqm.nets import BatchChoice, Fit
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
def test_the_command_and_the_lines_of_python_give_the_same_answer(more: dict[str, Any]) -> None:
    answer = post("batch", **TRAINING, **more)
    scope: dict[str, Any] = {}
    exec(answer["python"], scope)
    assert isinstance(scope["answer"], BatchChoice)
    found = scope["answer"].to_dict()
    assert {name: answer[name] for name in found} == found
    words = shlex.split(answer["command"])[1:]
    assert json.loads(CliRunner().invoke(main, words, catch_exceptions=False).stdout) == found


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
    assert page.page.locator("#code h3").all_inner_texts() == ["Command line", "Python"]
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


def monitored(*scales: float | None, batch_size: int = 64) -> str:
    """The file of a monitor with these noise scales, one for each step."""
    rows = [
        {"step": t, "loss": 1.0, "batch_size": batch_size, "noise_scale": b, "noise_scale_low": b and 0.8 * b,
         "noise_scale_high": b and 1.3 * b}
        for t, b in enumerate(scales, 1)
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("scales", [(500.0,), (30.0, 500.0)], ids=["one line", "two lines"])
def test_the_noise_scale_of_a_monitor_is_the_last(scales: tuple[float, ...]) -> None:
    answer = post("noise", text=monitored(*scales), name="my run.jsonl")
    assert [answer[name] for name in ("noise_scale", "low", "high", "batch_size")] == pytest.approx([500, 400, 650, 64])
    assert answer["command"] == "nqm watch my_run.jsonl --once"
    assert answer["python"].endswith("answer = watch('my_run.jsonl').critical_batch_size")
    assert post("batch", **{**TRAINING, "noise_scale": 500, "low": answer["low"], "high": answer["high"]})["low"] == 512


def test_a_file_without_an_interval_has_none() -> None:
    rows = [{"step": t, "batch_size": 64, "noise_scale": 500.0, "noise_scale_low": 400.0} for t in (1, 2)]
    answer = post(
        "noise",
        text="".join(json.dumps({k: v for k, v in row.items() if k != "noise_scale_low"}) + "\n" for row in rows),
    )
    assert [answer[name] for name in ("noise_scale", "low", "high")] == [500, None, None]
    half = post("noise", text="".join(json.dumps(row) + "\n" for row in rows))
    assert [half[name] for name in ("low", "high")] == [400, None]


def test_the_noise_scale_of_a_fit_is_that_of_the_library() -> None:
    answer, found = post("noise", text=DIGITS.read_text(), name="digits.json"), Fit.load(DIGITS).noise_scale
    assert [answer[name] for name in ("noise_scale", "low", "high")] == pytest.approx(
        [found.value, found.low, found.high]
    )
    assert answer["batch_size"] is None


@pytest.mark.parametrize(
    ("text", "words"),
    [(monitored(None), "cannot be told from infinity"), ("a,b\n1,2\n", "run.jsonl has no column 'step'"),
     ('{"h": [1], "c": [1], "s": [1], "count": [1]}', "no noise scale"), ("[1", ""), ("\ud800", ""), ("{}", "")],
    ids=["no signal", "other columns", "spectrum", "no JSON", "half a character", "nothing"],
)  # fmt: skip
def test_a_file_without_a_noise_scale_is_refused(text: str, words: str) -> None:
    status, content = respond("noise", json.dumps({"text": text}).encode())
    assert status == 422
    assert words in strict(content)["error"]
    assert "/tmp" not in strict(content)["error"]


def test_the_verb_reads_the_noise_scale_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(monitored(30.0, 500.0))
    known = ["--devices", "8", "--per-device", "32", "--seconds", "0.2", "--training-steps", "1e4", "--json"]
    told = CliRunner().invoke(main, ["batch", str(file), *known], catch_exceptions=False)
    exact = BatchChoice(500, 8, 32, 0.2, 10_000, 400, 650)
    assert json.loads(told.stdout) == json.loads(json.dumps(exact.to_dict()))
    fit = CliRunner().invoke(main, ["batch", str(DIGITS), *known], catch_exceptions=False)
    scale = Fit.load(DIGITS).noise_scale
    assert json.loads(fit.stdout) == BatchChoice(scale.value, 8, 32, 0.2, 10_000, scale.low, scale.high).to_dict()
    both = CliRunner().invoke(main, ["batch", str(file), "--noise-scale", "3", *known])
    assert both.exit_code == 2
    assert "give a file or --noise-scale, and not both" in both.stderr


@pytest.mark.slow
def test_the_file_of_a_monitor_opens_its_view(open_page, tmp_path: Path) -> None:
    page = open_page("view=loss&run=SGD(lr=0.5)&steps=100")
    file = tmp_path / "run.jsonl"
    file.write_text(monitored(30.0, 500.0))
    page.page.select_option("#spectrum-kind", "file")
    page.page.set_input_files("#file", str(file))
    page.eventually(lambda: page.page.evaluate("window.nqm.state().view") == "batch", "the view of the batch size")
    page.settle()
    assert page.page.input_value("#noise-text") == "500"
    assert "run.jsonl: The critical batch size is about 500" in page.text("#noise-said")


@pytest.mark.slow
def test_a_file_fills_in_the_noise_scale(open_page, tmp_path: Path) -> None:
    page = open_page("view=batch&devices=2&training_steps=10000")
    file = tmp_path / "run.jsonl"
    file.write_text(monitored(30.0, 500.0))
    page.page.set_input_files("#noise-file", str(file))
    page.eventually(lambda: page.page.input_value("#noise-text") == "500", "the noise scale")
    page.settle()
    known = BatchChoice(
        noise_scale=500, devices=2, per_device=32, seconds=0.2, training_steps=10_000, low=400, high=650
    )
    assert page.text("#headline") == known.sentence()
    assert "run.jsonl: The critical batch size is about 500 (90% interval 400 to 650)" in page.text("#noise-said")
    assert open_page(page.link()).text("#headline") == known.sentence()
    file.write_text("a,b\n1,2\n")
    page.page.set_input_files("#noise-file", str(file))
    page.eventually(lambda: "has no column" in page.text("#error"), "the error")
