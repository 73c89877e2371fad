"""How far seeds scatter the steps of real trainings: ``python -m benchmarks.lab_scatter``. Needs the extra ``nets``.

A short search finds a good setting of each optimizer at a small and at a large batch size, and trains that setting with fresh
seeds. The scatter of a cell is the standard deviation of the logarithm of steps over these seeds. ``--store FILE`` reads the
scatter of every cell of a study that has been run instead.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nqm.lab import Point, Results, Study, run

WORKLOADS: dict[str, dict[str, object]] = {
    "digits": {"target": 0.1, "batch_sizes": [16, 1024], "max_steps": 4000},
    "fashion_mlp": {"target": 0.4, "batch_sizes": [32, 2048], "max_steps": 4000},
}
"""For each workload what its study has besides the optimizers."""
OPTIMIZERS: dict[str, object] = {
    "SGD": {"lr": {"low": 0.01, "high": 3}},
    "HeavyBall": {"lr": {"low": 0.003, "high": 1}, "momentum": {"low": 0.5, "high": 0.98}},
    "Adam": {"lr": {"low": 0.0005, "high": 0.1}},
}
SEEDS = 12  # fresh seeds of a cell; its scatter is then known to about 20%


@dataclass(frozen=True)
class Scatter:
    """The scatter of the steps of one cell over its seeds, and how many of them reached the target."""

    cell: str
    scatter: float
    arrived: int
    seeds: int

    def __str__(self) -> str:
        return f"{self.cell:32} scatter {self.scatter:.3f} over {self.arrived} of {self.seeds} seeds that arrived"


def scatters(points: Iterable[Point]) -> list[Scatter]:
    """The scatter of each cell with three seeds or more that arrived."""
    found = []
    for point in points:
        logs = [math.log(steps) for steps in point.seeds if steps]
        if len(logs) > 2:
            cell = f"{point.name} at B = {point.batch_size:,}"
            found.append(Scatter(cell, float(np.std(logs, ddof=1)), len(logs), len(point.seeds)))
    return found


def measured(workload: str, seeds: int) -> list[Scatter]:
    """Search on a workload, and return the scatter of the best settings."""
    table = WORKLOADS[workload] | {"workload": workload, "searches": 1, "trials": 8, "refine": 8, "seeds": seeds}
    study = Study.from_dict({"study": table, "optimizers": OPTIMIZERS}, workload)
    with tempfile.TemporaryDirectory() as folder:
        return scatters(run(study, store=Path(folder) / "scatter.db").points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, action="append")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--store", type=Path, action="append", help="read a store instead of training")
    asked = parser.parse_args()
    found: list[Scatter] = []
    for store in asked.store or ():
        found += scatters(Results.open(store).points)
    for workload in () if asked.store else asked.workload or WORKLOADS:
        print(workload, flush=True)
        new = measured(workload, asked.seeds)
        found += new
        print("\n".join(map(str, new)), flush=True)
    every = np.array([one.scatter for one in found])
    print(f"{len(every)} cells: median {np.median(every):.3f}, nine of ten below {np.quantile(every, 0.9):.3f}")


if __name__ == "__main__":
    main()
