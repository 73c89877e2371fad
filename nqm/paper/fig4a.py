"""Figure 4a: the best learning rate against batch size, as it is set and effective."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..optimizers import SGD
from ..plot import Panel, chart, linear_in_batch
from .fig3a import METHODS, questions
from .pictures import curves, keys
from .study import POWERS, Finding, Study, Table, Verdict, column, preconditioned, spelled, sweep_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Figure 4a: best learning rate against batch size"
CAPTION = (
    "Left: the best learning rate of SGD (dashed) and heavy ball (solid). Right: the effective one, "
    "lr / (1 - momentum). The dotted line is proportional to batch size, from SGD's first point at p = 0."
)


def data(study: Study | None = None) -> Table:
    """Best learning rate, momentum and effective learning rate for each method, preconditioner and batch size."""
    study = study or Study()
    return [
        row
        for power in POWERS
        for name, optimizer in METHODS.items()
        for row in sweep_rows(study.sweep(preconditioned(optimizer, power)), optimizer=name, power=power)
    ]


def draw(table: Table) -> Figure:
    panels, guide = [], None
    for what, name in (("lr", "best learning rate"), ("effective_lr", "best effective learning rate")):
        lines = curves(table, what)
        guide = linear_in_batch(lines[0].x, lines[0].y)
        limits = (min(np.nanmin(line.y) for line in lines) / 1.6, max(np.nanmax(line.y) for line in lines) * 1.6)
        panels.append(Panel([guide, *lines], "batch size", name, "log2", "log2", legend="none", y_limits=limits))
    return chart(panels, size=(7.2, 3.2), key=[*keys(table), *([guide] if guide else [])])


def findings(table: Table, study: Study) -> list[Finding]:
    sizes = column(table, "batch_size", optimizer="SGD", power=0.0)
    slopes = {
        (m, p): np.diff(np.log(column(table, "effective_lr", optimizer=m, power=p))) / np.diff(np.log(sizes))
        for m in METHODS
        for p in POWERS
    }
    first = [slopes["SGD", p][0] for p in POWERS]
    last = [slopes["SGD", p][-1] for p in POWERS]
    # Where SGD's rate has gone flat at p = 0: the first doublings beyond twice its critical batch size.
    beyond = int(np.searchsorted(sizes, 2 * study.sweep(SGD()).critical_batch_size()))
    beyond = min(beyond, len(sizes) - 2)
    plain, heavy = slopes["SGD", 0.0][beyond], slopes["heavy ball", 0.0][beyond]
    return [
        Finding(
            "SGD's best learning rate grows linearly with batch size, then stays flat.",
            f"Slope of log lr over log B for p = {spelled(POWERS)}: {spelled(first)} from B = {sizes[0]:g} to "
            f"{sizes[1]:g}, {spelled(last, '.2g')} from {sizes[-2]:,.0f} to {sizes[-1]:,.0f}.",
            Verdict.of(all(abs(s - 1) < 0.05 for s in first), all(abs(s) < 0.05 for s in last)),
        ),
        Finding(
            "With momentum the best effective learning rate goes on growing where SGD's has gone flat.",
            f"From B = {sizes[beyond]:,.0f} to {sizes[beyond + 1]:,.0f} at p = 0 the slope is {heavy:.3g} for heavy "
            f"ball's effective rate, {plain:.3g} for SGD's.",
            Verdict.of(bool(heavy > 0.5 and heavy > 3 * plain)),
        ),
    ]


__all__ = ["data", "draw", "findings", "questions"]
