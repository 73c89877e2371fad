"""Figure 3a: steps to the target against batch size, SGD and heavy ball, four preconditioners."""

from __future__ import annotations

import numpy as np

from ...show.tables import Table, column, markdown
from ...show.verdict import Finding
from ..claims import claim
from ..drawing import steps_chart
from ..instance import POWERS, WITH_MOMENTUM, PaperStudy

TITLE = "Figure 3a: steps against batch size, with and without momentum"
CAPTION = (
    "Steps to loss 0.01, every setting tuned at every batch size, for SGD (dashed) and heavy ball (solid) with the "
    "preconditioner H^-p. Level lines: the steps of conjugate gradients without noise (CG) for each p. Grey: the Bayes bound, "
    "which the paper's bound d/2CB exceeds by 1%, and perfect scaling from SGD's first point."
)
draw = steps_chart


def data(study: PaperStudy) -> Table:
    """Tuned steps and settings for each method, preconditioner and batch size, and the bounds there."""
    floors = {power: study.cg_steps(power) for power in POWERS}
    rows = study.table(WITH_MOMENTUM)
    return [{**row, **study.bounds(row["batch_size"]), "cg_steps": floors[row["power"]]} for row in rows]


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    momentum = ("momentum_small_batch", "momentum_large_batch")
    preconditioning = ("preconditioning_extends_scaling", "preconditioning_helps_small_batch")
    names = (*momentum, *preconditioning, "noise_bound", "mccandlish_hyperbola")
    return [claim(name).finding(study) for name in names]


def tables(table: Table, study: PaperStudy) -> str:
    """A table of all tuned steps, and one of the critical batch sizes by each definition."""
    sizes = column(table, "batch_size", optimizer="SGD", power=0.0)
    rows = [
        [f"{m}, p = {p:g}", *column(table, "steps", optimizer=m, power=p)] for m in WITH_MOMENTUM for p in POWERS
    ]  # fmt: skip
    for name, label in (("paper_bound", "d/(2CB)"), ("bayes_bound", "Bayes bound")):
        rows.append([label, *column(table, name, optimizer="SGD", power=0.0)])
    critical = []
    for method, optimizer in WITH_MOMENTUM.items():
        for p, found in zip(POWERS, study.by_power(optimizer), strict=True):
            knee = found.critical_batch_size("knee") if method == "SGD" else None
            by = (found.critical_batch_size(name) for name in ("2x", "20%", "ratio"))
            critical.append([f"{method}, p = {p:g}", *by, knee])
    steps = markdown(["B", *(f"2^{np.log2(b):g}" for b in sizes)], rows)
    return (
        f"### Tuned steps to the target\n\n{steps}\n\n### Critical batch sizes\n\n"
        "Batch size at which steps are twice perfect scaling, and 20% above it, Emin / Smin, and SGD's closed-form knee "
        "tr(P^-1 C) / (2 max(h/P) target).\n\n" + markdown(["", "2x", "20%", "Emin/Smin", "knee"], critical)
    )
