"""The published runs of tests/data/curves as logs, with the learning rate of each of their steps."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nqm.logs import Log, read_logs
from nqm.types import Array

CURVES = Path(__file__).parents[1] / "tests" / "data" / "curves"
WEIGHT_DECAY = 0.1  # of all these runs; the files of the Multi-Power Law do not say theirs
SIZES = ("25M", "100M")
OWN_SPLIT = ("cosine_24000", "constant_24000", "wsdcon_9")  # the three runs to which the Multi-Power Law was fitted
FITTED_RUNS = (
    123,
    131,
    138,
    142,
    165,
    167,
    170,
    172,
    231,
    233,
)  # ten runs of lr_scheduling at the peaks 5e-4 and 2e-3
LEFT_ALONE = frozenset({184})  # This run was trained on another part of the data.


def multi_power_law(size: str) -> dict[str, Log]:
    """The nine runs of one size by the names of their schedules."""
    logs = read_logs(CURVES / "multipowerlaw" / size, optimizer="AdamW", weight_decay=WEIGHT_DECAY)
    return {log.name: log for log in logs}


@dataclass(frozen=True)
class Described:
    """A run of lr_scheduling: its validation losses as a log, and what its authors say of it."""

    log: Log
    peak: float
    steps: int
    scheduler: str
    cooldown: float  # the share of the steps over which the rate falls
    shape: str  # of the cooldown
    final: float  # the authors' last loss, on another validation set than the curves

    @property
    def last(self) -> float:
        """The last loss of the curve."""
        return float(self.log.loss[-1])


def lr_scheduling() -> dict[int, Described]:
    """The runs of lr_scheduling by number, without two-stage runs and runs of more than 50,000 steps."""
    folder = CURVES / "lr_scheduling"
    with open(folder / "runs.csv") as file:
        rows = {int(row["run"]): row for row in csv.DictReader(file)}
    losses: dict[int, dict[int, float]] = defaultdict(dict)
    with gzip.open(folder / "curves.csv.gz", "rt") as file:
        for point in csv.DictReader(file):
            if point["split"] == "val":  # The later of two values at a step replaces the earlier one.
                losses[int(point["run"])][int(point["iter"])] = float(point["loss"])
    found = {}
    for run, row in rows.items():
        if "twostage" in row["scheduler"] or int(row["iterations"]) > 50_000 or run in LEFT_ALONE:
            continue
        step = sorted(losses[run])
        log = Log(
            step, [losses[run][t] for t in step], described_rates(row), optimizer="AdamW", weight_decay=WEIGHT_DECAY,
            name=str(run),
        )  # fmt: skip
        found[run] = Described(
            log, float(row["lr"]), int(row["iterations"]), row["scheduler"], float(row["wsd_fract_decay"] or 0),
            row["decay_type"] or "linear", float(row["final_val_loss"]),
        )  # fmt: skip
    return found


def described_rates(row: dict[str, str]) -> Array:
    """The rate of each step from the description of a run: warm-up, then cosine, or constant with a cooldown."""
    peak, steps, warm_up = float(row["lr"]), int(row["iterations"]), int(row["warmup_steps"])
    t = np.arange(steps)
    if row["scheduler"] == "cos":
        end = 0.1 if row["cos_final_lr"] in ("", "-1") else float(row["cos_final_lr"]) / peak
        factor = end + (1 - end) * (1 + np.cos(np.pi * (t - warm_up) / (steps - warm_up))) / 2
        rising = (1 - np.cos(np.pi * t / warm_up)) / 2
    else:
        length = max(int(steps * float(row["wsd_fract_decay"] or 0)), 1)
        u = np.maximum(t - (steps - length), 0) / length
        factor = 1 - (np.sqrt(u) if row["decay_type"] == "sqrt" else u)
        rising = t / warm_up
    return peak * np.where(t < warm_up, 0.01 + 0.99 * rising, factor)
