"""The explorer for real: ``nqm serve`` in a process of its own, on a free port."""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from waiting import LIMIT

import nqm

ROOT = Path(nqm.__file__).parents[1]


@dataclass(frozen=True)
class Live:
    """A server that runs."""

    address: str
    process: subprocess.Popen[str]

    def processes(self) -> list[int]:
        """Process ids of the server and its workers."""
        return [self.process.pid, *_descendants(self.process.pid)]

    def resident(self) -> int:
        """Bytes in memory that they do not share with others."""
        return sum(_private(pid) for pid in self.processes())


@contextmanager
def serving(*options: str, path: str = "", log: Path | None = None) -> Iterator[Live]:
    """``nqm serve`` with these options; ended by Ctrl-C, as a user would.

    ``path`` is a folder with modules that every process finds first, and ``log`` the file for standard error.
    """
    found = os.pathsep.join(filter(None, [path, str(ROOT)]))
    environment = {**os.environ, "PYTHONPATH": found, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "nqm", "serve", "--port", "0", "--no-open", *options]
    stderr = log.open("w") if log else subprocess.PIPE
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    try:
        assert process.stdout
        said = re.search(r"http://\S+/", process.stdout.readline())
        assert said, process.stderr and process.stderr.read()
        yield Live(said.group(), process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@cache
def hurried() -> Live:
    """One server for all tests of a process, with little patience."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(serving("--time-limit", "1"))


def _descendants(pid: int) -> list[int]:
    """Children, and theirs; a process that ends meanwhile has none."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def _private(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
