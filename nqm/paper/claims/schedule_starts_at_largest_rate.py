"""Where optimal learning-rate schedules begin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ...optimizers import SGD
from ...optimizers.base import parameters
from ...show.chart import GREY, Figure, Line, Panel, chart, ramp
from ...show.numbers import percent, shown, spelled
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ..instance import PaperStudy, Question, preconditioned
from .base import Measured

STATEMENT = "The optimal learning-rate schedule starts at the largest stable rate."
SOURCE = "on optimal schedules, with the appendix's figure of fifty pieces"
TURN = ("the gradient is preconditioned with p = 0.75", {"powers": (0.75,)})
POWERS, BATCH_SIZES, PIECES = (0.0, 0.75), (16, 256, 4096), 50
TOLERANCE = 0.95


def questions(study: PaperStudy) -> list[Question]:
    return [study.to_schedule(preconditioned(SGD(), p), b, PIECES) for p, b in product(POWERS, BATCH_SIZES)]


def measure(
    study: PaperStudy | None = None, powers: Sequence[float] = POWERS, batch_sizes: Sequence[float] = BATCH_SIZES,
    pieces: int = PIECES,
) -> Measured:  # fmt: skip
    """First rate of the best piecewise-constant schedule over the stability limit.

    Parameters
    ----------
    study : gives the problem.
    powers : of the preconditioner.
    batch_sizes : to find a schedule for.
    pieces : of each schedule, of equal length.
    """
    study = study or PaperStudy()
    table = []
    for power, batch_size in product(powers, batch_sizes):
        found = study.schedule(preconditioned(SGD(), power), batch_size, pieces)
        limit = 2 / float(np.max(study.problem.spectrum.h ** (1 - power)))
        rates = parameters(found.optimizer)["lr"].value * found.schedule.lr / limit
        begun = np.append(0, found.schedule.ends[:-1]) / found.schedule.ends[-1]
        table += [
            {"power": power, "batch_size": batch_size, "share": float(share), "rate": float(rate)}
            for share, rate in zip(begun, rates, strict=True)
        ]
    first = {p: [column(table, "rate", power=p, batch_size=b)[0] for b in batch_sizes] for p in powers}
    lost = [
        f"p = {p:g} and B = {shown(b)} ({r:.2g} of the limit)"
        for p, rates in first.items()
        for b, r in zip(batch_sizes, rates, strict=True)
        if r < TOLERANCE
    ]
    held = [p for p, rates in first.items() if min(rates) >= TOLERANCE]
    told = "; ".join(f"{spelled(rates)} at p = {p:g}" for p, rates in first.items())
    return Measured(
        table, min(min(rates) for rates in first.values()), "first rate over the stability limit, at least",
        f"First rate of {pieces} pieces over the stability limit for B = {', '.join(map(str, batch_sizes))}: {told}.",
        TOLERANCE, "a piece holds its rate for 2% of the run, so the rate at its very start is known to some percent",
        Verdict.of(*(min(rates) >= TOLERANCE for rates in first.values())),
        f"{percent(1 - TOLERANCE)} of the limit at p = {spelled(held)}" if held else "",
        "; ".join(lost),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    sizes, panels = distinct(table, "batch_size"), []
    limit = Line([0, 1], [1, 1], "stability limit", GREY, ":", 1.2)
    for power in distinct(table, "power"):
        lines = []
        for size, color in zip(sizes, ramp(len(sizes)), strict=True):
            key = {"power": power, "batch_size": size}
            share, rate = np.append(column(table, "share", **key), 1.0), column(table, "rate", **key)
            lines.append(Line(share, np.append(rate, rate[-1]), f"B = {shown(size)}", color, stairs=True))
        names = ("share of the run", "rate over the stability limit")
        panels.append(Panel([limit, *lines], *names, "linear", "log", f"p = {power:g}", "none"))
    return chart(panels, key=panels[0].lines)
