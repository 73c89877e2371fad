"""Where trials run: in this process, in processes of this machine, or on a Dask cluster.

A *crew* is an executor, which has ``submit(function, *arguments)`` and returns a future, as in `concurrent.futures`. The crew
adds what the lab needs besides: how many rounds to hand over at a time, and how to start again when workers were lost.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..nets.training.reports import Listener, heard_by
from ..types import Wrong

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
REPORT_SECONDS = 0.5  # A worker says this often how far its trials have come.
CONNECT_SECONDS = 10  # The lab waits this long for an answer of a Dask scheduler.
T = TypeVar("T")
E = TypeVar("E", bound="Executor")


class Executor(Protocol):
    """What the lab needs of an executor; those of `concurrent.futures` have it."""

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]: ...


class Here:
    """An executor that calls the function at once, in this process."""

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class Heard:
    """How far a call has come, in steps of its training."""

    step: int = 0
    most: int = 0


class Workers:
    """An executor of processes on this machine, each at the end of a pipe; a thread waits for the answer of each.

    `concurrent.futures.ProcessPoolExecutor` needs named semaphores, which stay behind when its process is killed, and one
    worker that dies breaks the whole pool. Here a call whose worker dies ends with `BrokenExecutor`, a new worker takes the
    place of the dead one, and all workers end when the process that started them ends.
    """

    def __init__(self, count: int) -> None:
        self.threads, self.starting = ThreadPoolExecutor(count), threading.Lock()
        self.free, self.processes, self.closed = SimpleQueue[Connection](), list[BaseProcess](), False
        self.heard: WeakKeyDictionary[Future[Any], Heard] = WeakKeyDictionary()  # How far each call has come.

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        """Call a function in a process, which is started if none is free."""
        heard = Heard()
        future = self.threads.submit(self._ask, function, args, heard)
        self.heard[future] = heard
        return future

    def _start(self) -> Connection:
        """Start a process and return our end of its pipe."""
        context = multiprocessing.get_context("spawn")  # A fork of a process with threads may hang.
        ours, theirs = context.Pipe()
        with self.starting, _inherited():
            if self.closed:
                raise BrokenExecutor("the workers have been ended")
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self.processes.append(process)
        theirs.close()
        return ours

    def _ask(self, function: Callable[..., T], arguments: tuple[object, ...], heard: Heard) -> T:
        """What the function returns or raises in a free process; a process that dies is left out, and replaced when needed."""
        try:
            pipe = self.free.get_nowait()
        except Empty:
            pipe = self._start()
        try:
            pipe.send((function, arguments))
            while (answer := pipe.recv())[0] == "at":
                heard.step, heard.most = answer[1]
        except (EOFError, OSError):
            raise BrokenExecutor("a worker ended before it had an answer") from None
        except Exception:  # What cannot be sent has not reached the process.
            self.free.put(pipe)
            raise
        self.free.put(pipe)
        if answer[0] == "failed":
            raise answer[1]
        return answer[1]

    def close(self) -> None:
        """End all processes at once; what they had not finished is lost."""
        with self.starting:
            self.closed = True
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
        self.threads.shutdown()
        for process in self.processes:
            process.join()


class Crew(Generic[E]):
    """An executor, how many rounds it is handed at a time, and how it is started, renewed and ended."""

    def __init__(
        self, start: Callable[[], E], slots: int | None, stop: Callable[[E], None] | None = None, *, size: int = 1
    ) -> None:
        self.start, self.slots, self.stop, self.size = start, slots, stop, size
        self.renewable, self.started = stop is not None, list[E]()

    @property
    def executor(self) -> E:
        """The executor, which is started when it is first needed."""
        if not self.started:
            self.started.append(self.start())
        return self.started[0]

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        return self.executor.submit(function, *args)

    def heard(self, future: Future[Any]) -> Heard | None:
        """How far a call has come; None if the executor does not say."""
        return getattr(self.executor, "heard", {}).get(future)

    @property
    def answers(self) -> bool:
        """Whether what runs the workers can be reached. What was handed to it shortly before it was lost never ends."""
        return not self.started or getattr(self.started[0], "answers", True)

    def renew(self) -> None:
        """Start again with new workers."""
        self.close()
        self.started = [self.start()]

    def close(self) -> None:
        """End the workers, whatever they are doing; an executor of the user's own is left as it is."""
        if self.stop and self.started:
            self.stop(self.started.pop())


def here() -> Crew[Here]:
    """A crew that trains in this process."""
    return Crew(Here, 1)


def given(executor: E) -> Crew[E]:
    """A crew of the user's own executor."""
    if not callable(getattr(executor, "submit", None)):
        raise Wrong(f"executor must have submit(), as those of concurrent.futures, got {executor!r:.80}", "executor")
    count: int = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    return Crew(lambda: executor, count + 1, size=count)


def local(workers: int | None = None) -> Crew[Workers]:
    """A crew of processes on this machine, each with one thread; by default there are as many as cores."""
    size = workers or os.cpu_count() or 1
    return Crew(lambda: Workers(size), size + 1, Workers.close, size=size)


