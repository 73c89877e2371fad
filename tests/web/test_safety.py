"""What keeps the machine safe: who may ask, how much, for how long; and that what is stopped is really stopped."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner
from fits import fit_bytes

from nqm.cli import main
from nqm.cli.errors import FAILED

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from live import alive, hurried  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Route  # noqa: E402
from waiting import LIMIT, eventually  # noqa: E402

from nqm.web.guard import allowed_host  # noqa: E402
from nqm.web.limits import REQUEST  # noqa: E402
from nqm.web.pool import Job, Pool, Reply  # noqa: E402
from nqm.web.server import Desk, endpoint, listen  # noqa: E402

CURVE = {"problem": {"spectrum": "power_law(50)"}, "optimizer": "SGD(0.1)", "batch_size": 8, "steps": 10}
ENDLESS = {
    "optimizer": "SGD(0.1)",
    "batch_size": 4,
    "steps": 10**6,
    "schedule": "cosine(1000000)",
}  # minutes, on 10^4 modes
LONG = {"optimizers": ["Adam(beta1=free)"], "target": 1e-3}


@pytest.fixture(scope="module")
def client() -> Any:
    with httpx.Client(base_url=hurried().address, timeout=LIMIT) as found:
        yield found


def ask(client: Any, path: str, **named: Any) -> Any:
    """An answer that is not "come back later", which a busy machine may well say."""
    for _ in range(30):
        answer = client.post(path, **named)
        if answer.status_code != 503:
            break
    return answer


def job(endpoint: str, **body: Any) -> Job:
    return Job(endpoint, json.dumps(body).encode())


# Who may ask.


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:80", "[::1]:80", "LOCALHOST"])
def test_names_of_this_machine_are_answered(client: Any, host: str) -> None:
    assert client.get("/api/describe", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8777", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]"],
)
@pytest.mark.parametrize("path", ["/", "/api/describe"])
def test_a_name_that_was_made_to_point_here_is_refused(client: Any, host: str, path: str) -> None:
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert "host" in answer.json()["error"]


def test_a_server_for_others_answers_to_its_addresses_only() -> None:
    assert allowed_host("192.168.1.5:8777", "0.0.0.0")
    assert allowed_host("[fe80::1]:8777", "::")
    assert allowed_host("lab.example:8777", "lab.example")
    assert not allowed_host("evil.example", "0.0.0.0")
    assert not allowed_host("192.168.1.5", "127.0.0.1")
    assert not allowed_host("", "127.0.0.1")


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:1"}, {"sec-fetch-site": "cross-site"},
     {"sec-fetch-site": "same-site"}],
)  # fmt: skip
def test_other_pages_are_refused(client: Any, headers: dict[str, str]) -> None:
    assert client.post("/api/curve", json=CURVE, headers=headers).status_code == 403


def test_the_own_page_is_answered(client: Any) -> None:
    own = {"origin": hurried().address.rstrip("/"), "sec-fetch-site": "same-origin"}
    assert ask(client, "/api/curve", json=CURVE, headers=own).status_code == 200


def test_it_listens_on_the_loopback_interface() -> None:
    with listen("127.0.0.1", 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # else each answer waits 40 ms
    (option,) = [p for p in main.commands["serve"].params if p.name == "host"]
    assert option.default == "127.0.0.1"


@pytest.mark.parametrize("path", ["/api/describe", "/api/nothing", "/nothing"])
def test_every_answer_protects_the_page(client: Any, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


# What may be asked.


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/api/curve", 405), ("PUT", "/api/curve", 405), ("POST", "/api/describe", 405), ("GET", "/api/nothing", 404),
    ("GET", "/..%2fserver.py", 404), ("GET", "/%2e%2e/server.py", 404), ("GET", "//etc/passwd", 404), ("POST", "/", 405),
])  # fmt: skip
def test_what_is_not_there(client: Any, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "field", "argument"}


def test_a_body_must_be_json(client: Any) -> None:
    assert (
        client.post("/api/curve", content=json.dumps(CURVE), headers={"content-type": "text/plain"}).status_code == 415
    )
    assert client.post("/api/upload", json={}).status_code == 415
    assert ask(client, "/api/curve", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert (
        ask(client, "/api/curve", json=CURVE, headers={"content-type": "application/json; charset=utf-8"}).status_code
        == 200
    )


def test_a_body_may_not_be_large(client: Any) -> None:
    kind = {"content-type": "application/json"}
    large = b" " * (REQUEST.body_bytes + 1)
    answer = client.post("/api/curve", content=large, headers=kind)
    assert answer.status_code == 413
    assert f"{REQUEST.body_bytes:,}" in answer.json()["error"]

    def parts() -> Any:  # no length is announced
        for _ in range(REQUEST.body_bytes // 2**16 + 2):
            yield b" " * 2**16

    assert client.post("/api/curve", content=parts(), headers=kind).status_code == 413
    assert ask(client, "/api/curve", json=CURVE).status_code == 200


def test_an_upload_is_known_to_every_worker(client: Any) -> None:
    kind = {"content-type": "application/octet-stream"}
    opened = ask(client, "/api/upload?name=net.json", content=fit_bytes(), headers=kind).json()
    problem = {"spectrum": {"upload": opened["id"]}}
    for rate in (0.1, 0.2, 0.3, 0.4):
        answer = ask(client, "/api/predict", json={**CURVE, "problem": problem, "optimizer": f"SGD({rate})"})
        assert answer.status_code == 200
        assert answer.json()["command"].startswith("nqm predict net.json")


# For how long.


@pytest.mark.slow
def test_what_takes_too_long_is_refused_and_others_are_not(client: Any) -> None:
    answer = client.post("/api/curve", json=ENDLESS)
    assert answer.status_code == 503
    assert "1 s" in answer.json()["error"]
    assert answer.headers["retry-after"]
    assert ask(client, "/api/curve", json=CURVE).status_code == 200


def gone(pid: int) -> bool:
    return not alive(pid)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must happen, and let the event loop go on meanwhile."""
    await asyncio.to_thread(eventually, condition, "what a pool must do")


