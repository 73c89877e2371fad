"""Worker processes that compute answers. Each can be ended in the middle of a computation.

Long requests may use all workers but one, so that a curve under a moving slider never waits behind a sweep. When a
request exceeds its time limit, or its client has gone, the process that computes it is killed. A fork server that has
everything loaded makes the next process in milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import secrets
import signal
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext

from .fields import told
from .limits import REQUEST, SERVER, Recent

WARM = "nqm.web.warm"
QUICK_ENDPOINTS = frozenset({"curve", "steps", "spectrum", "upload", "predict", "preview", "outlook"})
"""Endpoints that may use every worker; requests to the others leave one free."""
ATTEMPTS = 5  # If a worker does not start, it is started this many times more.
GRACE = 0.3  # Seconds that an abandoned computation may still take: most curves end sooner than a new worker starts.
STARTING = 300.0  # Seconds for a worker to start; the first worker of an installation compiles the inner loops.
ASKED_BYTES = 2_000  # The log quotes this many bytes of a request that met a bug.
Context = ForkServerContext | SpawnContext
Heard = Callable[[bytes], object]
"""Takes a part of an answer, as JSON."""
Uploads = Recent[str, tuple[bytes, str]]
"""Content and name of the files that were uploaded, by id."""
KILLED = "the process that computed this was ended twice, perhaps for want of memory; ask for less, or try again"
LOG = logging.getLogger("nqm.web")


@dataclass(frozen=True)
class Job:
    """A request to a worker; ``name`` is the name of an uploaded file."""

    endpoint: str
    body: bytes
    name: str = ""


@dataclass(frozen=True)
class Reply:
    """An answer as it goes to the client, and a text for the server's log, which is empty unless there was a bug."""

    status: int
    content: bytes
    log: str = ""


