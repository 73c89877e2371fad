"""The tables of docs/predicted.md, from docs/checks/advice.csv, predicted.csv, predicted_cnn.csv and fashion_checkpoint.csv."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from nqm.search.sweeps import excess_at
from nqm.show.tables import markdown

CHECKS = Path(__file__).with_name("checks")
WORDS = (
    "workload",
    "family",
    "optimizer",
    "state",
    "label",
    "rule",
    "at_edge",
    "fresh_seeds",
    "searches",
    "search_rates",
)
"""Columns that are not numbers."""
WITHIN = 1.3  # factor within which a promise counts as kept
Rows = list[dict[str, Any]]


def read_rows(name: str) -> Rows:
    """A file of docs/checks, numbers as numbers."""
    with (CHECKS / f"{name}.csv").open() as file:
        return [{k: v if k in WORDS else float(v or "nan") for k, v in row.items()} for row in csv.DictReader(file)]


def advice_table() -> str:
    """For each workload and family: how many promises were kept, and how many trainings were inside their band."""
    rows, lines = read_rows("advice"), []
    for workload, family in dict.fromkeys((row["workload"], row["family"]) for row in rows):
        mine = [row for row in rows if (row["workload"], row["family"]) == (workload, family)]
        ratio = np.array([row["steps"] / row["promised"] for row in mine])
        near, soon = (int(np.sum(part)) for part in ((ratio <= WITHIN) & (ratio >= 1 / WITHIN), ratio <= WITHIN))
        inside, trainings = (int(sum(row[k] for row in mine)) for k in ("inside", "trainings"))
        shown = {"best": "`AdamW()`" if workload.endswith("adamw") else "the soonest of four"}.get(
            family, f"`{family}`"
        )
        middle = float(np.median(ratio))
        worst = max(ratio.tolist(), key=lambda x: abs(math.log(x)) if math.isfinite(x) else math.inf)
        far = f"{worst:.2f}" if math.isfinite(worst) else "never"
        lines.append((
            f"`{workload}`", shown, f"{near} of {len(mine)}", f"{soon} of {len(mine)}", f"{middle:.2f} ({far})",
            f"{inside / trainings:.0%} of {trainings}",
        ))  # fmt: skip
    names = [
        "workload",
        "asked for",
        "within 1.3x",
        "no later than 1.3x",
        "real / promised, median (worst)",
        "band holds",
    ]
    return markdown(names, lines)


def predicted_table(file: str = "predicted") -> str:
    """Measured steps with their interval, and predicted ones with their band if it is known, by batch size and optimizer."""
    rows = read_rows(file)
    names = list(dict.fromkeys(row["optimizer"] for row in rows))
    cells = {(row["optimizer"], row["batch_size"]): row for row in rows}
    lines = [
        (f"{size:,.0f}", *(_cell(cells.get((name, size))) for name in names))
        for size in sorted({row["batch_size"] for row in rows})
    ]
    return markdown(["batch size", *(f"`{name}`" for name in names)], lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    measured = f"{row['steps']:.0f} ({row['low']:.0f} to {row['high']:.0f})"
    if not math.isfinite(row["predicted"]):
        return f"{measured}, not predicted"
    band = f" ({row['predicted_low']:.0f} to {row['predicted_high']:.0f})" if "predicted_low" in row else ""
    return f"{measured}, {row['predicted']:.0f}{band}"


def critical_table(file: str = "predicted") -> str:
    """Critical batch sizes, twice perfect scaling, of measured and of predicted steps, and how many steps were near."""
    rows, lines = read_rows(file), []
    for name in dict.fromkeys(row["optimizer"] for row in rows):
        mine = [row for row in rows if row["optimizer"] == name]
        sizes = np.array([row["batch_size"] for row in mine])
        columns = [k for k in ("steps", "predicted", "expected") if k in mine[0]]
        steps = {k: np.array([row[k] for row in mine]) for k in columns}
        if not np.isfinite(steps["predicted"]).all():
            continue
        found = [float(excess_at(sizes, steps[k] * sizes, 2.0)) for k in columns]
        ratio = steps["predicted"] / steps["steps"]
        near = int(np.sum((ratio <= WITHIN) & (ratio >= 1 / WITHIN)))
        shown = (f"{x:.0f}" if math.isfinite(x) else "not reached" for x in found)
        lines.append((f"`{name}`", f"{near} of {len(mine)}", f"{ratio.min():.2f} to {ratio.max():.2f}", *shown))
    names = [
        "optimizer",
        "within 1.3x",
        "predicted / measured",
        "critical size, measured",
        "by first hits",
        "by expected loss",
    ]
    return markdown(names[: len(lines[0])], lines)
