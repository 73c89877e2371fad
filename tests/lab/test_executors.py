"""Processes that share the work end with the one that started them, and leave no semaphore behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from contextlib import closing
from pathlib import Path
from pickle import PicklingError

import pytest
from waiting import eventually

import nqm
from nqm.lab.executors import Workers
from nqm.types import Wrong

PATIENCE = 600.0  # Seconds for processes to end; they need a moment.
SEMAPHORES = Path("/dev/shm")
SCRIPT = """
import signal
from contextlib import closing
from nqm.lab.executors import Workers
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell ignores it for what runs in the background.
    with closing(Workers(2)) as pool:
        # One write for each line, so that the lines of two processes do not mix.
        work = "import os, time; os.write(1, (str(os.getpid()) + chr(10)).encode()); time.sleep(3600)"
        tasks = [pool.submit(exec, work) for _ in range(2)]
        tasks[0].result()
"""


def refuse() -> None:
    raise Wrong("this is refused", argument="x")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or ") Z " not in state.read_text()  # nobody may be there to collect a killed process


def test_answers_and_exceptions_travel() -> None:
    with closing(Workers(2)) as pool:
        assert [pool.submit(divmod, 7, n).result() for n in (2, 3)] == [(3, 1), (2, 1)]
        with pytest.raises(Wrong, match="this is refused") as caught:
            pool.submit(refuse).result()
        assert caught.value.argument == "x"
        with pytest.raises(ZeroDivisionError) as failed:
            pool.submit(divmod, 1, 0).result()
        assert "divmod" not in str(failed.value)
        assert any("Traceback" in note for note in failed.value.__notes__)
        assert pool.submit(divmod, 9, 4).result() == (2, 1)


def test_a_worker_that_is_killed_breaks_what_it_did_and_is_replaced() -> None:
    with closing(Workers(2)) as pool:
        assert pool.processes == []  # A process is started when it is needed.
        under_way = [pool.submit(time.sleep, 3600) for _ in range(2)]
        eventually(lambda: len(pool.processes) == 2, "processes to start")
        for process in pool.processes:
            os.kill(process.pid, signal.SIGKILL)
        for future in under_way:
            with pytest.raises(BrokenExecutor):
                future.result(PATIENCE)
        assert [pool.submit(divmod, 7, n).result(PATIENCE) for n in (2, 3)] == [(3, 1), (2, 1)]
    assert not any(process.is_alive() for process in pool.processes)


def test_what_cannot_be_sent_is_refused_and_takes_no_worker_along() -> None:
    with closing(Workers(1)) as pool:
        with pytest.raises((AttributeError, PicklingError)):
            pool.submit(lambda: 1).result(PATIENCE)
        assert pool.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)


@pytest.mark.slow
@pytest.mark.skipif(not SEMAPHORES.is_dir(), reason="named semaphores are not files here")
@pytest.mark.parametrize(
    ("name", "group"), [("SIGINT", True), ("SIGTERM", True), ("SIGTERM", False), ("SIGKILL", False)]
)
def test_nothing_is_left_of_a_run_that_is_ended(tmp_path: Path, name: str, group: bool) -> None:
    """Ctrl-C reaches every process of a terminal; `kill` one of them."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(nqm.__file__).parents[1])},
    )  # fmt: skip
    assert run.stdout is not None
    pids = [int(run.stdout.readline()) for _ in range(2)]  # each worker is at its work
    assert not [path.name for path in SEMAPHORES.glob("sem.*") if opened(path, run.pid, *pids)]
    (os.killpg if group else os.kill)(run.pid, getattr(signal, name))
    # Standard error is closed by the last process that has it, the tracker of semaphores among them.
    _, told = run.communicate(timeout=PATIENCE)
    assert run.returncode != 0
    deadline = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
    assert "semaphore" not in told
    assert told.count("Traceback") <= (name == "SIGINT")  # that of the script itself, and of no worker


def opened(path: Path, *pids: int) -> bool:
    """Whether a process has mapped a semaphore."""
    return any(path.name in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
