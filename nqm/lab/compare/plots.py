"""Pictures of measured and predicted steps and learning rates, as lines and panels that `show.chart` draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...show.chart import BLACK, PALETTE, Figure, Line, OnAxes, Panel, chart
from ...show.plots import linear_in_batch, perfect_scaling
from ...types import Array
from .curves import Curve
from .predictions import Predicted

OPEN = {"o": "not decided: at an edge, or unfinished", "^": "more than this: ran out of steps"}
"""What hollow marks say, by marker."""


def plot_steps(
    curves: Sequence[Curve],
    target: str,
    predicted: Predicted | None = None,
    path: str | None = None,
    *,
    ax: OnAxes | None = None,
) -> Figure:
    """Steps to the target against batch size: medians over seeds with their intervals, predictions dashed; `open_marks` on top."""
    lines = []
    for curve, color in zip(curves, colors(curves), strict=True):
        averaged = curve.averaged
        lines.append(
            Line(curve.batch_sizes, curve.steps, _label(curve), color, marker="o", spread=_band(curve),
                 width=1.0 if averaged else 1.5, style=":" if averaged else "-")
        )  # fmt: skip
    guide = perfect_scaling(lines[0].x, lines[0].y)
    marks = [mark for curve, color in zip(curves, colors(curves), strict=True) for mark in open_marks(curve, color)]
    return _drawn(lines, _dashed(curves, predicted, "steps"), guide, f"steps to {target}", path, ax, marks)


def plot_rates(
    curves: Sequence[Curve], predicted: Predicted | None = None, path: str | None = None, *, ax: OnAxes | None = None
) -> Figure:
    """Best learning rate against batch size, effective where there is momentum; hollow where it decides nothing."""
    plain = [curve for curve in curves if not curve.averaged]
    pairs = zip(plain, colors(plain), strict=True)
    lines = [Line(c.batch_sizes, c.effective_lr, _label(c), color, marker="o") for c, color in pairs]
    guide = linear_in_batch(lines[0].x, lines[0].y)
    marks = [mark for c, line in zip(plain, lines, strict=True) for mark in open_marks(c, line.color, c.effective_lr)]
    return _drawn(
        lines, _dashed(plain, predicted, "effective_lr"), guide, "best effective learning rate", path, ax, marks
    )


def open_marks(curve: Curve, color: str, values: Array | None = None) -> list[Line]:
    """Hollow points where a curve decides nothing, and hollow triangles at the steps of which a cell is known to need more.

    With ``values``, such as learning rates, the points lie at these instead of at the steps, and there are no triangles.
    """
    open_ = np.array([bool(curve.doubts(curve.batch_sizes[i : i + 1])) for i in range(len(curve.batch_sizes))])
    marks = {"o": (open_, curve.steps), "^": (curve.ran_out, curve.least)} if values is None else {"o": (open_, values)}
    return [
        Line(curve.batch_sizes[at], steps[at], OPEN[marker], color, "", marker=marker, hollow=True)
        for marker, (at, steps) in marks.items()
        if at.any()
    ]


def _drawn(
    lines: Sequence[Line],
    dashed: Sequence[Line],
    guide: Line,
    label: str,
    path: str | None,
    ax: OnAxes | None,
    marks: Sequence[Line] = (),
) -> Figure:
    names, used = {"--": "predicted from a fit", "-.": "predicted, with average"}, {line.style for line in dashed}
    key = [Line([], [], name, BLACK, style, 1.0) for style, name in names.items() if style in used]
    key += [
        Line([], [], text, BLACK, "", marker=m, hollow=True)
        for m, text in OPEN.items()
        if text in {k.label for k in marks}
    ]
    panel = Panel([guide, *dashed, *lines, *marks], "batch size", label, "log2", "log2", legend="none")
    return chart([panel], path, (5.5, 3.8), [*lines, *key, guide], ax=ax)


def colors(curves: Sequence[Curve]) -> list[str]:
    """A colour for each optimizer, in the order of the study; an average has the colour of what it averages."""
    labels = list(dict.fromkeys(curve.label for curve in curves))
    return [PALETTE[labels.index(curve.label) % len(PALETTE)] for curve in curves]


def _dashed(curves: Sequence[Curve], predicted: Predicted | None, what: Literal["steps", "effective_lr"]) -> list[Line]:
    """Lines of what was predicted; a learning rate with a power of H has other units than the measured one, and is omitted."""
    if predicted is None:
        return []
    found = []
    for curve, color in zip(curves, colors(curves), strict=True):
        sweep = predicted.sweeps.get(curve.name)
        if sweep is not None and not (what == "effective_lr" and sweep.power):
            style = "-." if curve.averaged else "--"
            found.append(Line(sweep.batch_sizes, getattr(sweep, what), "", color, style, 1.0))
    return found


def _label(curve: Curve) -> str:
    """The name of a curve, in which a dollar sign does not begin a formula."""
    return curve.name.replace("$", r"\$")


def _band(curve: Curve) -> tuple[Array, Array]:
    low, high = (np.where(np.isfinite(end), end, np.nan) for end in curve.interval)
    return low, high
