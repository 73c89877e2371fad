"""Logs of training on the page: a dropped file becomes a forecast, beside what was logged."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from asking import post, upload
from click.testing import CliRunner
from live import ROOT

from nqm.cli import main
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


@pytest.mark.parametrize(
    ("body", "verb"),
    [
        ({"best": 20_000, "peak": 2e-4}, "forecast best"),
        ({"schedule": "warmup(500) + cosine(9500)", "peak": 1 / 7000}, "forecast predict"),
        ({"schedule": {"lengths": [4000, 2000], "lr": [1, 0.1]}}, "forecast predict"),
    ],
    ids=["best", "schedule", "pieces"],
)
def test_the_command_and_the_python_end_at_the_same_loss(
    opened: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: dict, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("forecast.json").write_text(json.dumps(opened["file"]))
    found = post("outlook", problem={"spectrum": {"upload": opened["id"]}}, brief=True, **body)
    shown = found["best"] or found["planned"]
    assert found["command"].startswith(f"nqm {verb} forecast.json ")
    done = CliRunner().invoke(main, shlex.split(found["command"])[1:], catch_exceptions=False)
    space: dict = {}
    exec(found["python"], space)
    printed, answer = json.loads(done.stdout), space["answer"].to_dict()
    for name in ("loss", "low", "high"):
        assert np.ravel(printed[name])[-1] == pytest.approx(shown[name][-1], rel=1e-9)
        assert np.ravel(answer[name])[-1] == pytest.approx(shown[name][-1], rel=1e-9)


def test_several_logs_are_fitted_together() -> None:
    folder = ROOT / "nqm" / "logs" / "example"
    files = [{"name": path.name, "text": path.read_text()} for path in sorted(folder.glob("*.csv"))]
    status, answer = upload(json.dumps({"logs": files}).encode(), "forecast.json")
    assert (status, answer["kind"], answer["name"]) == (200, "forecast", "forecast.json")
    exact = forecast(read_logs(sorted(folder.glob("*.csv"))))
    found = post("outlook", problem={"spectrum": {"upload": answer["id"]}})
    assert [run["name"] for run in found["runs"]] == [log.name for log in exact.logs] == ["constant", "cosine", "drop"]
    assert found["error"] == pytest.approx(exact.error, rel=1e-9)
    assert (found["warmup"], found["batch_size"]) == (exact.warmup, None)


def test_beyond_the_reach_of_the_logs_there_is_no_interval_and_no_best_schedule(opened: dict) -> None:
    problem = {"spectrum": {"upload": opened["id"]}}
    found = post("outlook", problem=problem, schedule="cosine(20000)", peak=10, brief=True)["planned"]
    assert (found["low"][-1], found["high"][-1]) == (None, None)
    for body, field in (({"best": 24_000, "peak": 10}, "peak"), ({"best": 10**7}, "best")):
        status, content = respond("outlook", json.dumps({"problem": problem, **body}).encode())
        assert (status, json.loads(content)["field"]) == (422, field)


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ([], "several logs should be a list"), ([{"text": ""}], "several logs should be a list"), (3, "several logs"),
        ([{"name": "a.csv"}], "the log 'a.csv' should have a text"),
        ([{"name": "a.csv", "text": "step,loss,lr\n1,1,x\n"}], "a.csv, line 2"),
    ],
)  # fmt: skip
def test_several_files_that_are_no_logs_are_refused(logs: object, said: str) -> None:
    status, answer = upload(json.dumps({"logs": logs}).encode(), "forecast.json")
    assert status == 422
    assert said in answer["error"]


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
    command = page.shown("commands")[0]["command"]
    exact = forecast(read_logs(COSINE))
    n, first = exact.longest, exact.warmup
    assert first > 1000
    assert f"--schedule 'wsd({n}, {first}, {round((n - first) / 5)})'" in command  # with the warm-up of the logs
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
    page.page.click("#shape-own")
    page.settle()
    page.page.focus(".piece >> nth=23")  # the last of 20 pieces after 4 of warm-up
    for _ in range(4):
        page.page.keyboard.press("ArrowUp")
    page.settle()
    state = page.page.evaluate("window.nqm.state()")
    assert state["shape"] == "own"
    plan = parse_schedule(state["schedule"])
    decay = exact.longest - exact.warmup
    middle = exact.longest - np.arange(plan.lengths[-1])[::-1] - 1  # steps of the last piece, which has their mean rate
    assert plan.lr[-1] == pytest.approx(2 * np.mean((exact.longest - middle) / (decay / 5)), rel=0.02)
    assert plan.lr[:4].tolist() == pytest.approx([0.125, 0.375, 0.625, 0.875], rel=1e-3)  # the warm-up of the logs
    assert sum(plan.lengths[:4]) == exact.warmup
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


@pytest.mark.slow
def test_logs_that_are_dropped_together_are_fitted_together(open_page) -> None:
    page = open_page("view=steps&o=SGD()&sizes=4,64")
    folder = ROOT / "nqm" / "logs" / "example"
    files = [{"name": path.name, "text": path.read_text()} for path in sorted(folder.glob("*.csv"))]
    drop = """(files) => {
        const held = new DataTransfer();
        for (const { name, text } of files) held.items.add(new File([text], name, { type: "text/csv" }));
        dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));
    }"""
    page.page.evaluate(drop, files)
    page.eventually(lambda: page.page.evaluate("window.nqm.state().view") == "runs", "the logs")
    page.settle()
    assert [run["name"] for run in page.shown()[0]["runs"]] == ["constant", "cosine", "drop"]


@pytest.mark.slow
def test_a_next_run_is_better_than_the_logs_only_outside_its_interval(open_page) -> None:
    page = open_page("view=runs", wait=False)
    page.page.click("#runs-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.settle()
    best = min(log.loss[-1] for log in forecast(read_logs("example")).logs)
    seen = set()
    for shape, steps in (("cosine", 16_000), ("linear", 24_000), ("best", 24_000), ("wsd", 9000), ("step", 60_000)):
        page.page.evaluate(f"window.nqm.update({{shape: '{shape}', steps: '{steps}'}})")
        page.settle()
        run = page.shown()[0]["best"] or page.shown()[0]["planned"]
        within = run["low"][-1] <= best <= run["high"][-1]
        seen.add(bool(within))
        assert ("within that interval" in page.text("#headline")) == within, page.text("#headline")
        assert ("than the best of the logs" in page.text("#headline")) <= (not within)
    assert seen == {True, False}
    page.set("#setting-lr-0-text", "1")
    assert "there is no interval" in page.text("#headline")


def test_beyond_the_reach_of_the_logs_there_is_no_interval_and_no_best_run(opened: dict) -> None:
    problem = {"spectrum": {"upload": opened["id"]}}
    far = post("outlook", problem=problem, schedule="cosine(30000)", peak=1.0)
    assert set(far["planned"]["low"]) == set(far["planned"]["high"]) == {None}
    assert "3,333 times the largest of the logs" in far["planned"]["beyond"][0]
    asked = post("outlook", problem=problem, schedule="cosine(30000)", peak=1.0, extrapolate=True)
    assert asked["planned"]["low"][-1] < asked["planned"]["loss"][-1]
    assert asked["planned"]["beyond"] == []
    assert "--extrapolate" in asked["command"]
    assert "extrapolate=True" in asked["python"]
    body = json.dumps({"problem": problem, "best": 24_000, "peak": 1.0}).encode()
    status, content = respond("outlook", body)
    assert status == 422
    assert "ask for at most 0.0009, or extrapolate" in json.loads(content)["error"]
