"""The server: its routes, the limits of a request, and the answers that it remembers. The workers of `pool` compute."""

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
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..logs import read_logs
from .bodies import BODIES, schemas
from .describe import describe
from .guard import Guard, refusal
from .limits import REQUEST, SERVER, Recent
from .pool import LOG, Heard, Job, Pool, Reply, failure

STATIC = Path(__file__).with_name("static")
COMPRESSED_BYTES = 1_000  # Answers and files of at least this size are compressed for clients that accept it.
COMPRESSION = 5  # zlib's level: on a curve of 200 steps it is half as long as level 1 leaves it, in a millisecond.
EVENTS = "text/event-stream"  # A client that accepts this is sent an answer in parts.
RETRY_SECONDS = "2"  # A client that got no answer for want of time or of a free worker may ask again after this long.


class Desk:
    """Answers requests: from memory if it can, and otherwise by the pool. Equal requests at one time share a worker."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.answers: Recent[bytes, Reply] = Recent(math.inf, lambda reply: len(reply.content))
        self._asked: dict[bytes, tuple[asyncio.Task[Reply], list[None]]] = {}

    async def reply(self, job: Job, heard: Heard = bytes) -> Reply:
        """The answer to a request. The computation is cancelled when every client that waits for it has gone.

        ``heard`` is called with each part of the answer, unless another client has asked for the same before.
        """
        if job.endpoint == "upload":  # The pool itself keeps uploaded files.
            return await self.pool.run(job)
        key = hashlib.sha256(job.endpoint.encode() + b"\n" + job.body).digest()
        if known := self.answers.get(key):
            return known
        task, waiters = self._asked.get(key) or (
            asyncio.get_running_loop().create_task(self.pool.run(job, heard)),
            [],
        )
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
        if reply.status == 200:
            self.answers.keep(key, reply)
        return reply


async def read_body(request: Request, most: int) -> bytes | None:
    """The body, or None if it is longer than ``most``.

    The rest of a long body is read and dropped, up to a limit: a client that is cut off while it sends sees no answer.
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
    """Return once the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def endpoint(name: str, desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    raw = name == "upload"
    kind, most = ("application/octet-stream", REQUEST.upload_bytes) if raw else ("application/json", REQUEST.body_bytes)

    async def handle(request: Request) -> Response:
        if request.headers.get("content-type", "").split(";")[0].strip().lower() != kind:
            return refusal(415, f"the body must be {kind}")
        try:
            async with asyncio.timeout(SERVER.read):
                body = await read_body(request, most)
        except TimeoutError:
            return refusal(408, f"the body did not arrive within {SERVER.read:g} s", connection="close")
        except (ClientDisconnect, ValueError):
            return refusal(400, "the body did not arrive")
        if body is None:
            return refusal(413, f"the body may have at most {most:,} bytes", connection="close")
        job = Job(name, body, request.query_params.get("name", "")[:200] if raw else "")
        if EVENTS in request.headers.get("accept", ""):
            return StreamingResponse(parts(desk, job), media_type=EVENTS)
        asked = asyncio.ensure_future(desk.reply(job))
        gone = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
            return answered(asked.result()) if asked.done() else Response(status_code=499)  # Nobody reads the latter.
        finally:
            gone.cancel()
            asked.cancel()

    return handle


async def parts(desk: Desk, job: Job) -> AsyncIterator[bytes]:
    """An answer as events: its parts as they are found, and at the end its status and the whole."""
    told: asyncio.Queue[bytes | None] = asyncio.Queue()
    asked = asyncio.ensure_future(desk.reply(job, told.put_nowait))
    asked.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (part := await told.get()) is not None:
            yield b"data: " + part + b"\n\n"
        reply = asked.result()
        yield b'data: {"status":%d,"answer":%s}\n\n' % (reply.status, reply.content)
    finally:
        asked.cancel()


def answered(reply: Reply) -> Response:
    headers = {"retry-after": RETRY_SECONDS} if reply.status == 503 else None
    return Response(reply.content, reply.status, headers, "application/json")


def fixed(data: object) -> Callable[[Request], Response]:
    """A handler that gives the same answer to everybody."""
    content = json.dumps(data)
    return lambda request: Response(content, media_type="application/json")


def sample_logs(request: Request) -> Response:
    """The short logs of `nqm forecast fit example` as one file with a column for the run."""
    rows = [
        f"{log.name},{step},{lr!r},{loss!r}"
        for log in read_logs("example")
        for step, lr, loss in zip(log.step.tolist(), log.lr.tolist(), log.loss.tolist(), strict=True)
    ]
    return Response("\n".join(["run,step,lr,loss", *rows, ""]), media_type="text/csv")


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, f"{error.detail.lower()}: {request.method} {request.url.path:.80}")


async def on_bug(request: Request, error: Exception) -> Response:
    """The response to a bug outside the workers. Starlette raises the exception again once the response is sent."""
    reply = failure(error, f"{request.method} {request.url.path:.80}")
    LOG.error(reply.log)
    return answered(reply)


def create_app(host: str = "127.0.0.1", time_limit: float = SERVER.time, workers: int | None = None) -> Starlette:
    """The explorer as an ASGI application."""
    # Some systems have .js as text/plain, and browsers do not run that under the header nosniff.
    mimetypes.add_type("text/javascript", ".js")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        desk.pool.start()
        yield
        await desk.pool.close()

    desk = Desk(Pool(workers, time_limit))
    routes = [Route(f"/{name}", endpoint(name, desk), methods=["POST"]) for name in (*BODIES, "upload")]
    routes += [Route("/describe", fixed(describe())), Route("/schema", fixed(schemas()))]
    page = StaticFiles(directory=STATIC, html=True, check_dir=False)
    app = Starlette(
        routes=[Mount("/api", routes=routes), Route("/examples/runs.csv", sample_logs), Mount("/", page)],
        middleware=[
            Middleware(Guard, host=host),
            Middleware(GZipMiddleware, minimum_size=COMPRESSED_BYTES, compresslevel=COMPRESSION),
        ],
        exception_handlers={HTTPException: on_http_error, Exception: on_bug},
        lifespan=lifespan,
    )
    app.state.desk = desk
    return app


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections from now on; `OSError` if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=256)
    # Connections inherit this option. Without it the body of an answer waits 40 ms until the client acknowledges the
    # head, and asyncio sets it only on sockets that name their protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(listening: socket.socket, host: str, time_limit: float = SERVER.time) -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    from .connections import PatientProtocol

    quiet = {"log_level": "warning", "access_log": False, "server_header": False}
    config = uvicorn.Config(
        create_app(host, time_limit), **quiet, http=PatientProtocol, timeout_keep_alive=30, timeout_graceful_shutdown=1
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])


def address(host: str, port: int) -> str:
    """The URL of the server for a browser on this machine.

    >>> address("0.0.0.0", 8777), address("::1", 80)
    ('http://127.0.0.1:8777/', 'http://[::1]:80/')
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"
