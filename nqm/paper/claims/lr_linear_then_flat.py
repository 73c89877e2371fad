"""Claim: SGD's best learning rate grows linearly with batch size and then stays flat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...optimizers import SGD
from ...show.chart import Figure, chart
from ...show.numbers import spelled
from ...show.plots import rates_panel
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ...types import Array
from ..drawing import curves, keys
from ..instance import POWERS, PaperStudy
from .base import PAPER, Measured

STATEMENT = "SGD's best learning rate grows linearly with batch size, then stays flat."
ORIGIN = PAPER
SOURCE = "on the best learning rate, with Figure 4a"
TURN = ("every batch size is below the critical one", {"batch_sizes": (4, 16, 64)})
TOLERANCE = 0.05
METHOD = {"SGD": SGD()}


def measure(study: PaperStudy, batch_sizes: Sequence[float] | None = None) -> Measured:
    """Slope of log lr over log B between the two smallest and the two largest batch sizes.

    Parameters
    ----------
    batch_sizes : batch sizes to tune at; by default the study's.
    """
    table = study.table(METHOD, batch_sizes=batch_sizes)
    sizes = column(table, "batch_size", power=0.0)
    slope = [slopes(sizes, column(table, "lr", power=p)) for p in POWERS]
    first, last = [s[0] for s in slope], [s[-1] for s in slope]
    linear, flat = max(abs(s - 1) for s in first), max(abs(s) for s in last)
    (low, high), slope = (sizes[-2:], last) if flat > TOLERANCE else (sizes[:2], first)
    return Measured(
        table, max(linear, flat), "largest distance of the first slope from 1, or of the last slope from 0",
        f"Slope of log lr over log B for p = {spelled(POWERS)}: {spelled(first)} from B = {sizes[0]:g} to {sizes[1]:g}, "
        f"{spelled(last, 2)} from {sizes[-2]:,.0f} to {sizes[-1]:,.0f}.",
        TOLERANCE, "the loss is flat around its best rate, so rates are found to about 1%, a slope over a factor of 4 to 0.02",
        Verdict.of(linear <= TOLERANCE, flat <= TOLERANCE),
        f"{linear:.2g} of slope 1" if flat > TOLERANCE else "",
        f"the batch is between {low:,.0f} and {high:,.0f}: the slope there is {spelled(slope, 2)}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    panel = rates_panel(curves(table, "lr", styles=("-",)), "best learning rate")
    return chart([panel], key=keys(table, styles=()))


def slopes(x: Array, y: Array) -> Array:
    """Slopes between neighbouring points on logarithmic axes."""
    return np.diff(np.log(y)) / np.diff(np.log(x))
