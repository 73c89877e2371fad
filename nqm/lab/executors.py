"""Where trials run: in this process, in processes of this machine, or on a Dask cluster.

A *crew* is anything with ``submit(function, *arguments)`` that returns a future, as in `concurrent.futures`, together with
what the lab needs besides: how many rounds to hand over at a time, and how to start anew when workers were lost.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Protocol, TypeVar

from ..types import Wrong

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
CONNECT_SECONDS = 10  # The lab waits so long for an answer of a Dask scheduler.
T = TypeVar("T")
E = TypeVar("E", bound="Executor")


class Executor(Protocol):
    """What the lab needs of an executor: those of `concurrent.futures` have it."""

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]: ...


class Here:
    """Runs what it is given at once, in this process."""

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class Crew(Generic[E]):
    """An executor, how many rounds it is handed at a time, and how it is begun, renewed and ended."""

    def __init__(
        self, start: Callable[[], E], slots: int | None, stop: Callable[[E], None] | None = None, *, size: int = 1
    ) -> None:
        self.start, self.slots, self.stop, self.size = start, slots, stop, size
        self.executor, self.renewable = start(), stop is not None

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        return self.executor.submit(function, *args)

    def renew(self) -> None:
        """Begin again with new workers."""
        self.close()
        self.executor = self.start()

    def close(self) -> None:
        """End the workers, whatever they are doing; an executor that was given to the lab is left to its owner."""
        if self.stop:
            self.stop(self.executor)


def here() -> Crew[Here]:
    """Everything in this process."""
    return Crew(Here, 1)


def given(executor: E, size: int | None = None) -> Crew[E]:
    """An executor of your own."""
    if not callable(getattr(executor, "submit", None)):
        raise Wrong(f"executor must have submit(), as those of concurrent.futures, got {executor!r:.80}", "executor")
    count: int = size or getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    return Crew(lambda: executor, count + 1, size=count)


def local(workers: int | None = None) -> Crew[ProcessPoolExecutor]:
    """Processes of this machine, each with one thread; as many as the machine has cores unless said otherwise."""
    size = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")  # A fork of a process with threads may hang.
    return Crew(lambda: ProcessPoolExecutor(size, context, initializer=begin_worker), size + 1, _end_pool, size=size)


class Dask:
    """A client of a scheduler, and the cluster if it is ours."""

    def __init__(self, address: str | None, size: int) -> None:
        from distributed import Client, LocalCluster

        make: Any = LocalCluster  # Its type hints know neither a number of workers nor the absence of a dashboard.
        self.cluster: LocalCluster | None = None
        if address is None:
            quiet = {"dashboard_address": None, "silence_logs": logging.ERROR}
            self.cluster = make(n_workers=size, threads_per_worker=1, processes=True, **quiet)
        try:
            self.client = Client(address or self.cluster, timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise Wrong(f"no Dask scheduler answers at {address}: {error}", argument="on") from None
        self.executor = self.client.get_executor(pure=False)

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        return self.executor.submit(function, *args)

    def close(self) -> None:
        self.executor.shutdown(wait=False)
        self.client.close()
        if self.cluster:
            self.cluster.close()


def dask(address: str | None = None, workers: int | None = None) -> Crew[Dask]:
    """A Dask cluster: that of a scheduler, or one of this machine with a number of processes of one thread each."""
    if not find_spec("distributed"):
        raise Wrong("a Dask cluster needs the extra cluster: pip install 'nqm[cluster]'", argument="on")
    size = workers or os.cpu_count() or 1
    crew = Crew(lambda: Dask(address, size), None, Dask.close, size=size)
    if address:
        threads: Any = crew.executor.client.nthreads()  # Its type hints describe the asynchronous client.
        crew.size = max(1, sum(threads.values()))
    return crew


def crew(on: str, workers: int | None = None) -> Crew[Any]:
    """From the command line's words: ``local``, ``here``, ``dask``, or the address of a Dask scheduler."""
    if on in ("local", "dask"):
        return local(workers) if on == "local" else dask(workers=workers)
    if on == "here" or "://" in on:
        if workers is None:
            return here() if on == "here" else dask(on)
        why = "this process is the only one" if on == "here" else "a scheduler has the workers it has"
        sentence = f"workers = {workers} is for --on local and --on dask; with --on {on}, {why}: leave it out"
        raise Wrong(sentence, argument="workers")
    raise Wrong(f"on must be local, here, dask, or an address such as tcp://host:8786, got {on!r}", argument="on")


def lost(error: BaseException) -> bool:
    """Whether an error says that workers went away, and nothing about their work; Dask's own are known by name."""
    names = ("KilledWorker", "CommClosedError", "FutureCancelledError", "CancelledError")
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ in names


def spares_others(error: BaseException) -> bool:
    """Whether only one round was lost: Dask replaces a worker that died, whereas a broken pool is gone as a whole."""
    return type(error).__name__ == "KilledWorker"


def begin_worker() -> None:
    """Set up a new worker: it has one thread, leaves Ctrl-C to the runner, and ends when the runner ends."""
    for name in THREAD_VARIABLES:
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """End this worker with its runner: a runner that is killed cannot end its workers, which would wait for ever."""
    parent.join()
    os._exit(1)


def _end_pool(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
