"""Links that earlier versions of the page wrote still open: ``tests/data/links.txt`` has one on each line."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any
from urllib.parse import unquote_plus

import pytest
from asking import post, upload
from live import ROOT

LINKS = (ROOT / "tests" / "data" / "links.txt").read_text().split()
OMITTED = {"run": "HeavyBall(lr=0.05, momentum=0.9)", "x": "lr", "y": "momentum", "spectrum": "power_law(10000)"}
"""What a link that does not name them has always stood for."""


def state_of(link: str) -> dict[str, Any]:
    """What a link says, read without the page's own code."""
    pairs = [part.split("=", 1) for part in link.partition("#")[2].split("&")]
    found: dict[str, Any] = {key: unquote_plus(value) for key, value in pairs}
    if "o" in found:
        found["o"] = [unquote_plus(value) for key, value in pairs if key == "o"]
    return OMITTED | found


def unpacked(data: str) -> bytes:
    return zlib.decompress(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)), wbits=-15)


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS, ids=range(len(LINKS)))
def test_a_link_opens(link: str, open_page) -> None:
    page = open_page(link.partition("#")[2])
    state, wanted = page.page.evaluate("window.nqm.state()"), state_of(link)
    assert {key: state[key] for key in wanted} == wanted
    assert page.page.is_hidden("#error"), page.text("#error")
    assert page.shown("view") == wanted.get("view", "steps")
    assert min(page.colours()) > 5


@pytest.mark.slow
def test_a_link_that_is_broken_is_refused_with_a_sentence(open_page) -> None:
    page = open_page("view=network&data=LcoxCs&name=spectrum.json")
    assert page.text("#error")
    page = open_page("view=loss&run=HevyBall(0.1)&batch=8&steps=10")
    assert "did you mean HeavyBall?" in page.text("#error")


@pytest.mark.parametrize("link", [link for link in LINKS if "data=" in link], ids=["spectrum", "fit"])
def test_the_file_in_a_link_is_read(link: str) -> None:
    state = state_of(link)
    status, opened = upload(unpacked(state["data"]), state["name"])
    assert status == 200
    assert opened["name"] == state["name"]
    assert renamed(opened["file"]) == renamed(json.loads(unpacked(state["data"])))
    trace = {"spectrum.json": 2.5, "digits.json": 52.55553582310677}[state["name"]]
    assert opened["trace"] == pytest.approx(trace, rel=1e-12)
    inline = {"spectrum": {"file": opened["file"], "name": state["name"]}}
    assert post("spectrum", problem=inline)["trace"] == opened["trace"]


def renamed(file: dict) -> dict:
    """A file with the one key of a fit's note that has another name now."""
    note = {{"noise_settled": "noise_eigenvectors"}.get(key, key): value for key, value in file.get("note", {}).items()}
    return {**file, "note": note}


def test_the_questions_of_the_links_are_answered() -> None:
    sweep, loss, _, settings, schedule, *_ = map(state_of, LINKS)
    for state in (sweep, settings):
        body = {"target": state.get("target", "0.01"), "batch_sizes": "64,1024"}
        assert len(post("sweep", optimizers=state["o"], **body)["sweeps"]) == len(state["o"])
    for state in (loss, schedule):
        problem = {k: state[k] for k in ("spectrum", "kind", "label_noise") if k in state}
        body = {"optimizer": state["run"], "batch_size": state["batch"], "steps": state["steps"]}
        assert post("curve", problem=problem, **body, schedule=state["schedule"], quick=True)["outcome"] == "finished"
