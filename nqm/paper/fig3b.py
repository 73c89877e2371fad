"""Figure 3b: steps to the target against batch size, with and without an exponential moving average of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..optimizers import EMA, SGD, Optimizer
from .pictures import steps_chart
from .study import POWERS, Finding, Question, Study, Table, Verdict, column, preconditioned, spelled, sweep_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Figure 3b: steps against batch size, with and without averaging"
CAPTION = (
    "Steps to loss 0.01 for SGD (dashed) and for the moving average of its weights (solid), learning rate and decay "
    "tuned at every batch size, with the preconditioner H^-p."
)


def questions(study: Study) -> list[Question]:
    return [study.to_sweep(method) for power in POWERS for method in _methods(power).values()]


def data(study: Study | None = None) -> Table:
    """Tuned steps and settings of SGD and of its average for each preconditioner and batch size, and the bounds."""
    study = study or Study()
    table = []
    for power in POWERS:
        for name, optimizer in _methods(power).items():
            rows = sweep_rows(study.sweep(optimizer), optimizer=name, power=power)
            table += [{**row, **study.bounds(row["batch_size"])} for row in rows]
    return table


def _methods(power: float) -> dict[str, Optimizer]:
    inner = preconditioned(SGD(), power)
    return {"SGD": inner, "SGD with EMA": EMA(inner)}


def draw(table: Table) -> Figure:
    return steps_chart(table)


def findings(table: Table, study: Study) -> list[Finding]:
    ratio = {
        p: column(table, "steps", optimizer="SGD with EMA", power=p) / column(table, "steps", optimizer="SGD", power=p)
        for p in POWERS
    }
    sizes = column(table, "batch_size", optimizer="SGD", power=0.0)
    small, large = [r[0] for r in ratio.values()], [r[-1] for r in ratio.values()]
    plain = [study.sweep(preconditioned(SGD(), p)).critical_batch_size() for p in POWERS]
    averaged = [study.sweep(EMA(preconditioned(SGD(), p))).critical_batch_size() for p in POWERS]
    return [
        Finding(
            "Averaging the weights saves steps at small batch sizes.",
            f"At B = {sizes[0]:g} the average needs {spelled(small)} of SGD's steps for p = {spelled(POWERS)}.",
            Verdict.of(*(r < 0.9 for r in small)),
        ),
        Finding(
            "It saves nothing at large ones.",
            f"At B = {sizes[-1]:,.0f} the share is {spelled(large)}.",
            Verdict.of(*(r > 0.95 for r in large)),
        ),
        Finding(
            "So it reaches diminishing returns at a smaller batch than SGD does.",
            f"Critical batch size (20%) for p = {spelled(POWERS)}: {', '.join(f'{b:,.0f}' for b in averaged)} with the "
            f"average, {', '.join(f'{b:,.0f}' for b in plain)} without.",
            Verdict.of(*(bool(a < b) for a, b in zip(averaged, plain, strict=True) if np.isfinite([a, b]).all())),
        ),
    ]
