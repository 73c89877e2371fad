"""The server: who may ask, how much, and what is remembered; the answers themselves come from the workers of `pool`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import mimetypes
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from .bodies import BODIES, schemas
from .describe import describe
from .guard import Guard, refusal
from .limits import REQUEST, SERVER, Recent
from .pool import LOG, Job, Pool, Reply, failure

STATIC = Path(__file__).with_name("static")


class Desk:
    """Takes questions: known ones are answered at once, like ones share a worker, others go to the pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.answers: Recent[bytes, Reply] = Recent(math.inf, lambda reply: len(reply.content))
        self._asked: dict[bytes, tuple[asyncio.Task[Reply | None], list[None]]] = {}

    async def reply(self, job: Job) -> Reply | None:
        """An answer; None if the time limit ended it. Cancelled when the client goes."""
        if job.endpoint == "upload":  # is kept where it is read
            return await self.pool.run(job)
        key = hashlib.sha256(job.endpoint.encode() + b"\n" + job.body).digest()
        if known := self.answers.get(key):
            return known
        task, waiters = self._asked.get(key) or (asyncio.get_running_loop().create_task(self.pool.run(job)), [])
        self._asked[key] = (task, waiters)
        waiters.append(None)
        try:
            reply = await asyncio.shield(task)
        finally:
            waiters.pop()
            if task.done() or not waiters:
                self._asked.pop(key, None)
            if not waiters:
                task.cancel()
        if reply is not None and reply.status == 200:
            self.answers.keep(key, reply)
        return reply


async def read_body(request: Request, most: int) -> bytes | None:
    """The body, or None if it is longer than it may be.

    What is too long is read on for a while and thrown away: a client that is cut off while it sends sees no answer.
    """
    body, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size > SERVER.drain_bytes:
            break
        if size <= most:
            body += part
    return bytes(body) if size <= most else None


async def disconnected(request: Request) -> None:
    """Wait until the client goes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def endpoint(name: str, desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    """The handler of one endpoint."""
    raw = name == "upload"
    kind, most = ("application/octet-stream", REQUEST.upload_bytes) if raw else ("application/json", REQUEST.body_bytes)

    async def handle(request: Request) -> Response:
        if request.headers.get("content-type", "").split(";")[0].strip().lower() != kind:
            return refusal(415, f"the body must be {kind}")
        try:
            body = await read_body(request, most)
        except (ClientDisconnect, ValueError):
            return refusal(400, "the body did not arrive")
        if body is None:
            return refusal(413, f"the body may have {most:,} bytes", connection="close")
        job = Job(name, body, request.query_params.get("name", "")[:200] if raw else "")
        asked = asyncio.ensure_future(desk.reply(job))
        gone = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return Response(status_code=499)  # nobody reads it
            return answered(asked.result(), desk.pool.time_limit)
        except OverflowError:
            return refusal(503, f"{desk.pool.most_waiting} requests wait already; try again", **{"retry-after": "2"})
        finally:
            gone.cancel()
            asked.cancel()

    return handle


def answered(reply: Reply | None, time_limit: float) -> Response:
    if reply is None:
        told = f"this took more than {time_limit:g} s and was stopped; ask for less, or run the command in a terminal"
        return refusal(503, told, **{"retry-after": "1"})
    return Response(reply.content, reply.status, media_type="application/json", headers={"cache-control": "no-store"})


def fixed(data: object) -> Callable[[Request], Awaitable[Response]]:
    content = json.dumps(data)

    async def handle(request: Request) -> Response:
        return Response(content, media_type="application/json", headers={"cache-control": "no-cache"})

    return handle


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, f"{error.detail.lower()}: {request.method} {request.url.path:.80}")


async def on_bug(request: Request, error: Exception) -> Response:
    """A bug outside of the workers; the server raises it again once this is sent."""
    reply = failure(error, f"{request.method} {request.url.path:.80}")
    LOG.error(reply.log)
    return answered(reply, 0.0)


class Page(StaticFiles):
    """The files of the page, which a browser asks for again each time: they change with the version."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        return response


def create_app(host: str = "127.0.0.1", time_limit: float = SERVER.time, workers: int | None = None) -> Starlette:
    """The whole explorer as an ASGI application."""
    mimetypes.add_type("text/javascript", ".js")  # some systems call it text/plain, which nosniff refuses

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        desk.pool.start()
        yield
        await desk.pool.close()

    desk = Desk(Pool(workers, time_limit))
    routes = [Route(f"/{name}", endpoint(name, desk), methods=["POST"]) for name in (*BODIES, "upload")]
    routes += [Route("/describe", fixed(describe())), Route("/schema", fixed(schemas()))]
    page = Page(directory=STATIC, html=True, check_dir=False)
    app = Starlette(
        routes=[Mount("/api", routes=routes), Mount("/", page)],
        middleware=[Middleware(Guard, host=host)],
        exception_handlers={HTTPException: on_http_error, Exception: on_bug},
        lifespan=lifespan,
    )
    app.state.desk = desk
    return app


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections already; `OSError` if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=256)
    # Connections inherit it. asyncio sets it only where a socket names its protocol, and without it the body of an answer
    # waits 40 ms for the other side to acknowledge the head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(listening: socket.socket, host: str, time_limit: float = SERVER.time) -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    quiet = {"log_level": "warning", "access_log": False, "server_header": False}
    config = uvicorn.Config(create_app(host, time_limit), **quiet, timeout_keep_alive=30, timeout_graceful_shutdown=1)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])


def address(host: str, port: int) -> str:
    """Where a browser on this machine finds the server.

    >>> address("0.0.0.0", 8777), address("::1", 80)
    ('http://127.0.0.1:8777/', 'http://[::1]:80/')
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"
