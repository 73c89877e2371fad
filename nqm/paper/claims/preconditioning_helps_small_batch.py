"""Claim: preconditioning helps at small batch sizes too."""

from __future__ import annotations

import itertools

import numpy as np

from ...show.chart import Figure, Panel, chart
from ...show.numbers import spelled
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..drawing import curves, keys
from ..instance import POWERS, WITH_MOMENTUM, Methods, PaperStudy
from .base import PAPER, Measured

STATEMENT = "Preconditioning helps at small batch sizes too."
ORIGIN = PAPER
SOURCE = "on preconditioning, with Figure 3a"
TOLERANCE = 1.02


def measure(study: PaperStudy, exponent: float = 1.0, methods: Methods = WITH_MOMENTUM) -> Measured:
    """Steps without a preconditioner over steps with one, at each batch size; the smallest batch size decides.

    Parameters
    ----------
    exponent : exponent of the power law of curvatures; with 0 all curvatures are equal.
    methods : the methods that are tuned.
    """
    study = study.on(exponent)
    table = study.table(methods)
    plain = {(row["optimizer"], row["batch_size"]): row["steps"] for row in table if row["power"] == 0.0}
    for row in table:
        row["gain"] = plain[row["optimizer"], row["batch_size"]] / row["steps"]
    gain = {m: [column(table, "gain", optimizer=m, power=p)[0] for p in POWERS] for m in methods}
    growth = [b / a for found in gain.values() for a, b in itertools.pairwise(found)]
    size = table[0]["batch_size"]
    told = ", ".join(f"{spelled(found[1:])} for {m}" for m, found in gain.items())
    return Measured(
        table, min(growth), "smallest factor in steps from one power to the next",
        f"Steps of p = 0 over those of p = {spelled(POWERS[1:])} at B = {size:g}: {told}.",
        TOLERANCE, "steps are found to 0.1%; 2% is well above that error",
        Verdict.of(*(g > TOLERANCE for g in growth)),
        "" if min(growth) > TOLERANCE else "some of the powers",
        "curvatures are equal" if exponent == 0 else f"curvature falls as i^-{exponent:g}: the factors are {spelled(growth)}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    lines = curves([row for row in table if row["power"]], "gain")
    lines = [line for line in lines if np.isfinite(line.y).any()]
    panel = Panel(lines, "batch size", "steps without it over steps with it", "log2", "log2", legend="none")
    return chart([panel], key=keys([row for row in table if row["power"]]))
