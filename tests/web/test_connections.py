"""Connections: slow ones are closed, answers are compressed, and a worker that is killed does not take its request along."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import socket
import threading
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from live import ROOT, hurried  # noqa: E402
from waiting import LIMIT, eventually  # noqa: E402

from nqm.web import connections, pool, server  # noqa: E402
from nqm.web.pool import Job, Pool, Worker  # noqa: E402

CURVE = b'{"problem": {"spectrum": "power_law(50)"}, "optimizer": "SGD(0.1)", "batch_size": 8, "steps": 10}'
PAGE_BYTES = 150_000  # The whole page may have this many bytes when it is compressed.


async def hello(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /api/curve HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"],
    ids=["nothing", "half a head", "half a second head"],
)
def test_a_connection_that_sends_no_whole_head_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SERVER", dataclasses.replace(connections.SERVER, read=0.3))
    config = uvicorn.Config(hello, log_level="error", lifespan="off", http=connections.PatientProtocol)
    with server.listen("127.0.0.1", 0) as listening:
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
        thread.start()
        eventually(lambda: running.started, "the server")
        with socket.create_connection(listening.getsockname(), timeout=LIMIT) as client:
            client.sendall(sent)
            while client.recv(1000):
                pass  # the answer to a whole request; then the end
        assert httpx.get(f"http://127.0.0.1:{listening.getsockname()[1]}").text == "hi"
        running.should_exit = True
        thread.join(LIMIT)


def test_a_body_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SERVER", dataclasses.replace(server.SERVER, read=0.2))

    async def ask() -> int:
        async def never() -> Any:
            await asyncio.sleep(LIMIT)

        scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
        handle = server.endpoint("curve", server.Desk(Pool(1)))
        return (await handle(server.Request(scope, never))).status_code

    assert asyncio.run(ask()) == 408


@pytest.mark.slow
def test_answers_and_files_are_compressed() -> None:
    with httpx.Client(base_url=hurried().address, timeout=LIMIT) as client:
        for path in ("/js/main.js", "/api/describe"):
            assert client.get(path).headers["content-encoding"] == "gzip"
            assert "content-encoding" not in client.get(path, headers={"accept-encoding": "identity"}).headers
        answer = client.post("/api/curve", content=CURVE, headers={"content-type": "application/json"})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.json()["outcome"] == "finished"


@pytest.mark.slow
def test_a_sweep_is_sent_point_by_point() -> None:
    body = {"problem": {"spectrum": "power_law(50)"}, "optimizers": ["SGD"], "target": 0.1, "batch_sizes": [4, 16, 64]}
    with httpx.Client(base_url=hurried().address, timeout=LIMIT) as client:
        events = client.post("/api/sweep", json=body, headers={"accept": "text/event-stream"}).text.split("\n\n")
        *parts, last = [json.loads(event.removeprefix("data: ")) for event in events if event]
        plain = client.post("/api/sweep", json=body).json()
        wrong = client.post("/api/sweep", json={**body, "target": -1}, headers={"accept": "text/event-stream"}).text
    assert last == {"status": 200, "answer": plain}
    asked, added = parts[:3], plain["sweeps"][0]["added"]
    assert [part["steps"] for part in asked] == plain["sweeps"][0]["steps"]
    assert [part["optimizer"] for part in asked] == plain["sweeps"][0]["optimizers"]
    assert {part["batch_size"] for part in added} <= {part["batch_size"] for part in parts[3:]}
    assert json.loads(wrong.removeprefix("data: "))["status"] == 422


def test_every_part_has_the_time_of_a_request_and_all_have_twenty() -> None:
    workers = Pool(1, time_limit=2.0)
    assert workers._left(now=11.0, began=0.0, last=10.0) == 1.0
    assert workers._left(now=13.0, began=0.0, last=10.0) < 0
    assert workers._left(now=41.0, began=0.0, last=41.0) < 0


def test_the_page_is_small() -> None:
    static = ROOT / "nqm" / "web" / "static"
    files = [path for path in static.rglob("*") if path.suffix in {".js", ".css", ".html", ".svg"}]
    assert sum(len(gzip.compress(path.read_bytes(), 5)) for path in files) < PAGE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_request_whose_worker_is_killed_is_asked_once_more(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = [], Worker.ask

    def fragile(self: Worker, job: Job, uploads: pool.Uploads, heard: pool.Heard) -> pool.Reply | None:
        asked.append(job)
        if len(asked) <= deaths:
            self.process.kill()
        return ask(self, job, uploads, heard)

    monkeypatch.setattr(Worker, "ask", fragile)

    async def run() -> pool.Reply:
        workers = Pool(2, LIMIT)
        workers.start()
        try:
            return await workers.run(Job("curve", CURVE))
        finally:
            await workers.close()

    reply = asyncio.run(run())
    assert len(asked) == 2
    assert (reply.status, b"ended twice" in reply.content) == ((200, False) if deaths == 1 else (503, True))
