"""What each option of K-FAC does: ``python -m benchmarks.kfac [NAME ...]`` writes docs/checks/kfac_NAME.csv.

NAME is ``digits`` or ``fashion``. Every variant of K-FAC trains at the same settings of learning rate, damping and momentum, from a
wide box, with the same seeds. A row counts how many settings diverged, how many reached the target, and how many steps the best of
them takes with fresh seeds. Digits take a minute of CPU time, the Fashion network about ten.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nqm.lab.space import Space, points
from nqm.nets.training.trial import Trial
from nqm.nets.training.worker import run_trials
from nqm.show.tables import to_csv

CHECKS = Path(__file__).parents[1] / "docs" / "checks"
BOX = {"lr": Space(0.003, 1), "damping": Space(0.001, 1), "momentum": Space(0.3, 0.95, "1-x")}
SETTINGS = 16  # Settings that every variant tries, each with a seed of its own.
FRESH_SEEDS = 5  # Seeds with which the best setting of a variant is trained again.
FIRST_FRESH_SEED = 100  # Seeds from here on have no part in the choice of the best setting.
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "digits": ({"workload": "digits", "target": 0.1, "max_steps": 200}, (64, 512)),
    "fashion": ({"workload": "fashion_cnn", "target": 0.35, "max_steps": 60}, (1024,)),
}
"""For each data set the workload, its target and the most steps, and the batch sizes."""
STALE = {"kl_clip": 0, "staleness": 0.5}
VARIANTS: dict[str, dict[str, float]] = {
    "neither": STALE,
    "fresh inverses": {"kl_clip": 0},
    "clip": {"staleness": 0.5},
    "both, the default": {},
    "both and ratio test": {"damping_period": 5},
    "both and warm-up": {"warmup": 10},
    "both and weight decay": {"weight_decay": 0.01},
}
"""Settings of each variant; ``staleness = 0.5`` renews inverses at steps 1, 2, 4, 8 and then every ten steps."""


def trial(case: str, batch_size: int, settings: dict[str, float], seed: int) -> Trial:
    task, _ = CASES[case]
    return Trial(
        task["workload"], {}, "KFAC", settings, (), batch_size, "train_loss", task["target"], task["max_steps"],
        growth=0.0, seed=seed,
    )  # fmt: skip


def row(case: str, batch_size: int, variant: str) -> dict[str, Any]:
    """What one variant does at one batch size. Each setting has its own seed, so that none stops another."""
    chosen = [{**one, **VARIANTS[variant]} for one in islice(points([BOX], (0,)), SETTINGS)]
    found = run_trials([trial(case, batch_size, one, seed) for seed, one in enumerate(chosen)])
    reached = [(result.steps["raw"], i) for i, result in enumerate(found) if result.steps["raw"] is not None]
    best = chosen[min(reached)[1]] if reached else {}
    seeds = range(FIRST_FRESH_SEED, FIRST_FRESH_SEED + FRESH_SEEDS if reached else FIRST_FRESH_SEED)
    again = [r.steps["raw"] or np.inf for r in run_trials([trial(case, batch_size, best, seed) for seed in seeds])]
    return {
        "batch_size": batch_size, "variant": variant, "settings": SETTINGS,
        "diverged": sum(result.outcome == "diverged" for result in found), "reached": len(reached),
        "steps": float(np.median(again)) if again else None, "low": min(again, default=None),
        "high": max(again, default=None), **{name: best.get(name) for name in BOX},
    }  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:] or list(CASES):
        table: list[dict[str, Any]] = []
        for size in CASES[name][1]:
            for kind in VARIANTS:
                table.append(row(name, size, kind))
                print(name, table[-1], flush=True)
                to_csv(table, CHECKS / f"kfac_{name}.csv")