class Worker:
    """A process and the pipe to it. Only one thread may use it at a time."""

    def __init__(self, context: Context) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True, name="nqm-worker")
        self.process.start()
        theirs.close()

    def ready(self) -> bool:
        """Wait until the process has started, and return whether it has."""
        try:
            return self.pipe.poll(STARTING) and self.pipe.recv() == "ready"
        except (EOFError, OSError):
            return False

    def ask(self, job: Job, uploads: Uploads, heard: Heard) -> Reply | None:
        """The answer to a request; None if the process ended first. ``heard`` is called with each part of it before."""
        try:
            self.pipe.send(job)
            while isinstance(reply := self.pipe.recv(), tuple):
                match reply:
                    case "need", key:
                        self.pipe.send(uploads.get(key))
                    case "keep", key, name:
                        uploads.keep(key, (job.body, name))
                    case "part", content:
                        heard(content)
            if reply.log:
                LOG.error(reply.log)
            return reply
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Pool:
    """Workers for requests, for use on one event loop."""

    def __init__(self, size: int | None = None, time_limit: float = SERVER.time, waiting: int = SERVER.waiting) -> None:
        self.size = size or (os.cpu_count() or 1) + 1
        self.time_limit, self.most_waiting = time_limit, waiting
        self.uploads: Uploads = Recent(REQUEST.uploads, lambda kept: len(kept[0]))
        self.waiting = 0
        self._context = _context()
        self._threads = ThreadPoolExecutor(self.size + 1, "nqm-pool")
        self._free: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()  # The last one used has warm caches.
        self._long = asyncio.Semaphore(max(1, self.size - 1))
        self._workers: set[Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._closed = False

    def start(self) -> None:
        for _ in range(self.size):
            self._task(self._bring_up())

    async def close(self) -> None:
        self._closed = True
        for worker in list(self._workers):
            worker.process.kill()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in list(self._workers):
            worker.end()
        self._threads.shutdown(wait=True, cancel_futures=True)

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid]

    async def run(self, job: Job, heard: Heard = bytes) -> Reply:
        """The answer to a request; a sentence with status 503 if it took too long, or if too many requests wait.

        ``heard`` is called with each part of the answer, as soon as it is there.
        """
        if self.waiting >= self.most_waiting:
            return Reply(503, told(f"{self.most_waiting} requests are waiting already; try again"))
        self.waiting += 1
        async with contextlib.AsyncExitStack() as stack:
            try:
                if job.endpoint not in QUICK_ENDPOINTS:
                    await stack.enter_async_context(self._long)
                worker = await self._free.get()
            finally:
                self.waiting -= 1
            reply = await self._ask(worker, job, heard)
            if (
                reply is None
            ):  # Its process was killed, by the system or by somebody; the request itself may be harmless.
                reply = await self._ask(await self._free.get(), job, heard)
            return reply or Reply(503, told(KILLED))

    async def _ask(self, worker: Worker, job: Job, heard: Heard) -> Reply | None:
        """The answer, or the sentence that it took too long; None if the process ended before either."""
        loop = asyncio.get_running_loop()
        began = last = loop.time()

        def note(content: bytes) -> None:
            nonlocal last
            last = loop.time()
            heard(content)

        asked = loop.run_in_executor(
            self._threads, worker.ask, job, self.uploads, lambda content: loop.call_soon_threadsafe(note, content)
        )
        try:
            while not asked.done() and (left := self._left(loop.time(), began, last)) > 0:
                await asyncio.wait({asked}, timeout=left)
        except asyncio.CancelledError:  # The client has gone.
            self._task(self._abandon(worker, asked))
            raise
        ended = asked.done()
        late = (
            f"this took more than {self.time_limit:g} s and was stopped; ask for less, or run the command in a terminal"
        )
        return self._release(worker, asked) or (None if ended else Reply(503, told(late)))

    def _left(self, now: float, began: float, last: float) -> float:
        """Seconds until a request has taken too long since its last part, or in all."""
        return self.time_limit - max(now - last, (now - began) / SERVER.parts)

    async def _abandon(self, worker: Worker, asked: asyncio.Future[Reply | None]) -> None:
        await asyncio.wait({asked}, timeout=GRACE)
        self._release(worker, asked)

    def _release(self, worker: Worker, asked: asyncio.Future[Reply | None]) -> Reply | None:
        """The answer, if there is one; the worker is free again then, and is replaced otherwise."""
        reply = asked.result() if asked.done() else None
        if reply is None:
            self._replace(worker)
        else:
            self._free.put_nowait(worker)
        return reply

    def _replace(self, worker: Worker) -> None:
        worker.process.kill()  # This also closes the pipe, so the thread that waits for an answer returns.
        self._workers.discard(worker)
        self._task(asyncio.to_thread(worker.end))
        if not self._closed:
            self._task(self._bring_up())

    async def _bring_up(self) -> None:
        loop, worker = asyncio.get_running_loop(), None
        with contextlib.suppress(OSError, EOFError, RuntimeError):  # No process can be made, or Python is exiting.
            worker = await loop.run_in_executor(self._threads, Worker, self._context)
        if worker is not None:
            self._workers.add(worker)
            if await loop.run_in_executor(self._threads, worker.ready):
                self._free.put_nowait(worker)
                self._failures = 0
                return
            self._workers.discard(worker)
            worker.end()
        self._failures += 1
        if not self._closed and self._failures <= ATTEMPTS:
            LOG.error(f"nqm serve: a worker did not start, attempt {self._failures} of {ATTEMPTS}")
            await asyncio.sleep(self._failures)
            self._task(self._bring_up())

    def _task(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _context() -> Context:
    """How workers are started: forked from a server that has everything loaded, or spawned where the system cannot fork."""
    # Workers inherit this. They solve tiny systems, for which more threads only cost time.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([WARM])
    return context


def serve(pipe: Connection) -> None:
    """Answer requests until the pipe closes; this is what a worker process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which closes the pipe.
    import numpy as np

    from . import warm  # noqa: F401 - a worker from the fork server has it already
    from .api import respond
    from .files import SHELF, identity
    from .parts import PARTS

    _bound_memory()
    np.seterr(all="ignore")  # The outcome of a run says that it overflowed.

    def ask(key: str) -> tuple[bytes, str] | None:
        pipe.send(("need", key))
        return pipe.recv()

    SHELF.ask = ask
    PARTS.tell = lambda content: pipe.send(("part", content))
    with contextlib.suppress(EOFError, OSError, BrokenPipeError):
        pipe.send("ready")
        while True:
            job = pipe.recv()
            try:
                reply = Reply(*respond(job.endpoint, job.body, job.name))
            except Exception as error:
                reply = failure(error, f"/api/{job.endpoint}, asked {job.body[:ASKED_BYTES]!r}")
            if job.endpoint == "upload" and reply.status == 200:
                pipe.send(("keep", identity(job.body), job.name))
            pipe.send(reply)


def failure(error: Exception, where: str) -> Reply:
    """The reply to a request that met a bug. The client is told an id, and the log has the traceback under the same id."""
    bug = secrets.token_hex(4)
    sentence = f"this is a bug in nqm, id {bug}; nqm serve printed where it happened, under this id"
    lines = "".join(traceback.format_exception(error))
    return Reply(500, told(sentence, id=bug), f"nqm serve: a bug in nqm, id {bug}, in {where}\n{lines}")


def _bound_memory() -> None:
    """Limit how much memory the process may add, on systems that offer such a limit."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + SERVER.memory_bytes, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        pass
