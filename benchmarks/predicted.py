"""Tuned steps predicted from the checkpoint of a study beside the measured ones: ``python -m benchmarks.predicted``.

SGD, its average and heavy ball are those of the study digits_checkpoint, whose table is in nqm/paper/studies. Adam and K-FAC are
measured here: from the same checkpoint, without a state, five learning rates with five orders of examples each, of which the best
median counts. Both sides are medians of first hits, looked at as often as the study does. Writes docs/checks/predicted.csv; takes
some minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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

FILE = Path(__file__).parents[1] / "docs" / "checks" / "predicted.csv"
TARGET, GROWTH = 0.1, 0.02  # of the study
FAMILIES: dict[str, Optimizer] = {"SGD": SGD(), "EMA(SGD)": EMA(SGD()), "HeavyBall": HeavyBall()}
ADAM_SIZES, ADAM_RATES, ADAM_SEEDS = (8, 32, 128, 512), (0.003, 0.01, 0.02, 0.04, 0.08), 5
KFAC_RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
MOST_STEPS = 1000  # of a training by Adam or K-FAC
STREAM = 0xADA  # of its batches


def first_hit(network: Network, optimizer: Optimizer, size: int, seed: int) -> float:
    """The step at which a real training is first seen below the target."""
    times = list(looks(1, GROWTH, MOST_STEPS))
    batches = Batches(network.examples, (STREAM, seed))
    for i, theta in walk(network, optimizer, size, times, batches=batches):
        if network.full_loss(theta) <= TARGET:
            return float(times[i])
    return math.inf


def adam_rows(network: Network) -> Iterator[Row]:
    """Adam from the checkpoint, measured and predicted."""
    for size in ADAM_SIZES:
        found = {lr: [first_hit(network, Adam(lr), size, s) for s in range(ADAM_SEEDS)] for lr in ADAM_RATES}
        best = min(found.values(), key=lambda hits: float(np.median(hits)))
        metric = fit(network, optimizer=Adam(0.01), batch_size=size)
        ahead = arrivals_of(metric, Adam(), [size], TARGET, growth=GROWTH, searched=True)
        yield row_of("Adam", size, (float(np.median(best)), min(best), max(best)), ahead, 0)


def kfac_rows(network: Network) -> Iterator[Row]:
    """K-FAC from the checkpoint, without momentum, measured and predicted."""
    metric = fit(network, optimizer=KFAC())
    ahead = arrivals_of(metric, KFAC(), ADAM_SIZES, TARGET, growth=GROWTH, searched=True)
    for i, size in enumerate(ADAM_SIZES):
        found = {lr: [first_hit(network, KFAC(lr), size, s) for s in range(ADAM_SEEDS)] for lr in KFAC_RATES}
        best = min(found.values(), key=lambda hits: float(np.median(hits)))
        yield row_of("KFAC", size, (float(np.median(best)), min(best), max(best)), ahead, i)


def row_of(name: str, size: float, measured: tuple[float, float, float], ahead: Arrivals, i: int) -> Row:
    """Measured and predicted steps at one batch size."""
    hit = ahead.hits[i]
    told = {"optimizer": name, "batch_size": int(size), "steps": measured[0], "low": measured[1], "high": measured[2]}
    predicted = {} if hit is None else {"predicted": hit.steps, "predicted_low": hit.low, "predicted_high": hit.high}
    found = {**told, **predicted, "expected": float(ahead.expected.steps[i])}
    print(found, flush=True)
    return found


def main() -> None:
    torch.set_num_threads(1)
    network, table = workload("digits").network(), table_of("digits_checkpoint")
    found, rows = fit(network), list[Row]()
    for curve in read_curves(table):
        sizes = curve.batch_sizes.tolist()
        ahead = arrivals_of(found, FAMILIES[curve.name], sizes, TARGET, growth=GROWTH, searched=True)
        own = [row for row in table if row["optimizer"] == curve.name]
        numbers = [tuple(float(row[k]) for k in ("steps", "low", "high")) for row in own]  # type: ignore[arg-type]
        rows += [row_of(curve.name, size, numbers[i], ahead, i) for i, size in enumerate(sizes)]  # type: ignore[arg-type]
    FILE.write_text(to_csv([*rows, *adam_rows(network), *kfac_rows(network)]))


if __name__ == "__main__":
    main()
