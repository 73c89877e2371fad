"""Tuned steps predicted from the checkpoint of a study beside the measured ones: ``python -m benchmarks.predicted [digits cnn]``.

SGD, its average and heavy ball are those of the study digits_checkpoint, whose table is in nqm/paper/studies. Adam and K-FAC are
measured here: from the same checkpoint, without a state, five learning rates with five orders of examples each, of which the best
median counts. Both sides are medians of first hits, looked at as often as the study does. They are written to
docs/checks/predicted.csv. Adam and K-FAC are measured likewise from the checkpoint of the Fashion CNN, and written to
docs/checks/predicted_cnn.csv. Each takes some minutes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nqm import EMA, SGD, Adam, HeavyBall
from nqm.lab.compare import read_curves
from nqm.nets import KFAC, Network, fit, workload
from nqm.nets.fitting.arrivals import Arrivals, arrivals_of
from nqm.nets.fitting.hits import looks
from nqm.nets.training.loop import Batches, walk
from nqm.optimizers import Optimizer
from nqm.paper.network_studies import table_of
from nqm.show.tables import Row, to_csv

CHECKS = Path(__file__).parents[1] / "docs" / "checks"
FAMILIES: dict[str, Optimizer] = {"SGD": SGD(), "EMA(SGD)": EMA(SGD()), "HeavyBall": HeavyBall()}
SEEDS = 5
MOST_STEPS = 1000  # of a training by Adam or K-FAC
STREAM = 0xADA  # of its batches


@dataclass(frozen=True)
class Place:
    """A checkpoint from which Adam and K-FAC are measured: the target, how seldom the loss is looked at, and what is tried."""

    network: Callable[[], Network]
    target: float
    growth: float
    sizes: Sequence[int]
    adam: Sequence[float]  # learning rates
    kfac: Sequence[float]
    descent: int | None = None  # full gradients of the fits


DIGITS = Place(
    lambda: workload("digits").network(), 0.1, 0.02, (8, 32, 128, 512), (0.003, 0.01, 0.02, 0.04, 0.08), (0.05, 0.1, 0.2, 0.4, 0.8)
)  # fmt: skip
CNN = Place(
    lambda: workload("fashion_cnn").network(examples=2000), 0.34, 0.02, (32, 128, 512), (0.0005, 0.001, 0.002, 0.004, 0.008),
    (0.02, 0.05, 0.1, 0.2, 0.4), 400,
)  # fmt: skip
"""The descent in the metric of Adam comes to this target. It ends at 0.33, because Adam trains at an edge of its own."""


def first_hit(place: Place, network: Network, optimizer: Optimizer, size: int, seed: int) -> float:
    """The step at which a real training is first seen below the target."""
    times = list(looks(1, place.growth, MOST_STEPS))
    batches = Batches(network.examples, (STREAM, seed))
    for i, theta in walk(network, optimizer, size, times, batches=batches):
        if network.full_loss(theta) <= place.target:
            return float(times[i])
    return math.inf


def measured(place: Place, network: Network, settings: Sequence[Optimizer], size: int) -> tuple[float, float, float]:
    """The best median of first hits over the settings, with its minimum and maximum over seeds."""
    every = [[first_hit(place, network, one, size, seed) for seed in range(SEEDS)] for one in settings]
    best = min(every, key=lambda hits: float(np.median(hits)))
    return float(np.median(best)), min(best), max(best)


def adam_rows(place: Place, network: Network) -> Iterator[Row]:
    """Adam from the checkpoint, measured and predicted."""
    middle = place.adam[len(place.adam) // 2]
    for size in place.sizes:
        metric = fit(network, optimizer=Adam(middle), batch_size=size, descent=place.descent)
        ahead = arrivals_of(metric, Adam(), [size], place.target, growth=place.growth, searched=True)
        yield row_of("Adam", size, measured(place, network, [Adam(lr) for lr in place.adam], size), ahead, 0)


def kfac_rows(place: Place, network: Network) -> Iterator[Row]:
    """K-FAC from the checkpoint, without momentum, measured and predicted."""
    metric = fit(network, optimizer=KFAC(), descent=place.descent)
    ahead = arrivals_of(metric, KFAC(), place.sizes, place.target, growth=place.growth, searched=True)
    for i, size in enumerate(place.sizes):
        yield row_of("KFAC", size, measured(place, network, [KFAC(lr) for lr in place.kfac], size), ahead, i)


def row_of(name: str, size: float, measured: tuple[float, float, float], ahead: Arrivals, i: int) -> Row:
    """Measured and predicted steps at one batch size."""
    hit = ahead.hits[i]
    told = {"optimizer": name, "batch_size": int(size), "steps": measured[0], "low": measured[1], "high": measured[2]}
    predicted = {} if hit is None else {"predicted": hit.steps, "predicted_low": hit.low, "predicted_high": hit.high}
    found = {**told, **predicted, "expected": float(ahead.expected.steps[i])}
    print(found, flush=True)
    return found


def study_rows(network: Network) -> Iterator[Row]:
    """SGD, its average and heavy ball of the study of digits, and what a fit predicts."""
    found, table = fit(network), table_of("digits_checkpoint")
    for curve in read_curves(table):
        sizes = curve.batch_sizes.tolist()
        ahead = arrivals_of(found, FAMILIES[curve.name], sizes, DIGITS.target, growth=DIGITS.growth, searched=True)
        own = [row for row in table if row["optimizer"] == curve.name]
        numbers = [tuple(float(row[k]) for k in ("steps", "low", "high")) for row in own]  # type: ignore[arg-type]
        for i, size in enumerate(sizes):
            yield row_of(curve.name, size, numbers[i], ahead, i)  # type: ignore[arg-type]


def main(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    for name, place, file in (("digits", DIGITS, "predicted.csv"), ("cnn", CNN, "predicted_cnn.csv")):
        if name in names:
            network = place.network()
            rows = list(study_rows(network)) if place is DIGITS else []
            (CHECKS / file).write_text(to_csv([*rows, *adam_rows(place, network), *kfac_rows(place, network)]))


if __name__ == "__main__":
    main(sys.argv[1:] or ("digits", "cnn"))
