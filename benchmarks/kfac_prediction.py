"""How well K-FAC is predicted from a fit in its metric: ``python -m benchmarks.kfac_prediction [digits relu_mlp ...]``.

Each network is fitted at its checkpoint in the metric of `KFAC()`. From there the lab's K-FAC trains it at four learning rates, with
and without momentum, at four batch sizes, with four orders of examples at small batches and two at large ones. The losses are
written to docs/checks/kfac.csv beside the predicted ones, and trainings that are in it are not made again. A network takes some
minutes. The form of the model was chosen on digits, relu_mlp and fashion_cnn; the others only check it.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.prediction_cases import GELU, RELU
from nqm.nets import KFAC, Fit, Network, fit, workload
from nqm.show.tables import to_csv
from nqm.types import Array

FILE = Path(__file__).parents[1] / "docs" / "checks" / "kfac.csv"
RATES, MOMENTA, SIZES = (0.01, 0.03, 0.1, 0.3), (0.0, 0.5), (16, 64, 256, 1024)
TIMES = (10, 30, 100)
MANY, FEW = 4, 2  # trainings of a setting with small batches, and with large ones
SMALL = 64  # largest batch size that counts as small
NETWORKS: dict[str, Callable[[], Network]] = {
    "digits": lambda: workload("digits").network(),
    "relu_mlp": lambda: RELU.network(100),
    "fashion_cnn": lambda: workload("fashion_cnn").network(examples=2000),
    "gelu_mlp": lambda: GELU.network(examples=2000),
    "fashion_mlp": lambda: workload("fashion_mlp").network(examples=2000),
    "mnist_cnn": lambda: workload("mnist_cnn").network(examples=2000),
}
CHOSEN_ON = ("digits", "relu_mlp", "fashion_cnn")


def rows_of(name: str, kept: Sequence[dict[str, Any]], folder: Path | None) -> list[dict[str, object]]:
    """Predicted and real losses of all settings of a network; trainings that were kept are not made again."""
    network, rows = NETWORKS[name](), list[dict[str, object]]()
    file = folder and folder / f"kfac_{name}.npz"
    found = Fit.load(file) if file and file.exists() else fit(network, optimizer=KFAC())
    if file:
        found.save(file)
    known = {(row["network"], *(float(row[k]) for k in ("lr", "momentum", "batch_size", "steps"))): row for row in kept}
    for lr in RATES:
        for momentum in MOMENTA:
            for size in (size for size in SIZES if size <= network.examples):
                one, setting = KFAC(lr, momentum=momentum), (name, lr, momentum, float(size))
                ahead = found.predict(one, size, TIMES)
                if not ahead.run.outcome.ok:
                    print(*setting, ahead.message, flush=True)
                    continue
                real = [known[*setting, float(t)] for t in TIMES if (*setting, float(t)) in known]
                mean, error = (np.array([float(row[k]) for row in real]) for k in ("trained", "stderr"))
                if not real:
                    run = network.run(one, size, TIMES, seeds=MANY if size <= SMALL else FEW)
                    assert run.stderr is not None
                    mean, error = run.loss, run.stderr
                told = zip(TIMES, mean, error, ahead.loss, ahead.low, ahead.high, ahead.reach, strict=True)
                about = {"network": name, "lr": lr, "momentum": momentum, "batch_size": size}
                names = ("steps", "trained", "stderr", "predicted", "low", "high", "reach")
                share = [{"noise": float(n / size / p)} for n, p in zip(ahead.run.noise, ahead.loss, strict=True)]
                rows += [
                    {**about, **dict(zip(names, row, strict=True)), **n} for row, n in zip(told, share, strict=True)
                ]
                print(*setting, (100 * (ahead.loss / mean - 1)).round(1), flush=True)
    return rows


def errors(rows: Sequence[dict[str, Any]], name: str) -> Array:
    """Relative errors of a network, (setting, step)."""
    mine = [float(row["predicted"]) / float(row["trained"]) - 1 for row in rows if row["network"] == name]
    return np.array(mine).reshape(-1, len(TIMES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)} (default: all)")
    parser.add_argument("--folder", type=Path, help="folder that keeps fits; those in it are not made again")
    parser.add_argument("--again", action="store_true", help="make trainings again that are in the file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.networks:
        old = list(csv.DictReader(FILE.open())) if FILE.exists() else []
        rows = [row for row in old if row["network"] != name]
        rows += rows_of(name, [] if given.again else old, given.folder)
        FILE.write_text(to_csv(rows))
        found = np.abs(errors(rows, name))
        print(name, "median", (100 * np.median(found, 0)).round(2), "worst", (100 * found.max(0)).round(1))
        held = [float(r["low"]) <= float(r["trained"]) <= float(r["high"]) for r in rows if r["network"] == name]
        print(name, "interval holds", f"{np.mean(held):.0%} of {len(held)}", flush=True)


if __name__ == "__main__":
    main()
