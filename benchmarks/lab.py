"""What the lab itself costs: ``python -m benchmarks.lab`` runs a study whose trials take no time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nqm.lab import Crew, Entry, Result, Space, Study, Trial, executors, run
from nqm.nets.training.trial import RAW

POINTS = 200  # of a curve: what a training of 10^4 steps has


def nothing(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """A worker that trains nothing and has a curve to tell."""
    times = list(range(1, POINTS + 1))
    curves = {name: [1 / t for t in times] for name in (RAW,)}
    return [Result(t.key, "out_of_steps", {RAW: None}, curves, times, 0.0, "nothing", "plain") for t in trials]


def study(trials: int) -> Study:
    optimizers = {label: Entry(label, {"lr": Space(0.01, 1)}) for label in ("SGD", "HeavyBall", "Adam", "KFAC")}
    sizes, worker = tuple(2**k for k in range(3, 11)), f"{__spec__.name}:{nothing.__name__}"
    return Study("nothing", "nothing", 0.1, sizes, optimizers, trials=trials, worker=worker)


def overhead(make: Callable[[], Crew] = executors.here, trials: int = 20) -> tuple[int, float, float]:
    """Trials, CPU milliseconds of the runner for each, and the same when all are in the store already."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nothing.db"
        run(study(1), store=path, executor=make())  # loads what is loaded once
        crew = make()
        begin = time.process_time()
        found = run(study(trials), store=path, executor=crew)
        middle = time.process_time()
        run(study(trials), store=path)
        end = time.process_time()
    count = sum(point.feasible for point in found.points)
    return count, 1e3 * (middle - begin) / count, 1e3 * (end - middle) / count


def main() -> None:
    for name, make in (("this process", executors.here), ("two processes", lambda: executors.local(2))):
        count, fresh, again = overhead(make)
        print(f"{name:14} {count} trials, {fresh:.2f} ms of CPU each; {again:.2f} ms when all are in the store")


if __name__ == "__main__":
    main()
