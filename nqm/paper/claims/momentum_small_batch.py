"""Momentum where noise decides."""

from __future__ import annotations

from ...optimizers import SGD, HeavyBall, free
from ...optimizers.kinds import Free
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent, spelled
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ..instance import POWERS, Methods, PaperStudy, Question
from .base import Measured

STATEMENT = "At small batch sizes momentum gives nothing over SGD."
SOURCE = "on momentum, with Figure 3a"
TURN = ("momentum is tuned too", {"momentum": free})
TOLERANCE = 0.02
TUNED = "tuned"


def questions(study: PaperStudy) -> list[Question]:
    return study.to_table(_methods(0.9))


def measure(study: PaperStudy | None = None, momentum: float | Free = 0.9) -> Measured:
    """Tuned steps of heavy ball over SGD's at the smallest batch size, with momentum as given and with momentum tuned.

    Parameters
    ----------
    study : gives the problem and the batch sizes.
    momentum : of the heavy ball whose learning rate alone is tuned; `free` asks of tuned momentum only.
    """
    table = step_ratios(study or PaperStudy(), momentum)
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
        TOLERANCE, "steps are found to 0.1%; 2% is well clear of that and nothing beside the gains at large batches",
        Verdict.of(*(off[name] <= TOLERANCE for name in names)),
        "; ".join(f"{percent(off[name])} at momentum {name}" for name in held),
        "; ".join(f"momentum is {name}: {spelled(ratio[name])} of SGD's steps" for name in lost),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    lines, styles = [], {name: "-" if name == TUNED else "--" for name in distinct(table, "momentum")}
    for power, color in zip(POWERS, PALETTE, strict=False):
        for name, style in styles.items():
            key = {"momentum": name, "power": power}
            sizes, ratio = column(table, "batch_size", **key), column(table, "ratio", **key)
            lines.append(Line(sizes, ratio, "", color, style, marker="o"))
    sizes = column(table, "batch_size")
    even = Line([sizes.min(), sizes.max()], [1, 1], "SGD", GREY, ":", 1.2)
    key = [Line([], [], f"p = {p:g}", c, width=2.5) for p, c in zip(POWERS, PALETTE, strict=False)]
    key += [Line([], [], f"momentum {name}", GREY, style, marker="o") for name, style in styles.items()]
    panel = Panel([even, *lines], "batch size", "steps of heavy ball over SGD's", "log2", "log", legend="none")
    return chart([panel], key=[*key, even])


def step_ratios(study: PaperStudy, momentum: float | Free) -> Table:
    """Steps of heavy ball over SGD's for each preconditioner and batch size, with momentum as given and tuned."""
    methods = _methods(momentum)
    table = study.table(methods)
    return [
        {**key, "batch_size": size, "sgd": plain, "heavy_ball": heavy, "ratio": heavy / plain}
        for name in methods
        if name != "SGD"
        for p in POWERS
        for key, sgd in [({"momentum": name, "power": p}, {"optimizer": "SGD", "power": p})]
        for size, plain, heavy in zip(
            column(table, "batch_size", **sgd), column(table, "steps", **sgd),
            column(table, "steps", optimizer=name, power=p), strict=True,
        )
    ]  # fmt: skip


def _methods(momentum: float | Free) -> Methods:
    fixed = {} if momentum is free else {f"{momentum:g}": HeavyBall(momentum=momentum)}
    return {"SGD": SGD(), **fixed, TUNED: HeavyBall()}