class Dask:
    """A client of a Dask scheduler, which is its own if no address is given."""

    def __init__(self, address: str | None, size: int) -> None:
        from distributed import Client

        own = {"n_workers": size, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        own |= {"silence_logs": logging.ERROR}
        # The lab itself says that a scheduler was lost. Dask and Tornado would log tracebacks of the connection that broke.
        for name in ("distributed", "distributed.client", "tornado", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            self.client = Client(address, timeout=CONNECT_SECONDS, **({} if address else own))
        except (OSError, ValueError) as error:
            raise Wrong(f"no Dask scheduler answers at {address}: {error}", argument="on") from None
        self.executor = self.client.get_executor(pure=False)
        self.topic = f"nqm-{uuid.uuid4().hex}"  # Workers report under this name, which no other runner has.
        self.heard: WeakKeyDictionary[Future[Any], Heard] = WeakKeyDictionary()  # How far each call has come.
        self.calls: WeakValueDictionary[str, Heard] = WeakValueDictionary()  # The same, by the name of the call.
        self.client.subscribe_topic(self.topic, self._hear)

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        heard, call = Heard(), uuid.uuid4().hex
        self.calls[call] = heard
        future = self.executor.submit(_reporting, self.topic, call, function, args)
        self.heard[future] = heard
        return future

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        """Take in a report of a worker; one that comes after its call has ended is ignored."""
        told = event[1]
        if (heard := self.calls.get(told["call"])) is not None:
            heard.step, heard.most = told["step"], told["most"]

    @property
    def answers(self) -> bool:
        return self.client.status == "running"

    def close(self) -> None:
        self.executor.shutdown(wait=False)
        self.client.close(timeout=CONNECT_SECONDS)


def _reporting(topic: str, call: str, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
    """Call a function in a Dask worker, and let the runner hear how far its trainings have come."""
    from distributed import get_worker

    worker, ours = get_worker(), threading.get_ident()

    def tell(step: int, most: int) -> None:
        if threading.get_ident() == ours:  # A worker with several threads has other calls in them.
            worker.log_event(topic, {"call": call, "step": int(step), "most": int(most)})

    with heard_by(_seldom(tell)):
        return function(*arguments)


def dask(address: str | None = None, workers: int | None = None) -> Crew[Dask]:
    """A crew on a Dask cluster: that of a scheduler, or a new one of processes on this machine with one thread each."""
    if not find_spec("distributed"):
        raise Wrong("a Dask cluster needs the extra cluster: pip install 'nqm[cluster]'", argument="on")
    size = workers or os.cpu_count() or 1
    crew = Crew(lambda: Dask(address, size), None, Dask.close, size=size)
    if address:
        threads: Any = crew.executor.client.nthreads()  # Its type hints describe the asynchronous client.
        crew.size = max(1, sum(threads.values()))
    return crew


def crew(on: str, workers: int | None = None) -> Crew[Any]:
    """The crew that the command line calls ``local``, ``here``, ``dask``, or by the address of a Dask scheduler."""
    if on in ("local", "dask"):
        return local(workers) if on == "local" else dask(workers=workers)
    if on == "here" or "://" in on:
        if workers is None:
            return here() if on == "here" else dask(on)
        why = "this process is the only one" if on == "here" else "a scheduler has the workers it has"
        sentence = f"workers = {workers} is for --on local and --on dask; with --on {on}, {why}: omit it"
        raise Wrong(sentence, argument="workers")
    raise Wrong(f"on must be local, here, dask, or an address such as tcp://host:8786, got {on!r}", argument="on")


def lost(error: BaseException) -> bool:
    """Whether an error says that workers were lost, and nothing about their work; Dask's own errors are known by name."""
    names = ("KilledWorker", "CommClosedError", "FutureCancelledError", "CancelledError")
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ in names


def spares_others(error: BaseException) -> bool:
    """Whether one worker died and was replaced, so that all others go on; any other loss means starting all workers again."""
    return type(error) is BrokenExecutor or type(error).__name__ == "KilledWorker"


def begin_worker() -> None:
    """Set up a new worker: it has one thread, leaves Ctrl-C to the runner, and ends when the runner ends."""
    for name in THREAD_VARIABLES:
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """End this worker when its runner ends: a runner that is killed cannot end its workers, which would wait for ever."""
    parent.join()
    os._exit(1)


@contextmanager
def _inherited() -> Iterator[None]:
    """Let processes that are started meanwhile inherit one thread for linear algebra, and leave Ctrl-C to this process."""
    ours = {name: "1" for name in THREAD_VARIABLES if name not in os.environ}
    os.environ.update(ours)
    mask = getattr(signal, "pthread_sigmask", None)  # Windows has none.
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    try:
        yield
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)
        for name in ours:
            os.environ.pop(name, None)


def _serve(pipe: Connection) -> None:
    """Answer calls until the other end of the pipe is closed."""
    begin_worker()
    while True:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            with heard_by(_seldom(lambda step, most: pipe.send(("at", (step, most))))):
                found = function(*arguments)
            pipe.send(("done", found))
        except Exception as error:
            error.add_note(traceback.format_exc())  # A traceback cannot be sent through a pipe.
            pipe.send(("failed", error))


def _seldom(listener: Listener) -> Listener:
    """A listener that passes on what it hears every `REPORT_SECONDS` at most."""
    last = 0.0

    def heard(step: int, most: int) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_SECONDS:
            last = time.monotonic()
            listener(step, most)

    return heard
