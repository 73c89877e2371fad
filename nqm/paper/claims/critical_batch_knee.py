"""Claim: a closed form predicts where SGD leaves perfect scaling. It is compared with the critical batch size of tuned runs."""

from __future__ import annotations

from ...optimizers import SGD, HeavyBall, Optimizer
from ...problems.bounds import knee
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..instance import POWERS, PaperStudy
from .base import OWN, Measured

STATEMENT = (
    "SGD leaves perfect scaling where its best learning rate meets the edge of stability, at a batch size of about "
    "tr(P^-1 C) / (2 max(h / P) target) for the preconditioner P = H^p."
)
ORIGIN = OWN
SOURCE = (
    "a formula that follows from the paper's Figure 4a, where the best rate is linear in B until it meets its limit"
)
TURN = ("momentum is added", {"optimizer": HeavyBall()})
TOLERANCE = 2.0
PLAIN = SGD()


def measure(study: PaperStudy, optimizer: Optimizer = PLAIN) -> Measured:
    """Critical batch size of tuned runs over the closed form, for each preconditioner.

    Parameters
    ----------
    optimizer : the optimizer that is tuned.
    """
    table = []
    for power, found in zip(POWERS, study.by_power(optimizer), strict=True):
        sizes = {name: found.critical_batch_size(name) for name in ("2x", "20%", "ratio")}
        table.append({"power": power, "knee": knee(study.problem.spectrum, found.target, power), **sizes})
    over = column(table, "20%") / column(table, "knee")
    off = float(max(*over, *(1 / over)))
    told = "; ".join(f"{r['20%']:,.0f}, {r['2x']:,.0f} and {r['knee']:,.0f} at p = {r['power']:g}" for r in table)
    return Measured(
        table, off, "largest factor between the critical batch size (20%) and the closed form",
        f"Batch sizes 20% and 100% above perfect scaling, and the closed form: {told}.",
        TOLERANCE, "critical batch sizes by the two definitions are a factor of 2 to 4 apart, so the notion is no sharper than 2",
        Verdict.of(off <= TOLERANCE), f"a factor of {off:.3g}", f"the optimizer is {optimizer}: it is off by a factor of {off:.3g}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    p = column(table, "power")
    names = {"20%": "20% above perfect scaling", "2x": "twice perfect scaling"}
    lines = [Line(p, column(table, "knee"), "closed form", GREY, "--", 1.2)]
    lines += [Line(p, column(table, k), v, c, marker="o") for (k, v), c in zip(names.items(), PALETTE, strict=False)]
    return chart([Panel(lines, "power p of the preconditioner H$^{-p}$", "critical batch size", "linear", "log2")])
