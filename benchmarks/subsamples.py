"""How often the intervals of a fit on some of the examples hold the numbers of all the data.

    python -m benchmarks.subsamples            all settings
    python -m benchmarks.subsamples digits     those of one workload

Every run draws another sample. The numbers of all the data come from all single-example gradients and from Lanczos on all the data.
The number of vectors (`subsampling`) was chosen on digits, at step 60 with 300 examples and at step 400 with 200.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys

import numpy as np
import torch
from torch import Tensor

from nqm.nets import Network, curvature_of, lanczos, workload
from nqm.nets.fitting.sampled import NUMBERS
from nqm.nets.fitting.subsampling import SPANNING_VECTORS, sample_of, sampling_errors

SETTINGS = [
    # workload, step, examples of the data, examples of a sample
    ("digits", 60, 1797, 300), ("digits", 400, 1797, 600), ("fashion_mlp", 60, 2000, 300),
    ("fashion_cnn", 60, 2000, 300),
]  # fmt: skip
RUNS = 60
LANCZOS_STEPS = 25


def measured(network: Network) -> tuple[Tensor, Tensor, float]:
    """The gradient, the largest Ritz vectors, and the largest Ritz value."""
    g = network.gradient()
    (space,) = lanczos(curvature_of(network), g[None], LANCZOS_STEPS, keep=True)
    values, vectors = space.ritz(SPANNING_VECTORS)
    return g, vectors, float(values[0])


def exact(network: Network) -> dict[str, float]:
    """The numbers of all the data."""
    g, _, h = measured(network)
    square = float(g.double() @ g.double())
    trace = sum(float((rows.double() ** 2).sum()) for rows in network.example_gradients()) / network.examples - square
    values = network.full_loss(), square, trace, trace / square, h
    return dict(zip(NUMBERS, values, strict=True))


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    for name, start, examples, size in SETTINGS:
        if chosen and name not in chosen:
            continue
        network = workload(name).network(start, examples=examples)
        truth = exact(network)
        held, errors = dict.fromkeys(NUMBERS, 0), {n: list[float]() for n in NUMBERS}
        for seed in range(RUNS):
            sample = sample_of(network, size, seed)
            g, top, _ = measured(sample)
            found = sampling_errors(sample, examples, g, top, curvature=None, seed=0)
            for n in NUMBERS:
                one = getattr(found, n)
                held[n] += one.low <= truth[n] <= one.high
                errors[n].append(one.value / truth[n] - 1)
        for n in NUMBERS:
            off = f"mean error {np.mean(errors[n]):+.1%}, sd {np.std(errors[n]):.1%}"
            print(
                f"{name} at step {start}, {size} of {examples}: {n} held in {held[n] / RUNS:.0%} of {RUNS}; {off}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
