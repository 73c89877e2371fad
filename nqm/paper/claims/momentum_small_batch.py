"""Claim: at small batch sizes momentum gives nothing over SGD."""

from __future__ import annotations

from ...optimizers import SGD, HeavyBall, free
from ...optimizers.kinds import Free
from ...show.chart import Figure, Panel, chart
from ...show.numbers import percent, spelled
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ..drawing import curves, keys, level
from ..instance import POWERS, Methods, PaperStudy
from .base import PAPER, Measured

STATEMENT = "At small batch sizes momentum gives nothing over SGD."
ORIGIN = PAPER
SOURCE = "on momentum, with Figure 3a"
TURN = ("momentum is tuned too", {"momentum": free})
TOLERANCE = 0.02


def measure(study: PaperStudy, momentum: float | Free = 0.9) -> Measured:
    """Tuned steps of heavy ball over SGD's at the smallest batch size, with momentum as given and with momentum tuned.

    Parameters
    ----------
    momentum : momentum of the heavy ball whose learning rate alone is tuned; with `free`, only tuned momentum is measured.
    """
    table = step_ratios(study, momentum)
    names = distinct(table, "momentum")
    ratio = {name: [column(table, "ratio", momentum=name, power=p)[0] for p in POWERS] for name in names}
    off = {name: max(abs(r - 1) for r in found) for name, found in ratio.items()}
    size = table[0]["batch_size"]
    held = [name for name in names if off[name] <= TOLERANCE]
    lost = [name for name in names if off[name] > TOLERANCE]
    told = "; ".join(f"{spelled(found)} with momentum {name}" for name, found in ratio.items())
    return Measured(
        table, off[names[0]], f"distance from 1 of heavy ball's steps over SGD's, momentum {names[0]}",
        f"At B = {size:g}, tuned steps of heavy ball over SGD's for p = {spelled(POWERS)}: {told}.",
        TOLERANCE, "steps are found to 0.1%; 2% is well above that error and far below the gains at large batches",
        Verdict.of(*(off[name] <= TOLERANCE for name in names)),
        "; ".join(f"{percent(off[name])} at momentum {name}" for name in held),
        "; ".join(f"momentum is {name}: {spelled(ratio[name])} of SGD's steps" for name in lost),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    lines, even = curves(table, "ratio", style_by="momentum"), level(column(table, "batch_size"), 1, "SGD")
    panel = Panel([even, *lines], "batch size", "steps of heavy ball over SGD's", "log2", "log", legend="none")
    return chart([panel], key=[*keys(table, style_by="momentum"), even])


def step_ratios(study: PaperStudy, momentum: float | Free) -> Table:
    """Steps of heavy ball over SGD's for each preconditioner and batch size, with momentum as given and tuned."""
    table = study.table(_methods(momentum))
    sgd = {(row["power"], row["batch_size"]): row["steps"] for row in table if row["optimizer"] == "SGD"}
    return [
        {"momentum": row["optimizer"], "power": row["power"], "batch_size": row["batch_size"], "sgd": plain,
         "heavy_ball": row["steps"], "ratio": row["steps"] / plain}
        for row in table if row["optimizer"] != "SGD"
        for plain in [sgd[row["power"], row["batch_size"]]]
    ]  # fmt: skip


def _methods(momentum: float | Free) -> Methods:
    fixed = {} if momentum is free else {f"{momentum:g}": HeavyBall(momentum=momentum)}
    return {"SGD": SGD(), **fixed, "tuned": HeavyBall()}
