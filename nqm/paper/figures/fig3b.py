"""Figure 3b: steps to the target against batch size, with and without an exponential moving average of the weights."""

from __future__ import annotations

import numpy as np

from ...show.numbers import spelled
from ...show.tables import Table
from ...show.verdict import Finding, Verdict
from ..claims import claim
from ..drawing import steps_chart
from ..instance import POWERS, WITH_AVERAGE, PaperStudy

TITLE = "Figure 3b: steps against batch size, with and without averaging"
CAPTION = (
    "Steps to loss 0.01 for SGD (dashed) and for the moving average of its weights (solid), learning rate and decay "
    "tuned at every batch size, with the preconditioner H^-p."
)
draw = steps_chart


def data(study: PaperStudy) -> Table:
    """Tuned steps and settings of SGD and of its average for each preconditioner and batch size, and the bounds."""
    return [{**row, **study.bounds(row["batch_size"])} for row in study.table(WITH_AVERAGE)]


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    plain, averaged = (study.critical(optimizer) for optimizer in WITH_AVERAGE.values())
    return [
        claim("ema_small_batch").finding(study),
        Finding(
            "So it reaches diminishing returns at a smaller batch than SGD does.",
            f"Critical batch size (2x) for p = {spelled(POWERS)}: {', '.join(f'{b:,.0f}' for b in averaged)} with the "
            f"average, {', '.join(f'{b:,.0f}' for b in plain)} without.",
            Verdict.of(*(bool(a < b) for a, b in zip(averaged, plain, strict=True) if np.isfinite([a, b]).all())),
        ),
    ]
