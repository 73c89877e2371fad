"""Parts of pictures that figures and claims share: curves against batch size, schedules, level lines, legends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..show.chart import GREY, PALETTE, Figure, Line, Panel, chart, ramp
from ..show.numbers import shown
from ..show.plots import CG, bound_pair, cg_floors, perfect_scaling
from ..show.tables import Table, column, distinct
from .instance import POWERS, TARGET

STYLES = ("--", "-")


def colors(table: Table, by: str = "power") -> dict[float, str]:
    """The colour of each value of a column. Each of the paper's powers has the same colour in all pictures."""
    values = distinct(table, by)
    if by != "power":
        return dict(zip(values, ramp(len(values)), strict=True))
    known = POWERS if set(values) <= set(POWERS) else values
    return {power: PALETTE[known.index(power)] for power in values}


def curves(
    table: Table, what: str, styles: Sequence[str] = STYLES, color_by: str = "power", style_by: str = "optimizer"
) -> list[Line]:
    """A column against batch size: a line for each colour and style. The first of two methods is dashed."""
    return [
        Line(column(table, "batch_size", **key), column(table, what, **key), "", color, style, marker="o")
        for value, color in colors(table, color_by).items()
        for method, style in zip(distinct(table, style_by), styles, strict=False)
        for key in [{color_by: value, style_by: method}]
    ]


def keys(
    table: Table, styles: Sequence[str] = STYLES, color_by: str = "power", style_by: str = "optimizer"
) -> list[Line]:
    """The legend of `curves`: colours, then styles."""
    name, kind = "p =" if color_by == "power" else color_by, "" if style_by == "optimizer" else f"{style_by} "
    methods = zip(distinct(table, style_by), styles, strict=False)
    return [
        *(Line([], [], f"{name} {value:g}", color, width=2.5) for value, color in colors(table, color_by).items()),
        *(Line([], [], f"{kind}{method}", GREY, style, marker="o") for method, style in methods),
    ]


def level(x: ArrayLike, value: float, label: str = "", color: str = GREY) -> Line:
    """A dotted line at a value, from the smallest to the largest x; without a label it is called the tolerance."""
    return Line([np.min(x), np.max(x)], [value] * 2, label or f"tolerance {value:g}", color, ":", 1.2)


def schedule_panels(table: Table, what: str, name: str, *behind: Line) -> list[Panel]:
    """A column over the share of the run at which its piece begins: a panel for each power, a line for each batch size."""
    panels = []
    for power in distinct(table, "power"):
        lines = list(behind)
        for size, color in colors(table, "batch_size").items():
            share, rate = (column(table, c, power=power, batch_size=size) for c in ("share", what))
            x, y = np.append(share, 1.0), np.append(rate, rate[-1])
            lines.append(Line(x, y, f"B = {shown(size)}", color, stairs=True))
        panels.append(Panel(lines, "share of the run", name, "linear", "log", f"p = {power:g}", "none"))
    return panels


def steps_chart(table: Table) -> Figure:
    """Steps against batch size, with the bounds, the steps of conjugate gradients, and perfect scaling from the first curve."""
    floors = {p: float(column(table, "cg_steps", power=p)[0]) for p in distinct(table, "power")}
    cg_steps = {p: n for p, n in floors.items() if n >= 0}
    found = curves(table, "steps")
    sizes, steps = np.asarray(found[0].x), np.asarray(found[0].y)
    first = {"power": table[0]["power"], "optimizer": table[0]["optimizer"]}
    bounds = bound_pair(sizes, column(table, "paper_bound", **first), column(table, "bayes_bound", **first))
    guides = [perfect_scaling(sizes, steps), *bounds]
    low = min(float(np.nanmin(line.y)) for line in found)
    limits = (min([low, *cg_steps.values()]) / 1.6, float(np.nanmax(steps)) * 1.6)
    lines = [*guides, *cg_floors(sizes, list(cg_steps.values()), [colors(table)[p] for p in cg_steps]), *found]
    name = f"steps to loss {TARGET:g}"
    panel = Panel(lines, "batch size", name, "log2", "log2", legend="none", y_limits=limits)
    level = [Line([], [], CG, GREY, "-.", 0.9)] if cg_steps else []
    return chart([panel], size=(5.5, 4.1), key=[*keys(table), guides[0], *level, *bounds])
