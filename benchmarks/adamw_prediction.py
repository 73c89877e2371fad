"""How well AdamW is predicted from its state: ``python -m benchmarks.adamw_prediction [digits fashion_mlp ...]``.

Torch's own AdamW trains a workload for 200 steps of 64 examples. There the network is fitted in the metric of that state, with
a descent for 600 steps of the largest rate: twice the steps that are predicted, because steps grow as v falls. Then it goes on with
three learning rates and four batch sizes, predicted and for real, with two or four orders of examples. The losses are written to
docs/checks/adamw.csv, and trainings that are in it are not made again. A workload takes some minutes. The share of noise inside the
bend and the width of intervals were chosen on the first three workloads.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nqm import AdamW
from nqm.nets import Fit, Network, fit, workload
from nqm.show.tables import to_csv
from nqm.types import Array

FILE = Path(__file__).parents[1] / "docs" / "checks" / "adamw.csv"
WORKLOADS = {
    "digits": 1797,
    "fashion_mlp": 4000,
    "fashion_cnn": 2000,
    "mnist_cnn": 2000,
}  # and how many of their examples
STEPS, LR, BATCH_SIZE, DECAY = 200, 1e-3, 64, 0.01  # of the training up to the fit
TIMES = (10, 30, 100, 300)
HORIZON = (2 * TIMES[-1], 3 * LR)  # of the fit
SIZES = (16, 64, 256, 1024)
STREAM = 7  # of the batches


def train(
    network: Network, lr: float, size: int, times: Sequence[int], seed: int, state: dict[str, Any] | None = None
) -> tuple[list[float], Tensor, dict[str, Any]]:  # fmt: skip
    """Losses at some steps of torch's AdamW on the flat weights, the weights at the end, and the state there."""
    weights = torch.nn.Parameter(network.theta.clone())
    optimizer = torch.optim.AdamW([weights], lr=lr, weight_decay=DECAY)
    if state is not None:
        optimizer.state[weights] = {k: v.clone() for k, v in state.items()}
    rng, losses, t = np.random.default_rng([STREAM, seed]), list[float](), 0
    for last in times:
        while t < last:
            index = torch.from_numpy(rng.integers(network.examples, size=size))
            weights.grad = network.gradient(weights.detach(), network.take(index))
            optimizer.step()
            t += 1
        losses.append(network.full_loss(weights.detach()))
    return losses, weights.detach(), optimizer.state[weights]


def state_dict(network: Network, state: dict[str, Any]) -> dict[str, Any]:
    """The state of the flat weights as torch would have it for the network's parameters."""
    parts = {name: list(network.unflatten(state[name]).values()) for name in ("exp_avg", "exp_avg_sq")}
    numbers = list(range(len(network.shapes)))
    group = {"params": numbers, "lr": LR, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": DECAY}
    each = {i: {"step": state["step"], **{name: part[i] for name, part in parts.items()}} for i in numbers}
    return {"state": each, "param_groups": [group]}


def rows_of(name: str, kept: Sequence[dict[str, Any]], folder: Path | None) -> list[dict[str, object]]:
    """Predicted and real losses of all settings of a workload; trainings that were kept are not made again."""
    network = workload(name).network(0, examples=WORKLOADS[name])
    _, theta, state = train(network, LR, BATCH_SIZE, [STEPS], 99)
    network, rows = network.at(theta, STEPS), list[dict[str, object]]()
    file = folder and folder / f"adamw_{name}.npz"
    found = (
        fit(network, optimizer=state_dict(network, state), horizon=HORIZON)
        if not (file and file.exists())
        else Fit.load(file)
    )
    if file:
        found.save(file)
    for lr in (LR / 3, LR, 3 * LR):
        for size in SIZES:
            ahead = found.predict(AdamW(lr, weight_decay=DECAY), size, TIMES)
            real = [
                row for row in kept if (row["workload"], float(row["lr"]), float(row["batch_size"])) == (name, lr, size)
            ]
            mean, error = ([float(row[k]) for row in real] for k in ("trained", "stderr"))
            if not real:
                seeds = range(4 if size <= BATCH_SIZE else 2)
                losses = np.array([train(network, lr, size, TIMES, seed, state)[0] for seed in seeds])
                mean, error = losses.mean(0).tolist(), (losses.std(0, ddof=1) / len(losses) ** 0.5).tolist()
            told = zip(TIMES, mean, error, ahead.loss, ahead.low, ahead.high, strict=True)
            names = ("steps", "trained", "stderr", "predicted", "low", "high")
            rows += [
                {"workload": name, "lr": lr, "batch_size": size, **dict(zip(names, row, strict=True))} for row in told
            ]
            print(name, lr, size, (100 * (ahead.loss / mean - 1)).round(1), flush=True)
    return rows


def errors(rows: Sequence[dict[str, Any]], name: str) -> Array:
    """Relative errors of a workload, (setting, step)."""
    mine = [float(row["predicted"]) / float(row["trained"]) - 1 for row in rows if row["workload"] == name]
    return np.array(mine).reshape(-1, len(TIMES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "workloads", nargs="*", default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)} (default: all)"
    )
    parser.add_argument("--folder", type=Path, help="folder that keeps fits; those in it are not made again")
    parser.add_argument("--again", action="store_true", help="make trainings again that are in the file")
    given = parser.parse_args()
    names, old = given.workloads, list(csv.DictReader(FILE.open())) if FILE.exists() else []
    kept = [] if given.again else old
    rows = [row for row in old if row["workload"] not in names]
    rows += [row for name in names for row in rows_of(name, kept, given.folder)]
    FILE.write_text(to_csv(rows))
    for name in dict.fromkeys(str(row["workload"]) for row in rows):
        found = np.abs(errors(rows, name))
        print(name, "median", (100 * np.median(found, 0)).round(2), "worst", (100 * found.max(0)).round(1))
        held = [float(r["low"]) <= float(r["trained"]) <= float(r["high"]) for r in rows if r["workload"] == name]
        print(name, "interval holds", f"{np.mean(held):.0%} of {len(held)}")


if __name__ == "__main__":
    main()
