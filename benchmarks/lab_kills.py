"""Runners and workers of ``nqm lab run`` that are killed at random: ``python -m benchmarks.lab_kills --kills 50``.

Three runners with two workers each share one store. Every second or so a runner or a worker is killed, and runners that have
ended are started again, until there were enough kills and the study is finished. Then the table must be that of a run that
nobody disturbed, every trial must be stored once, and none may have begun after it was stored.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nqm.lab import Result, Results, Store, Trial, run
from nqm.nets.training.trial import RAW

RUNNERS = 3
SECONDS = 0.05  # A training takes this long.
ROOT = Path(__file__).parents[1]
TOML = """\
[study]
workload = "a valley"
worker = "benchmarks.lab_kills:trained"
target = 0.1
batch_sizes = [8, 64]
searches = 2
seeds = 3
seed = {seed}
[optimizers.SGD]
lr = {{low = 0.01, high = 10}}
[optimizers.HeavyBall]
lr = {{low = 0.01, high = 10}}
momentum = {{low = 0.5, high = 0.99}}
"""


def trained(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """Trainings whose steps are a formula; each leaves the time and its key in a file when it begins."""
    log = os.environ.get("NQM_KILLS_LOG")
    found = []
    for trial in trials:
        if log:
            with open(log, "a") as file:
                file.write(f"{time.time()} {trial.key}\n")
            time.sleep(SECONDS)
        rate, memory = trial.settings["lr"], 1 - trial.settings.get("momentum", 0.0)
        luck = random.Random(trial.key).uniform(0.9, 1.1)
        steps = round(luck * 100 * (1 + (rate - 1) ** 2 + (memory - 0.1) ** 2))
        late = "stopped" if trial.limit else "out_of_steps"
        arrived = steps if steps <= trial.steps_allowed else None
        outcome = "reached" if arrived else late
        found.append(Result(trial.key, outcome, {RAW: arrived}, {RAW: [1.0]}, [1], 0.0, outcome, "a formula"))
    return found


@dataclass(frozen=True)
class Disturbed:
    """What came of a study whose runners and workers were killed."""

    kills: int
    trials: int
    doubled: int
    repeated: int
    same_table: bool


def disturbed(kills: int, seed: int = 0) -> Disturbed:
    """Run a study to its end under kills, and compare it with the same study undisturbed."""
    chance, done = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "killed.toml").write_text(TOML.format(seed=seed))
        log, path = folder / "log", folder / "killed.db"
        runners: list[subprocess.Popen[bytes]] = []
        try:
            while done < kills or not _finished(path):
                runners = [one for one in runners if one.poll() is None]
                runners += [_started(folder, log) for _ in range(RUNNERS - len(runners))]
                time.sleep(chance.uniform(0.2, 1.5))
                if done < kills and not _finished(path):
                    done += _kill(chance, runners)
                elif done < kills:
                    break
        finally:
            for one in runners:
                one.kill()
                one.wait()
        plain = run(folder / "killed.toml", store=folder / "plain.db").table()
        with Store.open(path) as store:
            kept = list(store.trials())
        ended = {one.trial.key: one.finished for one in kept}
        lines = [line.split() for line in log.read_text().splitlines()]
        repeated = sum(float(when) > ended.get(key, float("inf")) for when, key in (p for p in lines if len(p) == 2))
        doubled = sum(count > 1 for count in Counter(one.trial.key for one in kept).values())
        return Disturbed(done, len(kept), doubled, repeated, Results.open(path).table() == plain)


def _started(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """A runner in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "NQM_KILLS_LOG": str(log)}
    call = [sys.executable, "-m", "nqm", "lab", "run", "killed.toml", "--workers", "2"]
    return subprocess.Popen(call, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kill(chance: random.Random, runners: Sequence[subprocess.Popen[bytes]]) -> int:
    """Kill a runner or one of its workers; return how many were killed."""
    runner = chance.choice(runners)
    children = Path(f"/proc/{runner.pid}/task/{runner.pid}/children")
    try:
        workers = [int(pid) for pid in children.read_text().split()]
        os.kill(chance.choice([runner.pid, *workers]), signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        return 0
    return 1


def _finished(path: Path) -> bool:
    return path.exists() and Results.open(path).finished


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    asked, seed, total = parser.parse_args(), 0, 0
    while total < asked.kills:
        found = disturbed(asked.kills - total, seed)
        seed, total = seed + 1, total + found.kills
        print(
            f"{found.kills} kills, {found.trials} trials: {found.doubled} stored twice, {found.repeated} begun again after they "
            f"were stored, {'the same table' if found.same_table else 'ANOTHER TABLE'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
