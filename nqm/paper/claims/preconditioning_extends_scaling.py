"""Claim: preconditioning and momentum each extend perfect scaling to larger batches."""

from __future__ import annotations

import itertools

import numpy as np

from ...show.chart import Figure, Panel, chart
from ...show.numbers import spelled
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..drawing import curves, keys, level
from ..instance import POWERS, WITH_MOMENTUM, Methods, PaperStudy
from .base import PAPER, Measured

STATEMENT = "Preconditioning and momentum each extend perfect scaling to larger batches."
ORIGIN = PAPER
SOURCE = "on preconditioning, with Figure 3a"
TOLERANCE = 1.1


def measure(study: PaperStudy, exponent: float = 1.0, methods: Methods = WITH_MOMENTUM) -> Measured:
    """Critical batch sizes, at twice the steps of perfect scaling, of SGD and heavy ball with each preconditioner.

    Parameters
    ----------
    exponent : exponent of the power law of curvatures; with 0 all curvatures are equal.
    methods : the methods that are tuned; if heavy ball is one of them, it is compared with SGD too.
    """
    study = study.on(exponent)
    critical = {m: study.critical(o) for m, o in methods.items()}
    table = study.table(methods)
    fewest_of = {m: [found.bend.fewest for found in study.by_power(o)] for m, o in methods.items()}
    for row in table:
        fewest = fewest_of[row["optimizer"]][POWERS.index(row["power"])]
        found = critical[row["optimizer"]][POWERS.index(row["power"])]
        row |= {"excess": float(row["examples"] / fewest), "critical": found}
    steps = [_factor(a, b) for found in critical.values() for a, b in itertools.pairwise(found)]
    pairs = zip(critical["SGD"], critical["heavy ball"], strict=True) if "heavy ball" in critical else ()
    momentum = [_factor(sgd, heavy_ball) for sgd, heavy_ball in pairs]
    least = min([*steps, *momentum])
    told = "; ".join(f"{m} {', '.join(_size(b) for b in found)}" for m, found in critical.items())
    return Measured(
        table, least, "smallest factor in critical batch size from one power to the next, or by momentum",
        f"Critical batch size (twice the steps of perfect scaling) for p = {spelled(POWERS)}: {told}.",
        TOLERANCE, "critical batch sizes are good to 1%, so 10% is far above their error",
        Verdict.of(*(factor > TOLERANCE for factor in (*steps, *momentum))),
        "" if least > TOLERANCE else "some of the powers",
        "curvatures are equal" if exponent == 0 else f"curvature falls as i^-{exponent:g}: the least factor is {least:.3g}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    lines = curves(table, "excess")
    limit = level(column(table, "batch_size"), 2.0, "twice perfect scaling")
    panel = Panel([limit, *lines], "batch size", "examples over the fewest", "log2", "log2", legend="none")
    return chart([panel], key=[*keys(table), limit])


def _factor(first: float, then: float) -> float:
    """The second critical batch size over the first; 1 if both are beyond the largest batch size that was tried."""
    return 1.0 if np.isnan(first) and np.isnan(then) else then / first if np.isfinite(first) else np.nan


def _size(batch_size: float) -> str:
    return f"{batch_size:,.0f}" if np.isfinite(batch_size) else "beyond the largest"
