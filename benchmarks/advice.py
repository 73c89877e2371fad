"""What ``nqm advise`` recommends, trained for real: ``python -m benchmarks.advice [digits relu_mlp ...]``.

For each workload a fit at its checkpoint is asked for the setting that reaches a target soonest, for two targets and several
batch sizes: the best of SGD, heavy ball, Nesterov and EMA, and SGD, heavy ball and EMA alone. Each setting is trained with five
orders of examples until its loss, looked at every step, is below the target. Promised and real steps are written to
docs/checks/advice.csv. ``digits_adamw`` is digits 200 steps into a training by AdamW, and asks for the learning rate of AdamW.
``digits_100`` is digits after 100 steps, and ``relu_mlp`` an MLP with ReLU on 600 digits after 200 steps.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.adamw_prediction import BATCH_SIZE, HORIZON, LR, STEPS, state_dict, train
from benchmarks.prediction_cases import RELU
from nqm import EMA, SGD, HeavyBall
from nqm.nets import Network, fit, workload
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.verifying import verify
from nqm.optimizers import Optimizer
from nqm.show.tables import to_csv

FILE = Path(__file__).parents[1] / "docs" / "checks" / "advice.csv"
NETWORKS: dict[str, Callable[[], Network]] = {
    "digits": lambda: workload("digits").network(),
    "digits_100": lambda: workload("digits").network(100),
    "relu_mlp": lambda: RELU.network(200),
    "mnist_cnn": lambda: workload("mnist_cnn").network(examples=2000),
}
CHECKED = ("digits", "digits_100", "relu_mlp", "digits_adamw")  # without mnist_cnn, which takes half an hour
SHARES = (0.7, 0.5)  # targets, as shares of the loss at the checkpoint
SIZES = (8, 32, 128, 512)
DESCENT = 300  # full gradients of the fits, so that the lowest target lies within
WITHIN = 1.3  # factor within which a promise counts as kept
Row = dict[str, Any]


def fitted(name: str) -> tuple[Network, Fit, object, tuple[Optimizer | None, ...]]:
    """The network at its checkpoint, the fit, the state of its optimizer, and the families to ask for."""
    if name != "digits_adamw":
        network = NETWORKS[name]()
        return network, fit(network, descent=DESCENT), None, (None, SGD(), HeavyBall(), EMA(SGD()))
    network = workload("digits").network(0)
    _, theta, state = train(network, LR, BATCH_SIZE, [STEPS], 99)
    network = network.at(theta, STEPS)
    given = state_dict(network, state)
    return network, fit(network, optimizer=given, horizon=HORIZON), given, (None,)


def rows_of(name: str) -> list[Row]:
    """Promised and real steps of a workload."""
    network, found, state, families = fitted(name)
    rows = list[Row]()
    for share in SHARES:
        target = float(f"{share * found.loss:.3g}")
        for size in SIZES:
            for family in families:
                advice = found.advise(size, target, family, batch_sizes=[size])
                row = {"workload": name, "family": str(family or "best"), "target": target, "batch_size": size}
                if advice.best is None:
                    print(row, advice.sentences[0], flush=True)
                    continue
                real = verify(network, found, advice, state=state)
                told = {"optimizer": str(real.optimizer), "promised": real.promised, "low": real.low, "high": real.high}
                hits = {"steps": real.steps, "inside": real.inside, "trainings": len(real.hits)}
                rows.append({**row, **told, **hits, "expected": float(advice.arrivals[0].expected.steps[0])})
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(CHECKED), help=f"of {', '.join(NETWORKS)}, digits_adamw")
    names = parser.parse_args().workloads
    torch.set_num_threads(1)
    rows: list[Row] = list(csv.DictReader(FILE.open())) if FILE.exists() else []
    for name in names:
        rows = [*(row for row in rows if row["workload"] != name), *rows_of(name)]
        FILE.write_text(to_csv(rows))
    for name in dict.fromkeys(row["workload"] for row in rows):
        for family in dict.fromkeys(row["family"] for row in rows if row["workload"] == name):
            mine = [row for row in rows if (row["workload"], row["family"]) == (name, family)]
            ratio = np.array([float(row["steps"]) / float(row["promised"]) for row in mine])
            near = np.mean((ratio < WITHIN) & (ratio > 1 / WITHIN))
            late = np.mean(ratio <= WITHIN)
            held = sum(int(row["inside"]) for row in mine) / sum(int(row["trainings"]) for row in mine)
            print(
                f"{name}, {family}: {near:.0%} within {WITHIN}x, {late:.0%} no later, of {len(mine)}; band holds {held:.0%}"
            )


if __name__ == "__main__":
    main()
