"""Figure 4b: steps to the target with the best ten-piece learning-rate schedule, against a constant rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..optimizers import SGD
from ..optimizers.base import parameters
from .pictures import steps_chart
from .study import POWERS, Finding, Study, Table, Verdict, column, preconditioned, spelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Figure 4b: an optimal schedule against a constant learning rate"
CAPTION = (
    "Steps to loss 0.01 for SGD with the best constant learning rate (dashed) and with the best piecewise-constant one "
    "of ten pieces (solid), with the preconditioner H^-p."
)
PIECES = 10


def data(study: Study | None = None) -> Table:
    """Tuned steps with a constant rate and with ten pieces, for each preconditioner and batch size, and the bounds."""
    study = study or Study()
    table = []
    for power in POWERS:
        optimizer = preconditioned(SGD(), power)
        constant = study.sweep(optimizer)
        for batch_size, steps in zip(constant.batch_sizes.tolist(), constant.steps.tolist(), strict=True):
            pieces = study.schedule(optimizer, batch_size, PIECES).steps
            for name, value in (("constant", steps), ("ten pieces", pieces)):
                row = {"optimizer": name, "power": power, "batch_size": batch_size, "steps": value}
                table.append({**row, **study.bounds(batch_size)})
    return table


def draw(table: Table) -> Figure:
    return steps_chart(table)


def findings(table: Table, study: Study) -> list[Finding]:
    gain = {
        p: column(table, "steps", optimizer="constant", power=p)
        / column(table, "steps", optimizer="ten pieces", power=p)
        for p in POWERS
    }
    best = {"optimizer": "ten pieces", "power": 0.0}
    above = column(table, "steps", **best) / column(table, "bayes_bound", **best)
    sizes = column(table, "batch_size", **best)
    small, large = [g[0] for g in gain.values()], [g[-1] for g in gain.values()]
    top = max(POWERS, key=lambda p: gain[p][-1])
    return [
        Finding(
            "A learning-rate schedule saves steps at small batch sizes.",
            f"At B = {sizes[0]:g} the best constant rate needs {spelled(small)} times the steps of ten pieces for "
            f"p = {spelled(POWERS)}; at p = 0 ten pieces stay {above[0]:.3g} times above the Bayes bound.",
            Verdict.of(*(g > 1.1 for g in small)),
        ),
        Finding(
            "At large batch sizes it saves little.",
            f"At B = {sizes[-1]:,.0f} the factors are {spelled(large)}. {_beyond(study, top, sizes[-1])}".strip(),
            Verdict.of(*(g < 1.1 for g in large)),
        ),
    ]


def _beyond(study: Study, power: float, batch_size: float) -> str:
    """How far a schedule passes the stability limit lr h^(1 - p) = 2, and for how long at a time."""
    found = study.schedule(preconditioned(SGD(), power), batch_size, PIECES)
    stiffest = float(np.max(study.problem.spectrum.h ** (1 - power)))
    top = parameters(found.optimizer)["lr"].value * float(np.max(found.schedule.lr)) * stiffest / 2
    if top < 1.2:
        return ""
    return (
        f"At p = {power:g} the pieces have {found.steps / PIECES:.1f} steps and the largest rate is {top:.3g} times "
        "the stability limit of a constant one: pieces that short can do what Chebyshev's method does."
    )
