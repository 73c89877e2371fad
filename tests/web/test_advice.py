"""Advice for a fitted network on the page, first hits of a prediction, and measured points over a figure."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from asking import close, post, upload
from click.testing import CliRunner
from fits import adamw_fit, fit_bytes, fit_json, small_fit
from pages import DIGITS, SIZES

from nqm import SGD, HeavyBall
from nqm.cli import main
from nqm.nets import Fit
from nqm.web.api import respond
from nqm.web.parts import PARTS

FIT = {"spectrum": {"file": fit_json(), "name": "fit.json"}}


def heard(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """What whoever waits for an answer hears of it; the list grows."""
    parts: list[dict[str, int]] = []
    monkeypatch.setattr(PARTS, "tell", lambda content: parts.append(json.loads(content)))
    return parts


def check_rises(parts: list[dict[str, int]], least: int) -> None:
    """The share that is done never falls, takes at least so many values, and ends at 1."""
    shares = [part["done"] / part["of"] for part in parts]
    assert shares == sorted(shares)
    assert len(set(shares)) >= least
    assert shares[-1] == 1


@pytest.mark.slow
def test_advice_is_that_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = heard(monkeypatch)
    answer = post("advise", problem=FIT, batch_size=32, target=0.55, optimizer="SGD")
    exact = small_fit().advise(32, 0.55, SGD())
    assert close({name: answer[name] for name in exact.to_dict()}, exact.to_dict())
    assert answer["families"] == ["SGD()"]
    assert answer["loss"] == small_fit().loss
    check_rises(parts, least=len(answer["table"]))
    (tmp_path / "fit.json").write_bytes(fit_bytes())
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, shlex.split(answer["command"])[1:], catch_exceptions=False)
    assert close(json.loads(told.stdout), exact.to_dict())
    scope: dict[str, Any] = {}
    exec(answer["python"], scope)
    assert close(scope["answer"].to_dict(), exact.to_dict())


def test_first_hits_come_with_a_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"problem": FIT, "optimizer": "HeavyBall(0.05, 0.5)", "batch_size": 32, "steps": 60}
    answer = post("predict", **asked, target=0.55)
    exact = small_fit().first_hits(HeavyBall(0.05, 0.5), 32, 0.55)
    assert answer["first_hits"] == exact.to_dict()
    assert post("predict", **asked)["first_hits"] is None
    (tmp_path / "fit.json").write_bytes(fit_bytes())
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, [*shlex.split(answer["command"])[1:], "--json"], catch_exceptions=False)
    assert json.loads(told.stdout)["first_hits"] == exact.to_dict()
    scope: dict[str, Any] = {}
    exec(answer["python"], scope)
    assert scope["hits"].to_dict() == exact.to_dict()


@pytest.mark.parametrize("endpoint", ["advise", "predict"])
def test_without_a_fit_it_is_said_what_to_open(endpoint: str) -> None:
    body = {"optimizer": "SGD(0.1)", "batch_size": 32, "target": 0.1, **({"steps": 9} if endpoint == "predict" else {})}
    status, content = respond(endpoint, json.dumps(body).encode())
    assert status == 422
    assert json.loads(content)["field"] == "problem.spectrum"
    assert "need a file of nqm fit" in json.loads(content)["error"]


@pytest.mark.slow
def test_a_fit_of_adamw_is_advised_for_adamw(monkeypatch: pytest.MonkeyPatch) -> None:
    status, opened = upload(fit_bytes(fit=adamw_fit()), "adamw.json")
    assert (status, opened["kind"]) == (200, "fit")
    parts = heard(monkeypatch)
    answer = post("advise", problem={"spectrum": {"upload": opened["id"]}}, batch_size=32, target=0.55)
    check_rises(parts, least=2 * len(answer["table"]))  # by the expected loss and by first hits
    assert [family.split("(")[0] for family in answer["families"]] == ["AdamW"]
    assert answer["optimizer"].startswith("AdamW(lr=")


@pytest.mark.slow
def test_the_page_advises(open_page) -> None:
    page = open_page("view=advice&batch=64&goal=0.12&advised=own&run=SGD(lr=0.5)", wait=False)
    page.eventually(lambda: "Drop a file of nqm fit" in page.text("#error"), "what to open")
    page.page.click("#advice-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.settle()
    exact = Fit.load(DIGITS).advise(64, 0.12, SGD())
    assert isinstance(exact.optimizer, SGD)
    said = f"SGD(lr={exact.optimizer.lr:.3g}) reaches 0.12 in {exact.steps:,.0f} steps at batch size 64"
    assert page.text("#headline").startswith(said)
    assert f"{exact.low:,.0f} to {exact.high:,.0f}" in page.text("#headline")
    assert page.line("SGD()") == [row["steps"] for row in exact.table()]
    assert exact.sentences[-1][1:60] in page.text("#facts")
    assert min(page.colours()) > 10
    page.view("network")
    assert page.shown()[1]["first_hits"]["target"] == 0.12
    assert "steps until the loss first dips" in page.text("#facts")


def laid(page: Any, folder: Path, text: str) -> None:
    file = folder / "points.csv"
    file.write_text(text)
    page.page.set_input_files("#measured-file", str(file))


@pytest.mark.slow
def test_measured_points_lie_over_a_figure(open_page, tmp_path: Path) -> None:
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    laid(page, tmp_path, "batch_size,steps,run\n64,7000,mine\n4,100000,mine\n64,6500,mine\n")
    page.eventually(lambda: page.page.is_visible("#measured-remove"), "the points")
    lines = [line for line in page.shown("figure")["panels"][0]["lines"] if line["label"] == "measured: mine"]
    assert [(line["x"], line["y"]) for line in lines] == [([4, 64], [100_000, 7000]), ([64], [6500])]
    page.set("#target-text", "0.02")
    assert page.line("measured: mine") == [100_000, 7000]  # the points stay when the figure moves
    laid(page, tmp_path, "batch,loss\n64,7000\n")
    page.eventually(lambda: "points.csv has the columns" in page.text("#error"), "the error")
    assert 'named as its axes: "batch size" and "steps to loss 0.02"' in page.text("#error")
    page.page.click("#measured-remove")
    assert "measured: mine" not in [line["label"] for line in page.shown("figure")["panels"][0]["lines"]]
