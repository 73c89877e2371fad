"""Processes that share a study's work, each at the end of a pipe.

`concurrent.futures.ProcessPoolExecutor` needs named semaphores, which stay behind when its process is killed, and its workers
then wait for ever. Pipes need none, and a worker ends when the process that started it does.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TypeVar

from ..lab.executors import THREAD_VARIABLES, Executor, begin_worker

T = TypeVar("T")


class Workers:
    """An executor of processes: a thread waits for the answer of each."""

    def __init__(self, count: int) -> None:
        context = get_context("spawn")  # A fork of a process with threads may hang.
        self.threads, self.free, self.processes = ThreadPoolExecutor(count), SimpleQueue[Connection](), []
        with _handed_on():
            for _ in range(count):
                ours, theirs = context.Pipe()
                self.processes.append(context.Process(target=_serve, args=(theirs,), daemon=True))
                self.processes[-1].start()
                theirs.close()
                self.free.put(ours)

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        return self.threads.submit(self._ask, function, args)

    def _ask(self, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        """What the function returns or raises in a free process."""
        pipe = self.free.get()
        try:
            pipe.send((function, arguments))
            done, value = pipe.recv()
        except (EOFError, OSError):
            raise BrokenExecutor("a worker ended before it had an answer") from None
        finally:
            self.free.put(pipe)
        if not done:
            raise value
        return value

    def close(self) -> None:
        """End all processes at once; what they had not finished is lost."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
            process.join()
        self.threads.shutdown()


@contextmanager
def workers(count: int) -> Iterator[Executor | None]:
    """A pool of processes that share a study's work; None for one, which is this process.

    A script that asks for more than one needs the usual ``if __name__ == "__main__":``.
    """
    if count == 1:
        yield None
        return
    pool = Workers(count)
    try:
        yield pool
    finally:
        pool.close()


@contextmanager
def _handed_on() -> Iterator[None]:
    """What processes started meanwhile inherit: one thread for linear algebra, and Ctrl-C left to this process."""
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
    """Answer until the other end is closed."""
    begin_worker()
    while True:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send((True, function(*arguments)))
        except Exception as error:
            error.add_note(traceback.format_exc())  # A traceback does not travel.
            pipe.send((False, error))
