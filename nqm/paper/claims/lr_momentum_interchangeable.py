"""Claim: learning rate and momentum are interchangeable. Heavy ball at lr (1 - momentum) is compared with SGD at lr."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...engine.spectrum import Spectrum
from ...optimizers import SGD, HeavyBall
from ...problems.quadratic import Quadratic
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ..drawing import level
from .base import PAPER, Measured

STATEMENT = (
    "At small batch sizes, where learning rates are small, learning rate and momentum are interchangeable: heavy ball "
    "at lr (1 - momentum) runs like SGD at lr."
)
ORIGIN = PAPER
SOURCE = "on momentum"
TURN = ("the learning rate is large", {"settings": ((0.1, 0.9), (0.05, 0.99))})
SETTINGS = ((0.001, 0.5), (0.001, 0.9), (0.01, 0.9))
TOLERANCE = 0.05
DRAWN = {0.5: PALETTE[0], 0.9: PALETTE[1], 0.99: PALETTE[2]}


def measure(settings: Sequence[tuple[float, float]] = SETTINGS, batch_size: float = 10.0) -> Measured:
    """Largest relative gap between the two losses over a run on one mode.

    Parameters
    ----------
    settings : pairs of SGD's learning rate times curvature, and heavy ball's momentum.
    batch_size : batch size, on one mode with h = c = s = 1; at 10, signal and noise both matter.
    """
    asked = [{"x": x, "momentum": b, "gap": _gap(x, b, batch_size), "asked": 1} for x, b in settings]
    drawn = [(float(x), b) for b in DRAWN for x in np.geomspace(1e-5, 0.1, 9)]
    table = [*asked, *({"x": x, "momentum": b, "gap": _gap(x, b, batch_size), "asked": 0} for x, b in drawn)]
    good = [row for row in asked if row["gap"] <= TOLERANCE]
    bad = [row for row in asked if row["gap"] > TOLERANCE]
    worst = max(row["gap"] for row in (good or asked))
    return Measured(
        table, worst, f"largest relative gap in the loss{' where it holds' if good else ''}",
        f"Largest relative gap in the loss of one mode at batch size {batch_size:g}: {_told(asked)}. To first order the "
        "two agree; the gap grows as lr h momentum / (1 - momentum).",
        TOLERANCE, "5% of a loss is the width of a line in a figure over decades",
        Verdict.of(*(row["gap"] <= TOLERANCE for row in asked)), _told(good), f"the rate is not small: {_told(bad)}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    table = [row for row in table if not row["asked"]]
    lines = [
        Line(column(table, "x", momentum=b), column(table, "gap", momentum=b), f"momentum {b:g}", DRAWN[b], marker="o")
        for b in distinct(table, "momentum")
    ]
    lines.append(level(column(table, "x"), TOLERANCE))
    return chart([Panel(lines, "learning rate of SGD $\\times$ curvature", "largest gap in the loss", "log", "log")])


def _told(rows: Table) -> str:
    return "; ".join(f"{percent(row['gap'])} at lr h = {row['x']:g}, momentum {row['momentum']:g}" for row in rows)


def _gap(x: float, momentum: float, batch_size: float) -> float:
    mode = Quadratic(Spectrum([1.0]))
    times = np.unique(np.rint(np.geomspace(1, 30 / x, 120)).astype(int)).tolist()
    plain = mode.run(SGD(x), batch_size, times).loss
    heavy = mode.run(HeavyBall(x * (1 - momentum), momentum), batch_size, times).loss
    return float(np.max(np.abs(heavy / plain - 1)))
