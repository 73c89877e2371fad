"""Real processes: runners that are killed, runners side by side, and a cluster that loses a worker."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab_studies import TOML, Table, begun, small, stored
from waiting import LIMIT, eventually

from benchmarks.lab_kills import disturbed
from nqm.lab import Results, Snapshot, Store, executors, run


@contextmanager
def command(folder: Path, environment: dict[str, str], *options: str) -> Iterator[subprocess.Popen[str]]:
    """``nqm lab run`` on the small study in a process of its own."""
    (folder / "small.toml").write_text(TOML.format(worker="logged"))
    call = [sys.executable, "-m", "nqm", "lab", "run", "small.toml", *options]
    process = subprocess.Popen(
        call, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(("on", "kills"), [("here", 2), ("local", 1)])
def test_killed_at_any_moment_it_goes_on(
    on: str, kills: int, undisturbed: Table, environment: dict[str, str], log: Path, tmp_path: Path
) -> None:
    options = ("--on", on, *(("--workers", "2") if on == "local" else ()))
    path, chance = tmp_path / "small.db", random.Random(kills)
    for _ in range(kills):
        kept, trace = set(stored(path)), len(begun(log))
        with command(tmp_path, environment, *options) as process:
            moment = trace + chance.randint(1, 20)
            eventually(lambda at=moment: len(begun(log)) >= at, "trials to begin")
            time.sleep(chance.uniform(0, 0.06))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert not kept & set(begun(log)[trace:])  # what was kept is not run again
    kept, trace = set(stored(path)), len(begun(log))
    pids = {int(line.split()[0]) for line in log.read_text().splitlines()}
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "workers to end with their runner")
    with command(tmp_path, environment, *options) as process:
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert not kept & set(begun(log)[trace:])
    assert Results.open(path).table() == undisturbed
    assert max(Counter(stored(path)).values()) == 1


@pytest.mark.slow
def test_two_runners_share_the_work(
    undisturbed: Table, environment: dict[str, str], log: Path, tmp_path: Path
) -> None:  # fmt: skip
    both = environment | {"NQM_TEST_PROCESSES": "2"}  # neither is done before the other has begun
    with command(tmp_path, both, "--on", "here") as one, command(tmp_path, both, "--on", "here") as two:
        for process in (one, two):
            _, err = process.communicate()
            assert process.returncode == 0, err
    assert Results.open(tmp_path / "small.db").table() == undisturbed
    runners = Counter(kept.runner for kept in Results.open(tmp_path / "small.db").trials())
    assert len(runners) == 2, runners
    who = {(key, pid) for pid, key in (line.split() for line in log.read_text().splitlines())}
    assert len(who) == len({key for key, _ in who})  # no trial in the hands of both


@pytest.mark.slow
def test_interrupted_it_says_how_to_go_on(environment: dict[str, str], log: Path, tmp_path: Path) -> None:
    held = environment | {"NQM_TEST_PROCESSES": "3"}  # two workers wait for a third, so that no round ends
    with command(tmp_path, held, "--workers", "2") as process:
        eventually(lambda: len(begun(log)) > 3, "trials to begin")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        assert process.returncode == 130
        assert "nqm lab run small.toml goes on" in err
        assert "Traceback" not in err
    with Store.open(tmp_path / "small.db", write=True) as store:
        assert not store.at_work("lab_workers:logged")
        assert store.claim("another", "lab_workers:logged", ["any"])


# A Dask cluster with real processes, one of which is killed.


@contextmanager
def cluster(folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers on the loopback interface, and their processes, the scheduler first."""
    file, started = folder / "scheduler.json", []
    base = [sys.executable, "-m", "distributed.cli.dask_"]

    def start(what: str, *options: str) -> None:
        call = [
            *base[:2],
            base[2] + what,
            "--scheduler-file",
            str(file),
            "--no-dashboard",
            "--host",
            "127.0.0.1",
            *options,
        ]
        started.append(subprocess.Popen(call, env=environment, cwd=folder, stderr=subprocess.DEVNULL))

    try:
        start("scheduler", "--port", "0")
        eventually(file.exists, "the scheduler")
        for _ in range(2):
            start("worker", "--nthreads", "1", "--no-nanny")
        eventually(lambda: bool(file.read_text().strip()), "the scheduler")
        yield json.loads(file.read_text())["address"], started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


@pytest.mark.slow
def test_a_dask_worker_that_is_killed_loses_nothing(
    undisturbed: Table, environment: dict[str, str], log: Path, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    path = tmp_path / "small.db"
    with cluster(tmp_path, environment) as (address, processes):
        from distributed import Client

        with Client(address) as client:
            client.wait_for_workers(2, timeout=LIMIT)
        killed: list[int] = []

        def kill(at: Snapshot) -> None:
            victim = processes[1].pid
            if not killed and f"\n{victim} " in "\n" + (log.read_text() if log.exists() else ""):
                os.kill(victim, signal.SIGKILL)
                killed.append(len(stored(path)))

        table = run(small(worker="logged"), store=path, executor=executors.crew(address), watch=kill).table()
    assert killed
    assert table == undisturbed
    keys = stored(path)
    assert killed[0] < len(keys)  # in the middle
    assert len(keys) == len(set(keys)) == len(set(begun(log)))  # nothing lost, nothing twice


@pytest.mark.slow
def test_a_lost_scheduler_is_one_sentence_and_loses_nothing(
    undisturbed: Table, environment: dict[str, str], log: Path, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    with cluster(tmp_path, environment) as (address, processes):
        from distributed import Client

        with Client(address) as client:
            client.wait_for_workers(2, timeout=LIMIT)
        with command(tmp_path, environment, "--on", address) as process:
            eventually(lambda: len(begun(log)) > 8, "trials to begin")
            os.kill(processes[0].pid, signal.SIGKILL)
            _, err = process.communicate(timeout=LIMIT)
            assert process.returncode == 1, err
    sentence = err.splitlines()[-1]
    assert sentence.startswith("Error: ")
    assert sentence.endswith("small.db has what had ended, and nqm lab run small.toml goes on")
    assert "Traceback" not in err
    kept = set(stored(tmp_path / "small.db"))
    trace = len(begun(log))
    with command(tmp_path, environment, "--on", "here") as process:
        process.communicate()
    assert Results.open(tmp_path / "small.db").table() == undisturbed
    assert not kept & set(begun(log)[trace:])


@pytest.mark.slow
def test_kills_at_random_moments_of_three_runners_lose_and_double_nothing() -> None:
    """``python -m benchmarks.lab_kills`` does the same with 50 kills."""
    found = disturbed(6, seed=1)
    assert found.kills == 6
    assert (found.doubled, found.repeated) == (0, 0)
    assert found.same_table
