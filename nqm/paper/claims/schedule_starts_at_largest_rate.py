"""Claim: optimal learning-rate schedules start at the largest rate that they may take, the paper's cap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ...optimizers import SGD
from ...show.chart import Figure, chart
from ...show.numbers import percent, shown, spelled
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..drawing import level, schedule_panels
from ..instance import PaperStudy, preconditioned
from .base import PAPER, Measured

STATEMENT = "The optimal learning-rate schedule starts at the largest rate, 2 / (h_1 + h_d)."
ORIGIN = PAPER
SOURCE = "on optimal schedules, with the appendix's figure of fifty pieces"
TURN = ("the gradient is preconditioned with p = 0.75", {"powers": (0.75,)})
POWERS, BATCH_SIZES, PIECES = (0.0, 0.75), (16, 256, 4096), 50
TOLERANCE = 0.95


def measure(
    study: PaperStudy, powers: Sequence[float] = POWERS, batch_sizes: Sequence[float] = BATCH_SIZES,
    pieces: int = PIECES,
) -> Measured:  # fmt: skip
    """First rate of the best piecewise-constant schedule over the paper's cap on its rates, 2 / (h_1^(1-p) + h_d^(1-p)).

    Parameters
    ----------
    powers : powers p of the preconditioner H^-p.
    batch_sizes : batch sizes at which a schedule is optimised.
    pieces : number of pieces of a schedule, which have equal length.
    """
    table, cases = [], list(product(powers, batch_sizes))
    schedules = study.ask([study.to_schedule(preconditioned(SGD(), p), b, pieces) for p, b in cases])
    for (power, batch_size), found in zip(cases, schedules, strict=True):
        seen = study.problem.spectrum.h ** (1 - power)
        limit = 2 / float(seen.max() + seen.min())
        about = {"power": power, "batch_size": batch_size}
        table += [{**about, "share": row["start"] / found.steps, "rate": row["lr"] / limit} for row in found.table()]
    first = {p: [column(table, "rate", power=p, batch_size=b)[0] for b in batch_sizes] for p in powers}
    lost = [
        f"p = {p:g} and B = {shown(b)} ({r:.2g} of the cap)"
        for p, rates in first.items()
        for b, r in zip(batch_sizes, rates, strict=True)
        if r < TOLERANCE
    ]
    held = [p for p, rates in first.items() if min(rates) >= TOLERANCE]
    told = "; ".join(f"{spelled(rates)} at p = {p:g}" for p, rates in first.items())
    return Measured(
        table, min(min(rates) for rates in first.values()), "smallest ratio of a first rate to the paper's cap",
        f"First rate of {pieces} pieces over the paper's cap for B = {', '.join(map(str, batch_sizes))}: {told}.",
        TOLERANCE, "a piece holds its rate for 2% of the run, so the rate at its very start is known to some percent",
        Verdict.of(*(min(rates) >= TOLERANCE for rates in first.values())),
        f"{percent(1 - TOLERANCE)} of the cap at p = {spelled(held)}" if held else "",
        "; ".join(lost),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    limit = level([0, 1], 1, "the paper's cap")
    panels = schedule_panels(table, "rate", "rate over the paper's cap", limit)
    return chart(panels, key=panels[0].lines)