def pooled(use: Callable[[Pool], Awaitable[None]], **options: Any) -> None:
    """Use a pool of real processes; afterwards none is left."""

    async def go() -> list[int]:
        pool = Pool(time_limit=600.0, **options)
        pool.start()
        try:
            assert await pool.run(job("curve", **CURVE))
            await use(pool)
            return pool.processes
        finally:
            await pool.close()

    processes = asyncio.run(go())
    eventually(lambda: all(gone(pid) for pid in processes), "the workers to end with their pool")


@pytest.mark.slow
def test_the_time_limit_ends_the_process() -> None:
    async def use(pool: Pool) -> None:
        (worker,) = pool.processes
        pool.time_limit = 0.2
        assert (await pool.run(job("curve", **ENDLESS))).status == 503
        await until(lambda: gone(worker))
        pool.time_limit = 600.0
        reply = await pool.run(job("curve", **CURVE))
        assert reply
        assert reply.status == 200
        assert pool.processes != [worker]

    pooled(use, size=1)


def test_a_client_that_goes_away_ends_its_work() -> None:
    async def use(pool: Pool) -> None:
        (worker,) = pool.processes
        asked = asyncio.ensure_future(pool.run(job("curve", **ENDLESS)))
        await asyncio.sleep(0.1)
        asked.cancel()
        await until(lambda: gone(worker))
        queued = asyncio.ensure_future(pool.run(job("curve", **ENDLESS)))  # has not begun: nothing to end
        await asyncio.sleep(0)
        queued.cancel()
        reply = await pool.run(job("curve", **CURVE))
        assert reply
        assert reply.status == 200

    pooled(use, size=1)


def test_long_requests_leave_a_worker_to_quick_ones_and_the_queue_is_bounded() -> None:
    async def use(pool: Pool) -> None:
        await until(lambda: pool._free.qsize() == 2)
        long = [asyncio.ensure_future(pool.run(job("sweep", **LONG, seed=seed))) for seed in range(3)]
        await asyncio.sleep(0)
        reply = await pool.run(job("curve", **CURVE))
        assert reply
        assert reply.status == 200
        assert pool.waiting == 2
        pool.most_waiting = 2
        refused = await pool.run(job("curve", **CURVE))
        assert refused.status == 503
        assert b"2 requests are waiting already" in refused.content
        for one in long:
            one.cancel()

    pooled(use, size=2)


# What is remembered.


