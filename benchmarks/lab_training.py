"""Trials a minute, vectorised against one by one: ``python -m benchmarks.lab_training [WORKLOAD ...]``. Needs the extra ``nets``.

Every trial takes the same number of steps of Adam. Times are CPU seconds of this process, the two ways taken in turn and the
best of each kept, so that the ratio stands on a busy machine too. Beside it the share of a trial's time that goes into looking
at the metric, over a trial of 500 steps with one read-out and looks that grow by 3%.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from typing import Any

from nqm.nets.training.metrics import Metric
from nqm.nets.training.trial import Trial
from nqm.nets.training.worker import run_trials

WORKLOADS = ("digits", "fashion_cnn")
TRIALS, ROUNDS, LONG = 8, 3, 500
STEPS = {4: 60, 32: 40, 256: 12}


def trials(workload: str, batch_size: int, steps: int, growth: float) -> list[Trial]:
    """A round of a cell that never reaches its target."""
    rates = [0.001 * 1.1**k for k in range(TRIALS)]
    return [
        Trial(workload, {}, "Adam", {"lr": lr}, (), batch_size, "train_loss", 0.0, steps, growth, seed=0)
        for lr in rates
    ]


def seconds(work: list[Trial], stacking: Any) -> float:
    start = time.process_time()
    results = run_trials(work, stacking=stacking)
    assert {result.outcome for result in results} == {"out_of_steps"}, results[0].message
    return time.process_time() - start


def share_of_looks(workload: str, batch_size: int) -> float:
    """The part of a round's time that is spent on the metric."""
    spent, look = 0.0, Metric.__call__

    def timed(self: Metric, *arguments: Any, **options: Any) -> Any:
        nonlocal spent
        start = time.process_time()
        found = look(self, *arguments, **options)
        spent += time.process_time() - start
        return found

    Metric.__call__ = timed  # type: ignore[method-assign]
    try:
        whole = seconds(trials(workload, batch_size, LONG, 0.03), "always")
    finally:
        Metric.__call__ = look  # type: ignore[method-assign]
    return spent / whole


def main(names: list[str]) -> None:
    print(f"{'workload':12} {'batch':>5}  {'stacked':>8}  {'plain':>8}  ratio  looks   trials a minute of {LONG} steps")
    for workload in names or WORKLOADS:
        for batch_size, steps in STEPS.items():
            work = trials(workload, batch_size, steps, 1.0)
            run_trials(work[:2], stacking="always")  # loads the data
            times: dict[str, list[float]] = {"always": [], "never": []}
            for _ in range(ROUNDS):
                for stacking, found in times.items():
                    found.append(seconds(work, stacking))
            rates = {way: 60 * TRIALS / min(found) * steps / LONG for way, found in times.items()}
            ratio, looks = rates["always"] / rates["never"], share_of_looks(workload, batch_size)
            print(
                f"{workload:12} {batch_size:5}  {rates['always']:8,.0f}  {rates['never']:8,.0f}  {ratio:5.2f}  {looks:5.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
