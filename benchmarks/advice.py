"""What ``nqm advise`` recommends, trained for real: ``python -m benchmarks.advice [digits relu_mlp ...]``.

For each workload a fit at its checkpoint is asked for the setting to take, for two targets and several batch sizes: the best of
SGD, heavy ball, Nesterov and EMA, and each of these families alone. Each setting is trained with five
orders of examples until its loss, looked at every step or every four, is below the target. Promised and real steps are written to
docs/checks/advice.csv. ``digits_adamw`` is digits 200 steps into a training by AdamW, and asks for the learning rate of AdamW.
``digits_100`` is digits after 100 steps, and ``relu_mlp`` an MLP with ReLU on 600 digits after 200 steps. The others have 2,000
examples, and of them only the best is trained. The rules of the advice were
chosen on ``digits``, ``digits_100`` and ``fashion_mlp``.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.adamw_prediction import BATCH_SIZE, HORIZON, LR, STEPS, state_dict, train
from benchmarks.prediction_cases import RELU
from nqm.nets import Network, fit, workload
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.verifying import Verified, verify
from nqm.show.tables import to_csv

FILE = Path(__file__).parents[1] / "docs" / "checks" / "advice.csv"
NETWORKS: dict[str, Callable[[], Network]] = {
    "digits": lambda: workload("digits").network(),
    "digits_100": lambda: workload("digits").network(100),
    "relu_mlp": lambda: RELU.network(200),
    "fashion_mlp": lambda: workload("fashion_mlp").network(examples=2000),
    "fashion_cnn": lambda: workload("fashion_cnn").network(examples=2000),
    "mnist_cnn": lambda: workload("mnist_cnn").network(examples=2000),
}
SMALL = ("digits", "digits_100", "relu_mlp")  # workloads on which the best setting of each family is trained too
LARGE = ("fashion_mlp", "fashion_cnn", "mnist_cnn")  # workloads whose loss is looked at every four steps
SHARES = (0.7, 0.5)  # targets, as shares of the loss at the checkpoint
SIZES = (8, 32, 128, 512)
DESCENT = 300  # full gradients of the fits, so that the lowest target lies within
WITHIN = 1.3  # factor within which a promise counts as kept
Row = dict[str, Any]


def fitted(name: str, folder: Path | None) -> tuple[Network, Fit, object]:
    """The network at its checkpoint, the fit, and the state of its optimizer; a folder keeps fits."""
    file, given, how = folder and folder / f"advice_{name}.npz", None, dict[str, Any](descent=DESCENT)
    if name == "digits_adamw":
        network = workload("digits").network(0)
        _, theta, state = train(network, LR, BATCH_SIZE, [STEPS], 99)
        network = network.at(theta, STEPS)
        given = state_dict(network, state)
        how = {"optimizer": given, "horizon": HORIZON}
    else:
        network = NETWORKS[name]()
    found = Fit.load(file) if file and file.exists() else fit(network, **how)
    if file:
        found.save(file)
    return network, found, given


def rows_of(name: str, folder: Path | None) -> list[Row]:
    """Promised and real steps of a workload."""
    network, found, state = fitted(name, folder)
    rows, known = list[Row](), dict[tuple[str, int, float], Verified]()
    for share in SHARES:
        target = float(f"{share * found.loss:.3g}")
        asked = found.advise(SIZES[0], target, batch_sizes=SIZES, cadence=1 if name not in LARGE else 4)
        parts = {"best": asked.arrivals}
        parts |= {str(one.family): (one,) for one in asked.arrivals} if name in SMALL else {}
        for size, (family, arrivals) in product(SIZES, parts.items()):
            advice = replace(asked, batch_size=float(size), arrivals=arrivals)
            row = {"workload": name, "family": family, "target": target, "batch_size": size}
            if advice.best is None:
                print(row, asked.sentences[0], flush=True)
                continue
            key = str(advice.optimizer), size, target
            known[key] = real = known.get(key) or verify(network, found, advice, state=state)
            told = {"optimizer": key[0], "promised": real.promised, "low": real.low, "high": real.high}
            hits = {"steps": real.steps, "inside": real.inside, "trainings": len(real.hits)}
            rows.append({**row, **told, **hits})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*NETWORKS, "digits_adamw"]
    parser.add_argument("workloads", nargs="*", default=every, help=f"of {', '.join(every)}")
    parser.add_argument("--folder", type=Path, help="folder that keeps fits; those in it are not made again")
    names, folder = (given := parser.parse_args()).workloads, given.folder
    torch.set_num_threads(1)
    rows: list[Row] = list(csv.DictReader(FILE.open())) if FILE.exists() else []
    for name in names:
        rows = [*(row for row in rows if row["workload"] != name), *rows_of(name, folder)]
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
