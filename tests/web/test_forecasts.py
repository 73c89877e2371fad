"""The page opens a saved forecast as it opens a fit: curves, hits, tuning and sweeps take it, other views refuse it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from asking import close, post, strict, upload
from click.testing import CliRunner
from known_laws import known_forecast, saved_forecast

from nqm import SGD
from nqm.cli import main
from nqm.web.api import respond
from nqm.web.files import LOGGED_STEPS


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    saved_forecast("norm", tmp_path / "run.json")
    return (tmp_path / "run.json").read_bytes()


def given(content: bytes) -> dict[str, Any]:
    status, opened = upload(content, "run.json")
    assert status == 200, opened
    return {"spectrum": {"upload": opened["id"]}}


def test_an_upload_says_where_to_begin(content: bytes) -> None:
    status, opened = upload(content, "my run.json")
    assert (status, opened["kind"], opened["name"]) == (200, "forecast", "my_run.json")
    assert (opened["lr"], opened["batch_size"], opened["steps"]) == (0.002, 64, 10_000)
    assert opened["floor"] == pytest.approx(2.5)
    assert opened["loss"] > opened["floor"]
    assert {**opened["file"], "undecided": []} == json.loads(content)  # The page says anew what is undecided.
    again = {"spectrum": {"file": opened["file"], "name": "run.json"}}
    body = {"optimizer": "SGD(0.001)", "batch_size": 64, "steps": 100}
    assert post("curve", problem=again, **body)["loss"] == post("curve", problem=given(content), **body)["loss"]


def test_a_curve_is_that_of_the_library(content: bytes) -> None:
    answer = post(
        "curve", problem=given(content), optimizer="SGD(0.001)", batch_size=64, steps=5000, schedule="cosine(5000)"
    )
    problem = known_forecast("norm").problem
    from nqm.engine.schedule import cosine

    run = problem.run(SGD(0.001), 64, 5000, cosine(5000))
    assert answer["loss"] == pytest.approx(run.loss.tolist(), rel=1e-12)
    assert answer["initial_loss"] == pytest.approx(4.3)
    assert answer["stability_limit"] == 0.004
    assert answer["band_signal"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("curve", {"optimizer": "SGD(0.001)", "batch_size": 64, "steps": 500}),
        ("steps", {"optimizer": "SGD(0.001)", "batch_size": 64, "target": 3}),
        ("tune", {"optimizer": "SGD", "batch_size": 64, "target": 3}),
        ("sweep", {"optimizers": ["SGD"], "batch_sizes": "32,64", "target": 3}),
    ],
)
def test_commands_and_python_give_the_same_answer(
    content: bytes, endpoint: str, body: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = post(endpoint, problem=given(content), **body)
    assert "--forecast run.json" in answer["command"]
    done = CliRunner().invoke(main, [*shlex.split(answer["command"])[1:], "--json"], catch_exceptions=False)
    printed, space = json.loads(done.stdout), {}
    exec(answer["python"], space)
    found = space["answer"]
    if endpoint == "sweep":
        (answer,), (printed,), (found,) = answer["sweeps"], printed["sweeps"], found  # type: ignore[misc]
    assert close({k: answer[k] for k in printed}, printed)
    assert close({k: answer[k] for k in found.to_dict()}, found.to_dict())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("endpoint", "body", "field", "sentence"),
    [
        (
            "curve",
            {"optimizer": "Adam(0.1)", "batch_size": 4, "steps": 9},
            "optimizer",
            "answers for the optimizer of its logs",
        ),
        ("steps", {"optimizer": "EMA(SGD(1), 0.9)", "batch_size": 4, "target": 3}, "optimizer", "SGD(lr) stands"),
        ("curve", {"optimizer": "SGD(0.1)", "batch_size": "inf", "steps": 9}, "batch_size", "finite batch size"),
        ("sweep", {"optimizers": ["HeavyBall"], "target": 3}, "optimizers", "SGD(lr) stands"),
        (
            "schedule",
            {"optimizer": "SGD", "batch_size": 4, "steps": 9},
            "problem.spectrum",
            "Forecast.optimal_schedule",
        ),
        ("spectrum", {}, "problem.spectrum", "a forecast has no spectrum to show"),
        ("predict", {"optimizer": "SGD(1)", "batch_size": 4, "steps": 9}, "problem.spectrum", "a file of nqm fit"),
    ],
)
def test_refusals_stand_at_their_field(
    content: bytes, endpoint: str, body: dict[str, Any], field: str, sentence: str
) -> None:
    status, reply = respond(endpoint, json.dumps({"problem": given(content), **body}).encode())
    told = strict(reply)
    assert status == 422
    assert told["field"] == field
    assert sentence in json.dumps(told)


def test_a_regression_is_refused(content: bytes) -> None:
    problem = {**given(content), "kind": "least_squares"}
    body = {"problem": problem, "optimizer": "SGD(1)", "batch_size": 4, "steps": 9}
    status, reply = respond("curve", json.dumps(body).encode())
    assert (status, strict(reply)["field"]) == (422, "problem.kind")


@pytest.mark.parametrize("damage", ["theta", "logs", "long", "huge", "metric", "shape"])
def test_damaged_forecasts_are_refused(content: bytes, damage: str) -> None:
    data = json.loads(content)
    if damage in ("theta", "logs"):
        del data[damage]
    elif damage == "long":
        data["logs"][0]["step"][-1] = LOGGED_STEPS + 1
    elif damage == "huge":
        data["theta"][2] = 600.0
    elif damage == "metric":
        data["metric"]["kind"] = "other"
    else:
        data["theta"] = data["theta"][:3]
    status, told = upload(json.dumps(data).encode(), "run.json")
    assert status == 422
    assert "Traceback" not in json.dumps(told)
