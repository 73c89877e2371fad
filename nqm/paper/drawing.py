"""Pictures of a study: a quantity against batch size, colour for preconditioner, dashes for method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..show.chart import BLACK, GREY, PALETTE, Figure, Line, Panel, chart
from ..show.plots import CG, bound_pair, cg_floors, perfect_scaling
from ..show.tables import Table, column, distinct
from .instance import POWERS, TARGET

STYLES = ("--", "-")


def colors(table: Table) -> dict[float, str]:
    """The colour of each preconditioner's power; the powers of the paper have the same in all pictures."""
    powers = distinct(table, "power")
    known = POWERS if set(powers) <= set(POWERS) else powers
    return {power: PALETTE[known.index(power)] for power in powers}


def curves(table: Table, what: str, styles: Sequence[str] = STYLES) -> list[Line]:
    """A column against batch size, one line for each preconditioner and method; the first method is dashed."""
    return [
        Line(column(table, "batch_size", **key), column(table, what, **key), "", color, style, marker="o")
        for power, color in colors(table).items()
        for method, style in zip(distinct(table, "optimizer"), styles, strict=False)
        for key in [{"power": power, "optimizer": method}]
    ]


def keys(table: Table, styles: Sequence[str] = STYLES) -> list[Line]:
    """Legend entries: colours, then dashes."""
    powers = [Line([], [], f"p = {p:g}", color, width=2.5) for p, color in colors(table).items()]
    methods = [Line([], [], m, GREY, s, marker="o") for m, s in zip(distinct(table, "optimizer"), styles, strict=False)]
    return [*powers, *methods]


def steps_chart(table: Table, note: str = "") -> Figure:
    """Steps against batch size over the bounds and the floors of CG, with perfect scaling from the first curve.

    ``note`` explains why curves end before the others do.
    """
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
    ended = [(x, y) for line in found for x, y in [(np.asarray(line.x)[-1], np.asarray(line.y)[-1])] if x < sizes[-1]]
    if note and ended:
        (x, y) = ended[-1]
        lines.append(Line([x], [y], "", BLACK, "", tag=note, tag_at=(-150.0, -38.0)))
    name = f"steps to loss {TARGET:g}"
    panel = Panel(lines, "batch size", name, "log2", "log2", legend="none", y_limits=limits)
    level = [Line([], [], CG, GREY, "-.", 0.9)] if cg_steps else []
    return chart([panel], size=(5.5, 4.1), key=[*keys(table), guides[0], *level, *bounds])
