"""What mean fields were held against: ``python -m benchmarks.mean_field [sample | compare | cost]``.

``sample`` writes docs/checks/mean_field.csv: sampled losses with their standard errors. Cases that the file already has are left as
they are, so that it can be interrupted; without the file it samples all of them, in about 15 minutes of CPU. ``compare`` prints the
error of the mean field at each sampled loss, and writes docs/checks/mean_field_compared.csv. ``cost`` prints how much cheaper a mean
field is than sampling at equal accuracy.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices here are tiny: more threads only spin

import argparse
import csv
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

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
    free,
    sweep,
    tune,
)  # fmt: skip
from nqm.engine.mean_field import QUICK_DETAIL, Start
from nqm.problems.followed import Followed
from nqm.show.tables import to_csv
from nqm.types import Array

T = TypeVar("T")

FILE = Path(__file__).parents[1] / "docs" / "checks" / "mean_field.csv"
COMPARED = FILE.with_name("mean_field_compared.csv")
EQUAL = 0.01  # the accuracy at which costs are compared
TRIED = 16  # replicas from which the cost of sampling is extrapolated
COLUMNS = ("set", "optimizer", "dim", "exponent", "batch_size", "start", "replicas", "steps", "loss", "stderr")
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

ELSEWHERE = 24  # random settings of Adam on other spectra, on which nothing was chosen
ELSEWHERE_DIM = 200
ELSEWHERE_EXPONENTS = (0.5, 1.5)
ELSEWHERE_REPLICAS = 800


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
    exponent: float = 1.0

    @property
    def key(self) -> tuple[str, ...]:
        """What the file says about it."""
        return self.set, str(self.optimizer), str(self.dim), f"{self.exponent:g}", f"{self.batch_size:.10g}", self.start

    @property
    def seed(self) -> int:
        named = self.set, str(self.optimizer), str(self.dim), f"{self.batch_size:g}", self.start
        return zlib.crc32(" ".join(named).encode())

    @property
    def problem(self) -> Quadratic:
        return Quadratic(Spectrum.power_law(self.dim, self.exponent))

    def losses(self) -> tuple[Array, Array]:
        """Sampled losses and their standard errors. Adam has a loop of its own; others are sampled by the library."""
        seed, times = self.seed, np.array(self.times)
        if isinstance(self.optimizer, Adam) and self.exponent == 1:
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
    yield from elsewhere()


def elsewhere() -> Iterator[Case]:
    """Random settings of Adam on flatter and steeper spectra."""
    rng, replicas = np.random.default_rng(7), Replicas(ELSEWHERE_REPLICAS, ELSEWHERE_REPLICAS)
    for i in range(ELSEWHERE):
        lr, beta1, beta2 = (
            10 ** rng.uniform(-2.5, -0.8),
            rng.choice((0.0, 0.8, 0.9, 0.95)),
            rng.choice((0.98, 0.99, 0.999)),
        )
        adam, size = Adam(float(f"{lr:.3g}"), float(beta1), float(beta2)), float(2 ** rng.integers(2, 17))
        start, exponent = STARTS[i % 2], ELSEWHERE_EXPONENTS[i // 2 % 2]
        yield Case("elsewhere", adam, ELSEWHERE_DIM, size, start, replicas, (3, 10, 30, 100, 300), exponent)


def kept() -> list[dict[str, str]]:
    """The rows of the file; none if there is no file."""
    if not FILE.exists():
        return []
    with FILE.open() as file:
        return list(csv.DictReader(file))


def sample(sets: Sequence[str]) -> None:
    """Sample the cases that the file does not have yet, and append each when it is done."""
    known = {tuple(row[name] for name in COLUMNS[:6]) for row in kept()}
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


def compare(sets: Sequence[str]) -> None:
    """Print and keep the loss of the mean field beside every sampled loss, and whether the result says that it may be wrong."""
    of = {case.key: case for case in cases() if case.set in sets}
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in kept():
        groups.setdefault(tuple(row[name] for name in COLUMNS[:6]), []).append(row)
    table: list[dict[str, str]] = []
    for key, rows in groups.items():
        if key not in of:
            continue
        case, times = of[key], np.array([int(row["steps"]) for row in rows])
        followed = Followed(case.problem, case.optimizer, case.batch_size, start=case.start)
        detail, _ = followed.resolved(times)
        for row, t, loss in zip(rows, times, followed.losses(times, detail), strict=True):
            said = "yes" if followed.doubts(int(t), int(t)) else ""
            table.append({**row, "followed": f"{loss:.6g}", "doubted": said})
        errors = [float(row["followed"]) / float(row["loss"]) - 1 for row in table[-len(rows) :]]
        print(*key[1:], *(f"{100 * e:+.2f}%" for e in errors), flush=True)
    to_csv(table, COMPARED)


def cpu(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of some work, and what it gives."""
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


