"""Figure 4a: the best learning rate, and the best effective learning rate, against batch size."""

from __future__ import annotations

import numpy as np

from ...optimizers import SGD
from ...show.chart import Figure, chart
from ...show.plots import rates_panel
from ...show.tables import Table, column
from ...show.verdict import Finding, Verdict
from ..claims import claim
from ..claims.lr_linear_then_flat import slopes
from ..drawing import curves, keys
from ..instance import WITH_MOMENTUM, PaperStudy

TITLE = "Figure 4a: best learning rate against batch size"
CAPTION = (
    "Left: the best learning rate of SGD (dashed) and heavy ball (solid). Right: the effective one, "
    "lr / (1 - momentum). The dotted line is proportional to batch size, from SGD's first point at p = 0."
)


def data(study: PaperStudy) -> Table:
    """Best learning rate, momentum and effective learning rate for each method, preconditioner and batch size."""
    return study.table(WITH_MOMENTUM)


def draw(table: Table) -> Figure:
    columns = {"lr": "best learning rate", "effective_lr": "best effective learning rate"}
    panels = [rates_panel(curves(table, what), name) for what, name in columns.items()]
    return chart(panels, size=(7.2, 3.2), key=keys(table))


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    sizes = column(table, "batch_size", optimizer="SGD", power=0.0)
    rates = {m: column(table, "effective_lr", optimizer=m, power=0.0) for m in WITH_MOMENTUM}
    # At p = 0, SGD's best rate is flat from the first batch size beyond twice its critical one.
    beyond = min(int(np.searchsorted(sizes, 2 * study.sweep(SGD()).critical_batch_size())), len(sizes) - 2)
    plain, heavy = (float(slopes(sizes, rates[m])[beyond]) for m in WITH_MOMENTUM)
    return [
        claim("lr_linear_then_flat").finding(study),
        Finding(
            "With momentum the best effective learning rate goes on growing where SGD's has gone flat.",
            f"From B = {sizes[beyond]:,.0f} to {sizes[beyond + 1]:,.0f} at p = 0 the slope is {heavy:.3g} for heavy "
            f"ball's effective rate, {plain:.3g} for SGD's.",
            Verdict.of(heavy > 0.5 and heavy > 3 * plain),
        ),
    ]
