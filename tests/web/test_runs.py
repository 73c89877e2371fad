"""Logs of training on the page: a dropped file becomes a forecast, beside what was logged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from asking import post, upload
from live import ROOT

from nqm.engine.schedule import cosine
from nqm.logs import Forecast, forecast, read_logs
from nqm.text.objects import parse_schedule
from nqm.web import files
from nqm.web.api import respond

COSINE = ROOT / "tests" / "data" / "curves" / "multipowerlaw" / "25M" / "cosine_24000.csv"


@pytest.fixture(scope="module")
def opened() -> dict:
    status, answer = upload(COSINE.read_bytes(), COSINE.name)
    assert status == 200
    return answer


def test_a_csv_is_fitted_as_by_the_library(opened: dict) -> None:
    assert opened["kind"] == "forecast"
    exact = forecast(read_logs(COSINE))
    problem = {"spectrum": {"file": opened["file"], "name": opened["name"]}}
    found = post("outlook", problem=problem, schedule="cosine(30000)", peak=2e-4)
    assert found["error"] == pytest.approx(exact.error, rel=1e-9)
    (run,) = found["runs"]
    np.testing.assert_allclose(run["loss"][-1], exact.logs[0].loss[-1])
    np.testing.assert_allclose(run["fitted"][-1], exact.predict(exact.logs[0]).loss[-1], rtol=1e-9)
    np.testing.assert_allclose(run["residual"], np.divide(run["loss"], run["fitted"]) - 1, atol=1e-12)
    expected = exact.predict(cosine(30_000), peak=2e-4)
    for name in ("loss", "low", "high"):
        np.testing.assert_allclose(found["planned"][name][-1], getattr(expected, name)[-1], rtol=1e-9)
    assert found["planned"]["rates"][0] == pytest.approx(2e-4, rel=1e-3)
    assert found["planned"]["rates"][-1] < 1e-7
    assert "nqm forecast predict forecast.json --schedule 'cosine(30000)' --peak 0.0002" in found["command"]


def test_the_best_schedule_is_that_of_the_library(opened: dict) -> None:
    problem = {"spectrum": {"upload": opened["id"]}}
    found = post("outlook", problem=problem, best=24_000)
    assert found["planned"] is None
    assert found["best"]["loss"][-1] == pytest.approx(
        forecast(read_logs(COSINE)).optimal_schedule(24_000).loss, rel=1e-6
    )


def test_trainer_state_is_read() -> None:
    history = [
        {"step": int(t), "loss": 2 + 6 / np.sqrt(1 + 0.01 * t), "learning_rate": 3e-4} for t in range(50, 3001, 50)
    ]
    status, answer = upload(json.dumps({"log_history": history}).encode(), "trainer_state.json")
    assert (status, answer["kind"], answer["steps"]) == (200, "forecast", 3000)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"a,b\n1,2\n", "column"), (b"", ""), (b"step,loss,lr\n1,1,1\n2,x,1\n", ""), (b"\xff\xfe\x00", "")],
    ids=["other columns", "nothing", "few rows", "bytes"],
)
def test_what_is_no_log_is_refused(content: bytes, said: str) -> None:
    status, answer = upload(content, "runs.csv")
    assert status == 422
    assert said in answer["error"]


def test_a_log_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{t},{2 + 1 / t},0.1\n" for t in range(10, 500, 10)]
    _, answer = upload(f"step,loss,lr\n{''.join(rows)}{10**8},1,0.1\n".encode(), "runs.csv")
    assert answer["error"].startswith("runs.csv, line 51: a step lies between 0 and 10,000,000")
    monkeypatch.setattr(files, "LOG_POINTS", 40)
    status, answer = upload(f"step,loss,lr\n{''.join(rows)}".encode(), "runs.csv")
    assert status == 422
    assert answer["error"].endswith("at most 32 runs and 40 points; this has 1 runs and 49 points")


def test_a_brief_answer_omits_the_logs_and_a_file_can_be_asked_for(opened: dict) -> None:
    problem = {"spectrum": {"upload": opened["id"]}}
    whole = post("outlook", problem=problem, schedule="cosine(30000)")
    brief = post("outlook", problem=problem, schedule="cosine(30000)", brief=True, file=True)
    assert (brief["runs"], whole["file"]) == ([], None)
    assert brief["planned"] == whole["planned"]
    assert brief["file"] == opened["file"]


def test_without_a_log_it_is_said_what_to_open() -> None:
    status, content = respond("outlook", b"{}")
    assert status == 422
    assert b"open a log of training first" in content


@pytest.mark.slow
def test_a_log_is_opened_and_its_next_run_chosen(open_page, tmp_path: Path) -> None:
    page = open_page("view=loss&run=SGD(lr=0.5)&steps=1000")
    page.page.select_option("#spectrum-kind", "file")
    page.page.set_input_files("#file", str(COSINE))
    page.eventually(lambda: page.page.evaluate("window.nqm.state().view") == "runs", "the log")
    page.settle()
    assert page.text("#headline").startswith("The law fits these logs to 0.028%.")
    page.page.click("#shape-wsd")
    page.settle()
    planned = page.shown()[0]["planned"]
    drawn = page.line("next run")
    assert drawn == planned["loss"][-len(drawn) :]  # from the first logged step on
    assert planned["steps"][-len(drawn)] >= page.shown()[0]["runs"][0]["step"][0] > planned["steps"][-len(drawn) - 1]
    assert f"{planned['loss'][-1]:.4g}" in page.text("#headline")
    again = open_page(page.link())
    assert again.shown()[0]["planned"] == planned


@pytest.mark.slow
def test_the_next_schedule_is_dragged_and_the_forecast_follows(open_page, tmp_path: Path) -> None:
    page = open_page("view=runs", wait=False)
    page.eventually(lambda: "Drop a log of a training run" in page.text("#error"), "what to open")
    page.page.click("#runs-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.settle()
    exact = forecast(read_logs("example"))
    assert page.shown()[0]["error"] == pytest.approx(exact.error, rel=1e-9)
    page.page.click("#shape-wsd")
    page.settle()
    page.page.focus(".piece >> nth=19")
    for _ in range(4):
        page.page.keyboard.press("ArrowUp")
    page.settle()
    state = page.page.evaluate("window.nqm.state()")
    assert state["shape"] == "own"
    plan = parse_schedule(state["schedule"])
    assert plan.lr[-1] == pytest.approx(0.125 * 2, rel=1e-3)
    planned = exact.predict(plan, peak=exact.peaks[1])
    assert page.shown()[0]["planned"]["loss"][-1] == pytest.approx(planned.loss[-1], rel=1e-9)
    assert page.shown("figure")["panels"][0]["lines"][0]["y"][-1] == pytest.approx(
        exact.predict(exact.logs[0]).loss[-1]
    )
    with page.page.expect_download() as waiting:
        page.page.click("#save-forecast")
    waiting.value.save_as(tmp_path / "forecast.json")
    kept = Forecast.load(tmp_path / "forecast.json")
    assert kept.predict(plan, peak=exact.peaks[1]).loss[-1] == pytest.approx(planned.loss[-1], rel=1e-9)
    assert open_page(page.link()).text("#headline") == page.text("#headline")
