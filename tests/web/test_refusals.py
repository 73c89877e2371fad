"""What is wrong with a question is named at its field; what is wrong with the program is a bug, and looks like one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from asking import SMALL, strict

from nqm.types import Wrong
from nqm.web import api
from nqm.web.api import respond
from nqm.web.bodies import BODIES
from nqm.web.limits import REQUEST
from nqm.web.pool import failure


def refused(endpoint: str, **body: Any) -> tuple[int, str, str | None, str | None]:
    status, content = respond(endpoint, json.dumps(body).encode())
    answer = strict(content)
    assert set(answer) == {"error", "field", "argument"}, answer
    assert "\n" not in answer["error"]
    return status, answer["error"], answer["field"], answer["argument"]


CURVE = {"problem": SMALL, "optimizer": "SGD(0.1)", "batch_size": 8, "steps": 10}
MAP = {
    "problem": SMALL, "optimizer": "HeavyBall", "target": 0.1, "batch_size": 8,
    "x": {"name": "lr", "low": 0.1, "high": 1}, "y": {"name": "momentum", "low": 0, "high": 0.9},
}  # fmt: skip
WRONG: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("curve", {"optimizer": None}, "optimizer", "is missing"),
    ("curve", {"optimizer": "SDG(0.1)"}, "optimizer", "did you mean SGD?"),
    ("curve", {"optimizer": "os:system"}, "optimizer", "not imported"),
    ("curve", {"optimizer": "SGD(__import__('os'))"}, "optimizer", ""),
    ("curve", {"optimizer": "SGD"}, "optimizer", "free"),
    ("curve", {"optimizer": 3}, "optimizer", "must be text"),
    ("curve", {"optimizer": "SGD(" + "0" * REQUEST.text + ")"}, "optimizer", "2,000 characters"),
    ("curve", {"optimizer": "EMA(" * 6 + "SGD(0.1)" + ", 0.9)" * 6}, "optimizer", "slots"),
    ("curve", {"batch_size": 0}, "batch_size", "from 1e-12"),
    ("curve", {"batch_size": "many"}, "batch_size", "number"),
    ("curve", {"steps": 2.5}, "steps", "whole number"),
    ("curve", {"steps": 10**10}, "steps", "1e+09"),
    ("curve", {"steps": True}, "steps", "whole number"),
    ("curve", {"points": 1001}, "points", "from 2 to 1000"),
    ("curve", {"grid": "cubic"}, "grid", "log, linear"),
    ("curve", {"quick": "yes"}, "quick", "true or false"),
    ("curve", {"stpes": 1}, "stpes", "did you mean steps?"),
    ("curve", {"schedule": "cosine"}, "schedule", "steps"),
    ("curve", {"schedule": {"lengths": [1] * 1001}}, "schedule.lengths", "1 to 1,000 entries"),
    ("curve", {"schedule": {"lengths": [1, 2], "lr": [1]* 3}}, "schedule.lr", "3 values for 2 pieces"),
    ("curve", {"problem": {"spectrum": "/etc/passwd"}}, "problem.spectrum", "no files are read"),
    ("curve", {"problem": {"spectrum": "power_law(0)"}}, "problem.spectrum", "whole number from 1"),
    ("curve", {"problem": {"spectrum": {"upload": "nothing"}}}, "problem.spectrum", "open the file again"),
    ("curve", {"problem": {"spectrum": {}}}, "problem.spectrum", "exactly one of"),
    ("curve", {"problem": {"spectrum": {"file": {"h": []}}}}, "problem.spectrum", "non-empty"),
    ("curve", {"problem": {"label_noise": 1}}, "problem.label_noise", "least_squares"),
    ("curve", {"problem": {"spectrum": "power_law(9, noise_exponent=2)", "kind": "least_squares"}}, "problem.label_noise",
     "noise; set label_noise"),
    ("spectrum", {"problem": {"kind": "least_squares"}}, "problem.kind", "kind"),
    ("map", {"problem": {"kind": "least_squares"}}, "problem.kind", "fixed variance"),
    ("curve", {"problem": []}, "problem", "must be an object"),
    ("predict", {}, "problem.spectrum", "nqm fit"),
    ("steps", {"target": -1}, "target", "from 1e-300"),
    ("tune", {"target": 0.1}, "target", "exactly one goal"),
    ("schedule", {"pieces": 101}, "pieces", "from 1 to 100"),
    ("schedule", {"problem": {"kind": "least_squares"}}, "problem.kind", "quadratic"),
    ("schedule", {"optimizer": "Polyak(SGD)"}, "optimizer", "all alike"),
    ("sweep", {"optimizers": ["SGD"] * 7, "target": 1}, "optimizers", "1 to 6 entries"),
    ("sweep", {"optimizers": ["SGD", "SDG"], "target": 1}, "optimizers.1", "did you mean SGD?"),
    ("sweep", {"optimizers": ["SGD"], "target": 1, "batch_sizes": "1..1000..1.1"}, "batch_sizes", "more than 40"),
    ("map", {"x": {"name": "lr", "low": 0.1, "high": 1, "n": 65}}, "x.n", "from 2 to 64"),
    ("map", {"x": {"name": "lr", "low": 2, "high": 1}}, "x.high", "low to a higher"),
    ("map", {"x": {"name": "decay", "low": 0.1, "high": 0.5}}, "x", "no parameter 'decay'"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_is_wrong_is_named(case: int) -> None:
    endpoint, change, field, words = WRONG[case]
    known = {**(MAP if endpoint == "map" else CURVE), **change}
    allowed = {*BODIES[endpoint].fields, *change}
    status, sentence, blamed, _ = refused(endpoint, **{k: v for k, v in known.items() if k in allowed})
    assert status == 422
    assert words in sentence
    assert blamed == field


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"steps": NaN}', b"\xff", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    status, content = respond("curve", body)
    assert status == 400
    assert "body" in strict(content)["error"]


def test_the_argument_in_a_text_is_named() -> None:
    """The page marks the number that is wrong, not only the text that holds it."""
    assert refused("curve", **{**CURVE, "optimizer": "EMA(SGD(-1), 0.9)"})[2:] == ("optimizer", "lr")
    assert refused("curve", **{**CURVE, "problem": {"spectrum": "power_law(9, noise=-1)"}})[2:] == (
        "problem.spectrum",
        "noise",
    )


@pytest.mark.parametrize(
    ("endpoint", "argument", "field"),
    [("predict", "replacement", "epochs"), ("predict", "bent", "quadratic"), ("tune", "problem", "problem.kind"),
     ("tune", "spectrum", "problem.spectrum"), ("sweep", "optimizer", "optimizers"), ("tune", "optimizer", "optimizer"),
     ("tune", "max_steps", None), ("tune", None, None)],
)  # fmt: skip
def test_an_argument_of_the_library_has_its_field(
    endpoint: str, argument: str | None, field: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(**_: object) -> api.Answer:
        raise Wrong("this is wrong", argument)

    monkeypatch.setitem(api.ENDPOINTS, endpoint, wrong)
    known = {**CURVE, "optimizers": ["SGD"], "target": 1}
    body = {k: v for k, v in known.items() if k in BODIES[endpoint].fields}
    assert refused(endpoint, **body) == (422, "this is wrong", field, None)


def broadcast(**_: object) -> api.Answer:
    return {"sum": np.ones(3) + np.ones(4)}


def wrong_kind(**_: object) -> api.Answer:
    return len(None)  # type: ignore[arg-type]


def wrong_value(**_: object) -> api.Answer:
    raise ValueError("max() arg is an empty sequence")


def overflow(**_: object) -> api.Answer:
    return {"power": 1e300**2}


@pytest.mark.parametrize("planted", [broadcast, wrong_kind, wrong_value, overflow])
def test_a_bug_is_not_told_as_a_wrong_question(
    planted: Callable[..., api.Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(api.ENDPOINTS, "curve", planted)
    with pytest.raises((ValueError, TypeError, OverflowError)) as caught:
        respond("curve", json.dumps(CURVE).encode())
    reply = failure(caught.value, "/api/curve")
    told = strict(reply.content)
    assert reply.status == 500
    assert told["id"] in told["error"]
    assert told["id"] in reply.log
    assert "Traceback" in reply.log
    assert planted.__name__ in reply.log
    assert str(caught.value) not in told["error"]


def test_text_of_a_page_imports_nothing() -> None:
    status, sentence, *blamed = refused("curve", **{**CURVE, "optimizer": "os:system(lr=0.1)"})
    assert (status, blamed[0]) == (422, "optimizer")
    assert "not imported here" in sentence
