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
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from ..types import Wrong

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
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


class Workers:
    """An executor of processes on this machine, each at the end of a pipe; a thread waits for the answer of each.

    `concurrent.futures.ProcessPoolExecutor` needs named semaphores, which stay behind when its process is killed, and one
    worker that dies breaks the whole pool. Here a call whose worker dies ends with `BrokenExecutor`, a new worker takes the
    place of the dead one, and all workers end when the process that started them ends.
    """

    def __init__(self, count: int) -> None:
        self.threads, self.free, self.starting = ThreadPoolExecutor(count), SimpleQueue[Connection](), threading.Lock()
        self.processes, self.closed = list[BaseProcess](), False
        for _ in range(count):
            self.free.put(self._start())

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        return self.threads.submit(self._ask, function, args)

    def _start(self) -> Connection:
        """Start a process and return our end of its pipe."""
        context = multiprocessing.get_context("spawn")  # A fork of a process with threads may hang.
        ours, theirs = context.Pipe()
        with self.starting, _inherited():
            self.processes.append(context.Process(target=_serve, args=(theirs,), daemon=True))
            self.processes[-1].start()
        theirs.close()
        return ours

    def _ask(self, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        """What the function returns or raises in a free process."""
        pipe = self.free.get()
        try:
            pipe.send((function, arguments))
            done, value = pipe.recv()
        except (EOFError, OSError):
            if not self.closed:
                pipe = self._start()
            raise BrokenExecutor("a worker ended before it had an answer") from None
        finally:
            self.free.put(pipe)
        if not done:
            raise value
        return value

    def close(self) -> None:
        """End all processes at once; what they had not finished is lost."""
        self.closed = True
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
        self.threads.shutdown()
        for process in self.processes:  # A process may have been started in the meantime.
            process.kill()
            process.join()


class Crew(Generic[E]):
    """An executor, how many rounds it is handed at a time, and how it is started, renewed and ended."""

    def __init__(
        self, start: Callable[[], E], slots: int | None, stop: Callable[[E], None] | None = None, *, size: int = 1
    ) -> None:
        self.start, self.slots, self.stop, self.size = start, slots, stop, size
        self.executor, self.renewable = start(), stop is not None

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        return self.executor.submit(function, *args)

    def renew(self) -> None:
        """Start again with new workers."""
        self.close()
        self.executor = self.start()

    def close(self) -> None:
        """End the workers, whatever they are doing; an executor of the user's own is left as it is."""
        if self.stop:
            self.stop(self.executor)


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
        try:
            self.client = Client(address, timeout=CONNECT_SECONDS, **({} if address else own))
        except (OSError, ValueError) as error:
            raise Wrong(f"no Dask scheduler answers at {address}: {error}", argument="on") from None
        self.executor = self.client.get_executor(pure=False)

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        return self.executor.submit(function, *args)

    def close(self) -> None:
        self.executor.shutdown(wait=False)
        self.client.close()


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
            pipe.send((True, function(*arguments)))
        except Exception as error:
            error.add_note(traceback.format_exc())  # A traceback cannot be sent through a pipe.
            pipe.send((False, error))
