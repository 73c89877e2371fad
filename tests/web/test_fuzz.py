"""Bodies drawn from the endpoints' own schema, through the real server: never a bug, which would be a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from live import hurried  # noqa: E402
from schemas import bodies  # noqa: E402
from waiting import LIMIT  # noqa: E402

from nqm.web.bodies import schemas  # noqa: E402

SCHEMAS = {path.rsplit("/", 1)[1]: schema for path, schema in schemas().items()}
EXAMPLES = {"tune": 6, "sweep": 4, "schedule": 6, "advise": 6}  # these take longer
THOROUGH = 10  # times as many, where there is time
EXPECTED = {200, 400, 422, 503}  # 503: stopped at the time limit; 500 would be a bug


@pytest.fixture(scope="module")
def client() -> Any:
    with httpx.Client(base_url=hurried().address, timeout=LIMIT) as found:
        yield found


def check(answer: Any) -> None:
    assert answer.status_code in EXPECTED, answer.text
    found = json.loads(answer.content, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    if answer.status_code == 200:
        assert {"command", "python", "optimizer"} <= set(found)
    else:
        assert set(found) == {"error", "field", "argument"}
        assert found["error"]
        assert "\n" not in found["error"]


@pytest.mark.parametrize("times", [1, pytest.param(THOROUGH, marks=pytest.mark.slow)])
@pytest.mark.parametrize("endpoint", SCHEMAS)
def test_no_body_of_the_schema_is_too_much(endpoint: str, times: int, client: Any) -> None:
    statuses = set()

    @settings(max_examples=times * EXAMPLES.get(endpoint, 12))
    @given(bodies(endpoint, SCHEMAS[endpoint]))
    def try_one(body: Any) -> None:
        content = json.dumps(body).encode()
        answer = client.post(f"/api/{endpoint}", content=content, headers={"content-type": "application/json"})
        check(answer)
        statuses.add(answer.status_code)

    try_one()
    assert statuses & {200, 503}  # the fuzz asks sensible questions too, which a busy machine may not end in time


BYTES = st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode))
FILES = st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda tail: b"PK\x03\x04" + tail))


@pytest.mark.parametrize(("endpoint", "drawn"), [("curve", BYTES), ("upload", FILES)], ids=["body", "file"])
def test_no_bytes_are_too_much(endpoint: str, drawn: st.SearchStrategy[bytes], client: Any) -> None:
    kind = {"content-type": "application/octet-stream" if endpoint == "upload" else "application/json"}

    @settings(max_examples=30)
    @given(drawn)
    def try_one(content: bytes) -> None:
        check(client.post(f"/api/{endpoint}", content=content, headers=kind))

    try_one()