def reference() -> float:
    """CPU seconds of a fixed loop in NumPy: 2,000 steps of heavy ball on 10^4 modes."""

    def steps() -> None:
        h = 1 / np.arange(1.0, 10_001.0)
        theta, m = np.ones(10_000), np.zeros(10_000)
        for _ in range(2000):
            m = 0.9 * m + h * theta
            theta = theta - 0.1 * m

    return cpu(steps)[0]


def cost() -> None:
    """Print how much cheaper a mean field is than sampling, and the CPU seconds of tuned points and sweeps."""
    problem = Quadratic(Spectrum.power_law(10_000))
    problem.run(Adam(0.01), 64, 100)  # compiles
    unit = reference()
    print(f"reference loop: {unit:.3f} s")
    for adam, size, steps in ((Adam(0.01), 64, 1000), (Adam(0.003), 16, 3000), (Adam(0.03), 1024, 1000)):
        times = np.unique(np.geomspace(1, steps, 40).astype(int))
        slow, run = cpu(lambda a=adam, b=size, t=times: problem.sample(a, b, t, replicas=TRIED, workers=1))
        assert run.stderr is not None
        needed = (run.stderr / run.loss / EQUAL) ** 2  # times as many replicas for the same standard error
        fast, _ = cpu(lambda a=adam, b=size, t=times: problem.run(a, b, t))
        quick, _ = cpu(lambda a=adam, b=size, t=times: Followed(problem, a, b).losses(t, QUICK_DETAIL))
        print(f"{adam}, batch size {size}, {steps:,} steps: run {fast:.3f} s, as in searches {quick:.3f} s", flush=True)
        for what, part in (("every loss", needed.max()), ("the last loss", needed[-1])):
            print(
                f"  {what} sampled to {EQUAL:.0%} {slow * part:.1f} s ({part * TRIED:.0f} replicas): "
                f"{slow * part / fast:.0f} times a run, {slow * part / quick:.0f} times one as in searches",
                flush=True,
            )
    tuned, _ = cpu(lambda: tune(problem, Adam(), 2**8, 0.01))
    print(f"tuned point at 2^8: {tuned:.2f} s, {tuned / unit:.1f} reference loops", flush=True)
    for lowest in (6, 2):
        sizes = [float(2**e) for e in range(lowest, 21, 2)]
        swept, _ = cpu(lambda sizes=sizes: sweep(problem, Adam(beta1=free), sizes, target=0.01))
        print(
            f"sweep of lr and beta1 over 2^{lowest} .. 2^20: {swept:.1f} s, {swept / unit:.0f} reference loops",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("sample", "compare", "cost"))
    parser.add_argument(
        "--sets", nargs="+", default=["settings", "grid", "others", "elsewhere"], help="which cases (default: all)"
    )
    asked = parser.parse_args()
    if asked.verb == "cost":
        cost()
    else:
        {"sample": sample, "compare": compare}[asked.verb](asked.sets)


if __name__ == "__main__":
    main()
