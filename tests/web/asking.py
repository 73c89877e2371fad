"""Questions to the endpoints without a server, and how near two answers are."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import nqm
from nqm.web.api import respond

SMALL = {"spectrum": "power_law(100)"}
PROBLEM = nqm.Quadratic(nqm.Spectrum.power_law(100))
HEAVY = "HeavyBall(0.1, momentum=1 - 2^-3)"


def strict(content: bytes) -> Any:
    """JSON without NaN and infinities, which it does not have."""
    return json.loads(content, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def post(endpoint: str, **body: Any) -> Any:
    status, content = respond(endpoint, json.dumps(body).encode())
    answer = strict(content)
    assert status == 200, answer
    return answer


def upload(content: bytes, name: str = "") -> tuple[int, Any]:
    status, answer = respond("upload", content, name)
    return status, strict(answer)


def close(here: Any, there: Any) -> bool:
    """Equal but for rounding in the twelfth digit."""
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(close(here[k], there[k]) for k in here)
    if isinstance(here, list):
        return len(here) == len(there) and all(map(close, here, there))
    if isinstance(here, float) and isinstance(there, int | float):
        return math.isclose(here, there, rel_tol=1e-12)
    return here == there