class Counting:
    """A pool that counts what it is asked, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Job] = []
        self.cancelled = 0
        self.now = asyncio.Event()

    async def run(self, one: Job, heard: Any = None) -> Reply:
        self.asked.append(one)
        try:
            await self.now.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Reply(200, b"{}")


def test_like_questions_are_asked_once() -> None:
    async def go() -> None:
        pool = Counting()
        desk = Desk(pool)  # type: ignore[arg-type]
        both = [asyncio.ensure_future(desk.reply(job("curve", **CURVE))) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        both.append(asyncio.ensure_future(desk.reply(job("curve", **CURVE))))
        both[0].cancel()  # one of them goes: the others still want the answer
        await asyncio.sleep(0)
        pool.now.set()
        assert (await both[1]) == (await both[2]) == Reply(200, b"{}")
        assert await desk.reply(job("curve", **CURVE))
        assert len(pool.asked) == 1
        assert await desk.reply(job("steps", **CURVE))
        assert len(pool.asked) == 2
        assert not pool.cancelled

    asyncio.run(go())


def test_a_question_that_nobody_asks_any_more_is_dropped() -> None:
    async def go() -> None:
        pool = Counting()
        desk = Desk(pool)  # type: ignore[arg-type]
        both = [asyncio.ensure_future(desk.reply(job("curve", **CURVE))) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await asyncio.sleep(0)
        assert pool.cancelled == 1
        assert not desk._asked

    asyncio.run(go())


def test_a_connection_that_closes_drops_the_question() -> None:
    async def go() -> None:
        pool = Counting()
        app = Starlette(routes=[Route("/curve", endpoint("curve", Desk(pool)), methods=["POST"])])  # type: ignore[arg-type]
        parts = [{"type": "http.request", "body": json.dumps(CURVE).encode()}, {"type": "http.disconnect"}]
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/curve", "query_string": b"", "headers": headers}
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.sleep(0.01)
            return parts.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        await until(lambda: pool.cancelled == 1)
        assert len(pool.asked) == 1
        assert sent[0]["status"] == 499

    asyncio.run(go())


def test_memory_for_answers_and_uploads_is_bounded() -> None:
    desk = Desk(Pool(1))
    answers, uploads = desk.answers, desk.pool.uploads
    answers.most_bytes = uploads.most_bytes = 1000
    for i in range(100):
        answers.keep(bytes([i]), Reply(200, b"x" * 300))
        answers.keep(bytes([i]), Reply(200, b"x" * 300))
    assert answers.size == 900
    assert answers.get(bytes([99]))
    assert answers.get(bytes([0])) is None
    uploads.most = 3
    for i in range(9):
        uploads.keep(str(i), (b"x" * 100, ""))
    assert len(uploads) == 3
    assert uploads.get("8")
    assert uploads.get("1") is None
    uploads.keep("large", (b"x" * 900, ""))
    assert len(uploads) == 2


def test_too_much_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from nqm.web import api

    def greedy(**_: Any) -> Any:
        raise MemoryError

    monkeypatch.setitem(api.ENDPOINTS, "curve", greedy)
    status, content = api.respond("curve", json.dumps(CURVE).encode())
    assert status == 503
    assert "memory" in json.loads(content)["error"]


# The verb.


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(main, ["serve", "--no-open", "--port", str(taken.getsockname()[1])])
    assert done.exit_code == FAILED
    assert "cannot listen" in done.stderr
    assert done.stderr.endswith("Address already in use; try --port 0\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "no address"])
def test_an_address_of_another_machine_is_said(host: str) -> None:
    done = CliRunner().invoke(main, ["serve", "--no-open", "--port", "0", "--host", host])
    assert done.exit_code == FAILED
    assert "this machine has no such address; leave --host out" in done.stderr
    assert "Listening" not in done.stderr


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_a_missing_extra_is_said(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("nqm.web", "starlette", "uvicorn"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = CliRunner().invoke(main, ["serve", "--no-open", "--port", "0"])
    assert done.exit_code == FAILED
    assert f"this needs {missing}" in done.stderr
    assert "pip install 'nqm[web]'" in done.stderr


def test_others_are_let_in_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from nqm.web import server

    ran: list[Any] = []
    monkeypatch.setattr(server, "listen", lambda host, port: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(server, "run", lambda listening, host, limit: ran.append((listening.close(), host, limit)))
    done = CliRunner().invoke(main, ["serve", "--host", "0.0.0.0", "--no-open", "--time-limit", "5"])
    assert done.exit_code == 0
    assert "no password" in done.stderr
    assert ran == [(None, "0.0.0.0", 5)]
    assert CliRunner().invoke(main, ["serve", "--no-open"]).stderr == ""
    assert CliRunner().invoke(main, ["serve", "--time-limit", "0"]).exit_code == 2
