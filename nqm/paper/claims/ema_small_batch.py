"""Claim: an average of the weights saves steps at small batch sizes only."""

from __future__ import annotations

from ...show.chart import Figure, Panel, chart
from ...show.numbers import spelled
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ..drawing import curves, keys, level
from ..instance import POWERS, WITH_AVERAGE, PaperStudy
from .base import PAPER, Measured

STATEMENT = "An average of the weights saves steps at small batch sizes, and nothing at large ones."
ORIGIN = PAPER
SOURCE = "on exponential moving averages, with Figure 3b"
SAVES, NOTHING = 0.9, 0.95  # An average saves steps below the first share of SGD's steps, and nothing above the second.


def measure(study: PaperStudy, small: float | None = None, large: float | None = None) -> Measured:
    """Tuned steps of averaged SGD over those of SGD at two batch sizes.

    Parameters
    ----------
    small, large : two batch sizes of the study; by default its smallest and its largest.
    """
    found = study.table(WITH_AVERAGE)
    plain = {(row["power"], row["batch_size"]): row["steps"] for row in found if row["optimizer"] == "SGD"}
    averaged = [row for row in found if row["optimizer"] != "SGD"]
    table = [{**row, "share": row["steps"] / plain[row["power"], row["batch_size"]]} for row in averaged]
    sizes = distinct(table, "batch_size")
    small, large = small or min(sizes), large or max(sizes)
    few, many = ([column(table, "share", power=p, batch_size=b)[0] for p in POWERS] for b in (small, large))
    return Measured(
        table, max(few), "largest share of SGD's steps at the small batch size",
        f"For p = {spelled(POWERS)} the average needs {spelled(few)} of SGD's steps at B = {small:,.0f}, and "
        f"{spelled(many)} at B = {large:,.0f}.",
        SAVES, f"a tenth of the steps is worth saving; {NOTHING} or more is a step or two of the shortest runs, which is nothing",
        Verdict.of(max(few) < SAVES and min(many) > NOTHING),
        "", f"the batch sizes are {small:,.0f} and {large:,.0f}: the shares are {spelled(few)} and {spelled(many)}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    lines = curves(table, "share", styles=("-",))
    even = level(lines[0].x, 1, "SGD without the average")
    panel = Panel([even, *lines], "batch size", "share of SGD's steps", "log2", legend="none", y_limits=(0.0, 1.08))
    return chart([panel], key=[*keys(table, styles=()), even])
