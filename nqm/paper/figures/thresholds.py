"""Appendix: steps against batch size for five target losses."""

from __future__ import annotations

from itertools import product

import numpy as np

from ...show.chart import GREY, Figure, Line, Panel, chart
from ...show.numbers import spelled
from ...show.plots import curve_at
from ...show.tables import Table, column
from ...show.verdict import Finding, Verdict
from ..drawing import curves, keys
from ..instance import WITH_MOMENTUM, PaperStudy, sweep_rows

TITLE = "Appendix: five target losses"
CAPTION = (
    "Tuned steps to each target loss for SGD (dashed) and heavy ball (solid), p = 0. Diamonds: the critical batch "
    "size, at twice the steps of perfect scaling."
)
TARGETS = (0.1, 0.03, 0.01, 0.003, 0.001)


def data(study: PaperStudy) -> Table:
    """Tuned steps and settings for each target, method and batch size."""
    table, cases = [], list(product(TARGETS, WITH_MOMENTUM))
    sweeps = study.ask([study.to_sweep(WITH_MOMENTUM[name], target) for target, name in cases])
    for (target, name), found in zip(cases, sweeps, strict=True):
        critical = found.critical_batch_size()
        table += [{**row, "critical": critical} for row in sweep_rows(found, target=target, optimizer=name)]
    return table


def draw(table: Table) -> Figure:
    lines, marks = curves(table, "steps", color_by="target"), []
    for line, row in zip(lines, [row for row in table if row["batch_size"] == table[0]["batch_size"]], strict=True):
        critical = float(row["critical"])
        if np.isfinite(critical):
            marks.append(Line([critical], [curve_at(critical, line.x, line.y)], "", line.color, "", marker="D"))
    key = [*keys(table, color_by="target"), Line([], [], "critical batch size", GREY, "", marker="D")]
    panel = Panel([*lines, *marks], "batch size", "steps to target", "log2", "log2", legend="none")
    return chart([panel], size=(5.5, 3.9), key=key)


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    critical = {
        m: np.array([column(table, "critical", target=t, optimizer=m)[0] for t in TARGETS]) for m in WITH_MOMENTUM
    }
    last = {m: np.array([column(table, "steps", target=t, optimizer=m)[-1] for t in TARGETS]) for m in WITH_MOMENTUM}
    scaled = critical["SGD"] * TARGETS
    told = "; ".join(f"{m} {', '.join(f'{b:,.0f}' for b in found)}" for m, found in critical.items())
    gain = last["SGD"] / last["heavy ball"]
    return [
        Finding(
            "The picture is the same at every target: perfect scaling, diminishing returns, momentum extending it.",
            f"Critical batch size (2x) at targets {spelled(TARGETS)}: {told}; at the largest batch SGD needs "
            f"{spelled(gain)} times the steps of heavy ball.",
            Verdict.of(bool(np.all(critical["heavy ball"] > critical["SGD"])), bool(np.all(gain > 1.02))),
        ),
        Finding(
            "A lower target moves the critical batch size up.",
            f"SGD's grows nearly as 1 / target: critical batch size times target is {spelled(scaled)}.",
            Verdict.of(bool(np.all(np.diff(critical["SGD"]) > 0))),
        ),
    ]
