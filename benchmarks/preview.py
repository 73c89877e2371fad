"""How far a preview of a sweep is from the exact one, and its CPU time: ``python -m benchmarks.preview``.

The page asks for previews while a slider moves: three optimizers at ten batch sizes, from the answer a moment ago. Each row is
one move of the target by 2%, or of the noise by 5%. The settings of the preview were chosen on the first spectrum.
"""

from __future__ import annotations

import math
import time

import numpy as np

from nqm import EMA, SGD, HeavyBall, Quadratic, Spectrum, sweep
from nqm.search.preview import preview_sweep
from nqm.search.sweeps import DEFAULT_BATCH_SIZES

OPTIMIZERS = (SGD(), HeavyBall(), EMA(SGD()))
SPECTRA = {
    "paper": (lambda noise: Spectrum.power_law(10_000, noise=noise), 0.01),
    "language": (lambda noise: Spectrum.power_law(10**6, exponent=1.1, noise=10 * noise), 1.0),
    "image": (lambda noise: Spectrum.power_law(10_000, exponent=1.5, noise=0.1 * noise), 0.01),
}
MOVES = [("target up", 1.02, 1.0), ("target down", 1 / 1.02, 1.0), ("noise up", 1.0, 1.05)]


def main() -> None:
    print(f"{'spectrum':<10}{'move':<13}{'preview ms':>11}{'nodes ms':>10}{'exact ms':>10}{'median':>9}{'largest':>9}")
    for name, (made, target) in SPECTRA.items():
        problem = Quadratic(made(1.0))
        last = [sweep(problem, optimizer, target=target) for optimizer in OPTIMIZERS]
        for move, factor, noise in MOVES:
            moved, began = (problem if noise == 1.0 else Quadratic(made(noise))), time.process_time()
            for optimizer in OPTIMIZERS:
                moved.nodes.searched(optimizer)
            ready = time.process_time()
            previews = [
                preview_sweep(
                    moved, optimizer, DEFAULT_BATCH_SIZES, factor * target,
                    [*zip(known.optimizers, known.steps, strict=True), (known.optimizers[-1], known.smallest_steps)],
                )
                for optimizer, known in zip(OPTIMIZERS, last, strict=True)
            ]  # fmt: skip
            done = time.process_time()
            exact = [sweep(moved, optimizer, target=factor * target) for optimizer in OPTIMIZERS]
            end = time.process_time()
            off = np.abs(np.concatenate([a.steps / b.steps - 1 for a, b in zip(previews, exact, strict=True)]))
            off = np.where(np.isnan(off), math.inf, off)
            times = [1e3 * t for t in (done - ready, ready - began, end - done)]
            print(f"{name:<10}{move:<13}{times[0]:>11.0f}{times[1]:>10.0f}{times[2]:>10.0f}", end="")
            print(f"{100 * np.median(off):>8.2f}%{100 * off.max():>8.2f}%")


if __name__ == "__main__":
    main()
