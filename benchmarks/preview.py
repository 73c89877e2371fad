"""How far a preview of a sweep is from the exact one, and its CPU time: ``python -m benchmarks.preview [choose] [check]``.

The page asks for previews while a slider moves: three optimizers at ten batch sizes, from the answer a moment ago. Each row is
one move of the target by 2%, or of the noise by 5%. The settings of the preview were chosen on the spectra of ``choose``, and
``check`` has others. An error counts as beyond a step if the steps differ by two or more: where a run has 50 steps, one is 2%.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices here are tiny: more threads only spin

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nqm import EMA, SGD, HeavyBall, Quadratic, Spectrum, sweep
from nqm.search.preview import preview_sweep
from nqm.search.sweeps import DEFAULT_BATCH_SIZES, Sweep
from nqm.types import Array

OPTIMIZERS = (SGD(), HeavyBall(), EMA(SGD()))
MOVES = [("target up", 1.02, 1.0), ("target down", 1 / 1.02, 1.0), ("noise up", 1.0, 1.05)]
PAPER_LOSS = 4.9  # Initial loss of the paper's instance, in units of which the targets below are given.
SETS = {  # exponent, noise, target, dimension
    "choose": [
        (1.0, 1.0, 0.01, 10**4), (1.0, 1.0, 0.1, 10**4), (0.5, 1.0, 0.05, 10**4), (1.5, 0.1, 0.01, 10**4),
        (1.0, 0.01, 0.01, 10**4), (1.1, 10.0, 1.0, 10**6), (1.5, 10.0, 0.05, 10**4), (0.5, 0.1, 0.1, 10**3),
    ],
    "check": [
        (0.75, 1.0, 0.03, 10**4), (1.25, 0.1, 0.005, 10**4), (1.0, 10.0, 0.03, 10**4), (1.5, 0.01, 0.003, 10**4),
        (0.5, 10.0, 0.2, 10**4), (1.0, 0.1, 0.002, 10**4), (1.25, 3.0, 0.3, 10**5), (0.75, 0.01, 0.1, 10**3),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Moved:
    """One move: errors of the steps, those beyond a step, and milliseconds of CPU for the previews and for the exact sweeps."""

    errors: Array
    beyond: Array
    preview: float
    exact: float


def main(names: list[str]) -> None:
    for name in names or list(SETS):
        print(f"{name}: exponent, noise, target, dimension")
        found = [one for about in SETS[name] for one in moves(*about)]
        errors, beyond = (np.concatenate([getattr(one, part) for one in found]) for part in ("errors", "beyond"))
        times = np.array([one.preview for one in found])
        middle, late = 100 * np.quantile(np.abs(errors), [0.5, 0.95])
        print(f"{name}: {len(errors)} points, off by {middle:.2f}% (median), {late:.2f}% (p95);", end=" ")
        above, below = np.sum(beyond > 0.01), np.sum(beyond < -0.01)
        print(
            f"{above} above the exact steps by more than 1% and a step ({100 * beyond.max():.1f}% at most), {below} below;"
        )
        print(f"    CPU {np.median(times):.0f} ms (median), {np.quantile(times, 0.95):.0f} ms (p95) for 30 points")


def moves(exponent: float, noise: float, target: float, dimension: int) -> list[Moved]:
    def made(factor: float) -> Quadratic:
        return Quadratic(Spectrum.power_law(dimension, exponent=exponent, noise=noise * factor))

    base, found = made(1.0), list[Moved]()
    target *= base.initial_loss / PAPER_LOSS
    last = [sweep(base, optimizer, target=target) for optimizer in OPTIMIZERS]
    previews(base, last, target)  # The loops are compiled or loaded.
    for move, factor, louder in MOVES:
        moved = base if louder == 1.0 else made(louder)
        for optimizer in OPTIMIZERS:
            moved.nodes.searched(optimizer)
        quick, preview = timed(lambda m=moved, f=factor: previews(m, last, f * target))
        whole, exact = timed(lambda m=moved, f=factor: [sweep(m, o, target=f * target) for o in OPTIMIZERS])
        pairs = list(zip(quick, whole, strict=True))
        off = np.concatenate([np.nan_to_num(a.steps / b.steps - 1, nan=np.inf) for a, b in pairs])
        apart = np.concatenate([np.abs(a.steps - b.steps) for a, b in pairs])
        found.append(Moved(off, np.where(apart <= 1, 0.0, off), preview, exact))
        print(
            f"  {exponent:<5g}{noise:<6g}{target:<8.3g}{dimension:<8g}{move:<12}{preview:5.0f} ms for {exact:5.0f} ms,",
            end="",
        )
        print(f" largest error {100 * np.abs(off).max():.2f}%", flush=True)
    return found


def previews(problem: Quadratic, last: list[Sweep], target: float) -> list[Sweep]:
    near = [[*zip(one.optimizers, one.steps, strict=True), (one.optimizers[-1], one.smallest_steps)] for one in last]
    return [preview_sweep(problem, o, DEFAULT_BATCH_SIZES, target, n) for o, n in zip(OPTIMIZERS, near, strict=True)]


def timed(work: Callable[[], list[Sweep]]) -> tuple[list[Sweep], float]:
    """What the work gives, and its CPU time in milliseconds."""
    began = time.process_time()
    found = work()
    return found, 1e3 * (time.process_time() - began)


if __name__ == "__main__":
    main(sys.argv[1:])
