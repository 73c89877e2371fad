"""A bug behind the page, on the real server: status 500, and an id that is in the log together with the traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from live import serving  # noqa: E402
from waiting import LIMIT  # noqa: E402

CURVE = {"problem": {"spectrum": "power_law(50)"}, "optimizer": "SGD(0.1)", "batch_size": 8, "steps": 10}
PLANTED = """
import numpy as np
import nqm.web.api as api

def broken(**values):
    if values["steps"] == 11:
        return np.ones(3) + np.ones(4)
    return len(None)

api.ENDPOINTS["curve"] = broken
"""  # Python imports a module of this name in every process that it starts.


@pytest.mark.slow
def test_a_bug_has_an_id_that_is_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    log = tmp_path / "log"
    with serving(path=str(tmp_path), log=log) as live, httpx.Client(base_url=live.address, timeout=LIMIT) as client:
        bugs: list[Any] = [client.post("/api/curve", json={**CURVE, "steps": steps}) for steps in (10, 11)]
        right = client.post("/api/steps", json={**{k: v for k, v in CURVE.items() if k != "steps"}, "target": 1})
        again = client.post("/api/curve", json=CURVE)
    said = log.read_text()
    for answer, words in zip(bugs, ("object of type 'NoneType' has no len()", "could not be broadcast"), strict=True):
        told = answer.json()
        assert answer.status_code == 500
        assert set(told) == {"error", "field", "argument", "id"}
        assert f"bug in nqm, id {told['id']}" in told["error"]
        assert "nqm serve printed where it happened, under this id" in told["error"]
        assert words not in told["error"]
        _, found, rest = said.partition(f"id {told['id']}")
        assert found
        assert words in rest
        assert "Traceback" in rest
        assert "power_law(50)" in rest  # what was asked
    assert right.status_code == 200  # the worker goes on
    assert again.json()["id"] != bugs[0].json()["id"]  # and a bug is no answer to remember
