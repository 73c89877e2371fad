"""A small study whose trials are a formula, as an object and as a file, and what is seen of its runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from nqm.lab import Store, Study

Table = list[dict[str, Any]]

TOML = """\
[study]
workload = "one mode"
worker = "lab_workers:{worker}"
target = 0.05
batch_sizes = "4..64..4"
trials = 6
round = 4
refine = 0
searches = 1
seeds = 3
widen = false
max_steps = 4000

[optimizers.SGD]
lr = {{low = 1e-3, high = 4}}

[optimizers.HeavyBall]
lr = {{low = 1e-3, high = 1}}
momentum = {{low = 0.5, high = 0.99}}
averages = [0.9, 0.99]
"""


def small(**changes: Any) -> Study:
    """The study, with some of it changed."""
    data = tomllib.loads(TOML.format(worker=changes.pop("worker", "run_trials")))
    optimizers = changes.pop("optimizers", data["optimizers"])
    return Study.from_dict({"study": data["study"] | changes, "optimizers": optimizers}, "small")


def stored(path: Path) -> list[str]:
    """Keys in a store, also while it is being written."""
    if not path.exists():
        return []
    with Store.open(path) as store:
        return [kept.trial.key for kept in store.trials()]


def begun(log: Path) -> list[str]:
    """Keys of trials that workers have begun, again and again if they did."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1] for line in lines if len(line.split()) == 2]
