"""What mean fields were held against: ``python -m benchmarks.mean_field [sample | compare | cost]``.

``sample`` writes docs/checks/mean_field.csv: sampled losses with their standard errors. Cases that the file already has are left as
they are, so that it can be interrupted; without the file it samples all of them, in about half an hour of CPU. ``compare`` prints the
error of the mean field at each sampled loss. ``cost`` prints how much cheaper a mean field is than sampling at equal accuracy.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices here are tiny: more threads only spin

import argparse
import csv
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.adam_loop import Replicas, sampled
from nqm import (
    EMA,
    SGD,
    Adam,
    AdamW,
    Clipped,
    Lion,
    NormalisedSGD,
    Optimizer,
    Quadratic,
    RMSProp,
    Sign,
    Spectrum,
)  # fmt: skip
from nqm.engine.mean_field import Start
from nqm.types import Array

FILE = Path(__file__).parents[1] / "docs" / "checks" / "mean_field.csv"
COLUMNS = ("set", "optimizer", "dim", "batch_size", "start", "replicas", "steps", "loss", "stderr")
STARTS: tuple[Start, Start] = ("fixed", "gaussian")

SETTINGS: tuple[tuple[Adam, float], ...] = (
    (Adam(0.01), 64),
    (Adam(0.01, beta2=0.99), 64),
    (Adam(0.03), 1024),
    (Adam(0.003), 16),
    (Adam(0.01, beta1=0.0), 2**14),
    (Adam(0.001), 4),
    (Adam(0.03, beta1=0.95), 2**16),
    (Adam(0.01, beta2=0.9999), 256),
    (Adam(0.003, beta2=0.99), 4),
    (Adam(0.1), 4096),
    (Adam(0.003, beta1=0.5, beta2=0.995), 1024),
    (Adam(0.01, beta1=0.98, beta2=0.997), 2**20),
)
"""Twelve settings of Adam with beta2 of at least .99 and their batch sizes, chosen before any of them was sampled."""

GRID_LR = 0.03
GRID_DIMS = {3: 100_000, 10: 40_000, 100: 5000, 1000: 5000}  # modes, and replicas of each of the first 64
GRID_BETA2 = (0.5, 0.9, 0.97, 0.99, 0.999)
GRID_SIZES = (4, 64, 1024, 2**14, 2**20)

OTHERS: tuple[Optimizer, ...] = (
    RMSProp(0.01),
    Sign(0.003),
    Sign(0.003, 0.9),
    Lion(0.003),
    NormalisedSGD(0.1, 0.9),
    Clipped(SGD(0.5), 0.5),
    Clipped(Adam(0.01), 0.5),
    EMA(Adam(0.01), 0.99),
    AdamW(0.01, weight_decay=0.1),
)
OTHER_SIZES = (16, 1024, 2**16)
OTHER_DIM = 300
OTHER_REPLICAS = 500


@dataclass(frozen=True)
class Case:
    """One run that is sampled, and at which steps its loss is kept."""

    set: str
    optimizer: Optimizer
    dim: int
    batch_size: float
    start: Start
    replicas: Replicas
    times: tuple[int, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return self.set, str(self.optimizer), str(self.dim), f"{self.batch_size:g}", self.start

    @property
    def problem(self) -> Quadratic:
        return Quadratic(Spectrum.power_law(self.dim))

    def losses(self) -> tuple[Array, Array]:
        """Sampled losses and their standard errors. Adam has a loop of its own; others are sampled by the library."""
        seed, times = zlib.crc32(" ".join(self.key).encode()), np.array(self.times)
        if isinstance(self.optimizer, Adam):
            return sampled(self.optimizer, self.dim, self.batch_size, self.start, times, self.replicas, seed)
        run = self.problem.sample(
            self.optimizer, self.batch_size, times, replicas=self.replicas.first, seed=seed, start=self.start, workers=1
        )
        assert run.stderr is not None
        return run.loss, run.stderr


def cases() -> Iterator[Case]:
    """All runs that are sampled."""
    for (adam, size), start in product(SETTINGS, STARTS):
        yield Case("settings", adam, 1000, size, start, Replicas(10_000, 1000), (3, 10, 30, 100, 300, 1000, 3000))
    few = 3, 10, 30, 100, 300, 1000
    for (dim, replicas), beta2, size, start in product(GRID_DIMS.items(), GRID_BETA2, GRID_SIZES, STARTS):
        adam = Adam(GRID_LR, beta2=beta2)
        yield Case("grid", adam, dim, size, start, Replicas(replicas, replicas // 10), few)
    for optimizer, size, start in product(OTHERS, OTHER_SIZES, STARTS):
        yield Case("others", optimizer, OTHER_DIM, size, start, Replicas(OTHER_REPLICAS, OTHER_REPLICAS), few)


def kept() -> list[dict[str, str]]:
    """The rows of the file; none if there is no file."""
    if not FILE.exists():
        return []
    with FILE.open() as file:
        return list(csv.DictReader(file))


def sample(sets: Sequence[str]) -> None:
    """Sample the cases that the file does not have yet, and append each when it is done."""
    known = {tuple(row[name] for name in COLUMNS[:5]) for row in kept()}
    with FILE.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if not known:
            out.writerow(COLUMNS)
        for case in cases():
            if case.key in known or case.set not in sets:
                continue
            for t, loss, stderr in zip(case.times, *case.losses(), strict=True):
                out.writerow((*case.key, case.replicas.first, t, f"{loss:.6g}", f"{stderr:.3g}"))
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("sample", "compare", "cost"))
    parser.add_argument("--sets", nargs="+", default=["settings", "grid", "others"], help="which cases (default: all)")
    asked = parser.parse_args()
    if asked.verb == "sample":
        sample(asked.sets)


if __name__ == "__main__":
    main()
