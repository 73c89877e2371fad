"""Pictures from data. This is the only module that uses matplotlib.

A `Line` is a set of points and how to draw them, a `Panel` is lines on axes, and `chart` draws panels. Matplotlib is imported
on first use and driven through its object interface, without `pyplot`, windows or global state. The palette of Okabe and Ito
(2008) can be read by colour-blind people. Equal data gives files with equal bytes.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..types import Array, Wrong

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    OnAxes = Axes | Sequence[Axes] | Array
else:
    Figure = OnAxes = Any  # Other modules import these names for annotations, which must not load matplotlib.

AxisScale = Literal["linear", "log", "log2"]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLACK, GREY = "#000000", "#808080"
ENDINGS = (".png", ".pdf", ".svg")
FAR_TAG = 20.0  # A tag that is further above or below its point than this, in points, is joined to it by a thin line.
LARGEST_DRAWN = 1e200  # Larger values, from runs that diverged, are omitted: they overflow inside matplotlib.
MATPLOTLIB_STYLE: Any = {
    "font.size": 9, "font.family": "DejaVu Sans",  # This font comes with matplotlib.
    "axes.titlesize": 9, "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "legend.handlelength": 2.2, "legend.columnspacing": 1.4,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#e8e8e8", "grid.linewidth": 0.6, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
    "xtick.minor.pad": 5.0, "ytick.minor.pad": 5.0,  # Labels of shorter ticks are then on the height of the others.
    "pdf.fonttype": 42, "svg.hashsalt": "nqm", "savefig.dpi": 200,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Line:
    """Points and how to draw them. Points that are not finite, or larger than `LARGEST_DRAWN`, are omitted.

    ``label`` appears in the legend, and ``tag`` beside the last point. With ``stairs`` each value holds up to the next x.
    """

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    color: str = PALETTE[0]
    style: str = "-"
    width: float = 1.5
    marker: str = ""
    hollow: bool = False
    stairs: bool = False
    spread: ArrayLike | tuple[Array, Array] | None = None  # Half-width of a shaded band, or its lower and upper edge.
    error: ArrayLike | None = None  # Half-length of error bars.
    tag: str = ""
    tag_at: tuple[float, float] = (3.0, 0.0)  # Offset of the tag from the last point, in points.


@dataclass(frozen=True, eq=False)
class Cells:
    """Positive values of the cells of a grid, as (row, column), drawn as colours on a log scale; a cell with NaN is white."""

    x: ArrayLike  # The edges of the columns: one more than there are columns.
    y: ArrayLike  # The edges of the rows.
    values: ArrayLike
    label: str  # The label of the colour bar.


@dataclass(frozen=True, eq=False)
class Panel:
    """Lines on labelled axes, in front of coloured cells if there are any.

    ``legend`` is a location of matplotlib, "below" or "none". The legend has the labels of ``key`` if it is given, and
    those of ``lines`` otherwise.
    """

    lines: Sequence[Line]
    x: str
    y: str
    x_scale: AxisScale = "linear"
    y_scale: AxisScale = "linear"
    title: str = ""
    legend: str = "best"
    key: Sequence[Line] = ()
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_ticks: dict[float, str] | None = None
    cells: Cells | None = None


def chart(
    panels: Sequence[Panel], path: str | Path | None = None, size: tuple[float, float] | None = None,
    key: Sequence[Line] = (), title: str = "", heights: Sequence[float] = (), columns: int = 0, ax: OnAxes | None = None,
) -> Figure:  # fmt: skip
    """A figure with the panels side by side, written to ``path`` if given.

    Parameters
    ----------
    size : width and height in inches; the width is 5.5 for one panel and 7.2 for more if omitted.
    key : lines whose labels make one legend below all panels; the figure grows by its height.
    title : written above all panels.
    heights : if given, the panels stand below each other with these relative heights.
    columns : if given, the panels stand in rows of this many.
    ax : axes of the caller's own figure, which is then returned. One of them takes the first panel, several take one panel each.
    """
    check_path(path)
    if ax is not None:
        figure = _on_axes(panels, ax, key, title)
        if path is not None:
            save(figure, path)
        return figure
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(MATPLOTLIB_STYLE):
        figure = Figure(figsize=size or ((5.5, 3.5) if len(panels) == 1 else (7.2, 3.2)), layout="constrained")
        FigureCanvasAgg(figure)
        if heights:
            grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
        else:
            columns = columns or len(panels)
            grid = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
        for axes, panel in zip(grid.ravel(), panels, strict=False):
            _draw(axes, panel)
        for axes in grid.ravel()[len(panels) :]:
            axes.set_axis_off()
        if title:
            figure.suptitle(title, fontsize=MATPLOTLIB_STYLE["axes.titlesize"])
        if key:
            _legend_below(figure, _handles(key))
    figure._repr_png_ = partial(png, figure, dpi=100)  # type: ignore[attr-defined]  # A notebook calls it.
    if path is not None:
        save(figure, path)
    return figure


def _on_axes(panels: Sequence[Panel], ax: OnAxes, key: Sequence[Line], title: str) -> Figure:
    """Draw on the caller's axes, in the caller's style, and return their figure."""
    given: list[Any] = list(np.ravel(np.asarray(ax, dtype=object)))
    if not given or not all(hasattr(axes, "set_xlabel") for axes in given):
        raise Wrong(f"ax must be axes of matplotlib, such as those of plt.subplots(), got {ax!r:.60}", argument="ax")
    if len(given) not in (1, len(panels)):
        raise Wrong(
            f"ax must be one of matplotlib's axes, or {len(panels)} for the panels of this plot, got {len(given)}", "ax"
        )
    if len(given) < len(panels):  # The axis of steps is named below the last of stacked panels.
        panels = [replace(panels[0], x=panels[0].x or panels[-1].x)]
    for axes, panel in zip(given, panels, strict=True):
        _draw(axes, panel)
    if title and not panels[0].title:
        given[0].set_title(title)
    if key:
        given[0].legend(handles=_handles(key))
    return given[0].figure


def save(figure: Figure, *paths: str | Path) -> None:
    """Write a figure as PNG, PDF or SVG, by the ending of each path. Missing folders are made."""
    import matplotlib

    # Without dates and version numbers, equal figures are equal files.
    stamps = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    for path in map(Path, paths):
        check_path(path)
        with matplotlib.rc_context(MATPLOTLIB_STYLE):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, metadata=stamps[path.suffix.lower()])
            except OSError as error:
                raise Wrong(f"cannot write the picture {str(path)!r}: {error.strerror or error}") from None
        if len(paths) > 1:
            figure.set_layout_engine("none")  # The layout is done, and doing it again would double the time.


def png(figure: Figure, dpi: float = 160) -> bytes:
    """A figure as the bytes of a PNG file, to embed in a page."""
    import matplotlib

    out = io.BytesIO()
    with matplotlib.rc_context(MATPLOTLIB_STYLE):
        figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def check_path(path: str | Path | None) -> None:
    """Refuse a path whose ending is not that of a picture, before any work is done."""
    if path is not None and Path(path).suffix.lower() not in ENDINGS:
        raise Wrong(f"a picture is written as {', '.join(ENDINGS)}; {Path(path).name!r} ends in none of them")


def ramp(n: int) -> list[str]:
    """n colours from dark to light (viridis without its palest part)."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(c) for c in colormaps["viridis"](np.linspace(0.0, 0.85, max(n, 1)))][:n]


def wrap(text: str, width: int = 60) -> str:
    return "\n".join(textwrap.wrap(text, width, break_long_words=False))


def finite(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """The points that can be drawn: x is finite and y at most `LARGEST_DRAWN`."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    keep = np.isfinite(x) & (np.abs(y) < LARGEST_DRAWN)
    return x[keep], y[keep]


def around(values: ArrayLike, below: float, above: float) -> tuple[float, float] | None:
    """Limits of a log axis: the smallest positive value times ``below``, and the largest times ``above``."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values) & (values > 0)]
    return (float(values.min() * below), float(values.max() * above)) if values.size else None


def _draw(axes: Any, panel: Panel) -> None:
    if panel.cells:
        _draw_cells(axes, panel.cells)
    for line in panel.lines:
        _draw_line(axes, line)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    if panel.title:
        axes.set_title(panel.title)
    _scale(axes, "x", panel.x_scale, panel.x_limits, [line.x for line in panel.lines])
    _scale(axes, "y", panel.y_scale, panel.y_limits, [line.y for line in panel.lines])
    if panel.x_ticks:
        axes.xaxis.set_ticks(list(panel.x_ticks), labels=list(panel.x_ticks.values()))
        axes.xaxis.set_ticks([], minor=True)
    entries = panel.key or [line for line in panel.lines if line.label]
    if entries and panel.legend != "none":
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}
        axes.legend(handles=_handles(entries), **(below if panel.legend == "below" else {"loc": panel.legend}))


def _draw_cells(axes: Any, cells: Cells) -> None:
    from matplotlib.colors import LogNorm

    values = np.ma.masked_invalid(np.asarray(cells.values, dtype=float))
    axes.grid(False)
    if values.count():
        norm = LogNorm(values.min(), max(values.max(), 1.01 * values.min()))
        mesh = axes.pcolormesh(cells.x, cells.y, values, norm=norm, cmap="viridis_r", rasterized=True)
        axes.figure.colorbar(mesh, ax=axes, label=cells.label)


def _draw_line(axes: Axes, line: Line) -> None:
    x, y = finite(line.x, line.y)
    if line.spread is not None and len(x):
        mid, half = np.asarray(line.y), line.spread
        low, high = half if isinstance(half, tuple) else (mid - np.asarray(half), mid + np.asarray(half))
        (below, low), (above, high) = finite(line.x, low), finite(line.x, high)
        if len(below) == len(above):
            axes.fill_between(below, low, high, color=line.color, alpha=0.2, linewidth=0)
    if line.error is not None and len(x):
        at, mid, error = (np.asarray(v, dtype=float) for v in (line.x, line.y, line.error))
        known = np.isfinite(mid) & np.isfinite(error)
        axes.errorbar(at[known], mid[known], error[known], fmt="none", ecolor=line.color, elinewidth=1, capsize=2)
    axes.plot(x, y, drawstyle="steps-post" if line.stairs else "default", **_look(line))
    if line.tag and len(x):
        look: dict[str, Any] = {"va": "center", "fontsize": 8, "color": line.color}
        if abs(line.tag_at[1]) > FAR_TAG:
            look["arrowprops"] = {"arrowstyle": "-", "color": line.color, "linewidth": 0.6}
        axes.annotate(line.tag, (x[-1], y[-1]), xytext=line.tag_at, textcoords="offset points", **look)


def _look(line: Line) -> dict[str, Any]:
    return {
        "color": line.color, "linestyle": line.style or "none", "linewidth": line.width, "label": line.label or None,
        "marker": line.marker or None, "markersize": {"D": 6.0}.get(line.marker, 3.5), "markeredgewidth": 0.8,
        "markerfacecolor": "white" if line.hollow else line.color,
        "markeredgecolor": "white" if line.marker == "D" else line.color,
    }  # fmt: skip


def _legend_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """A legend with as few rows as the width of the figure allows, filled row by row."""
    for rows in range(1, len(handles) + 1):
        columns = math.ceil(len(handles) / rows)
        by_rows = [handle for j in range(columns) for handle in handles[j::columns]]  # matplotlib fills columns first.
        legend = figure.legend(handles=by_rows, loc="outside lower center", ncols=columns)
        box = legend.get_window_extent()
        if columns == 1 or box.width <= figure.get_figwidth() * figure.dpi:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        legend.remove()


def _handles(lines: Sequence[Line]) -> list[Line2D]:
    from matplotlib.lines import Line2D

    seen: dict[str, Line] = {}
    for line in lines:
        seen.setdefault(line.label, line)
    return [Line2D([], [], **_look(line)) for line in seen.values()]


def _scale(
    axes: Axes, name: str, scale: AxisScale, limits: tuple[float, float] | None, data: Sequence[ArrayLike]
) -> None:
    if scale != "linear":
        getattr(axes, f"set_{name}scale")("log", base=2 if scale == "log2" else 10, nonpositive="mask")
    if scale == "log":
        _few_labels(getattr(axes, f"{name}axis"), limits or getattr(axes, f"get_{name}lim")())
    if scale == "log2":
        found = around(np.concatenate([np.ravel(np.asarray(d, dtype=float)) for d in data]), 0.8, 1.25)
        limits = _powers_of_two(getattr(axes, f"{name}axis"), limits or found or (1.0, 2.0))
    if limits:
        getattr(axes, f"set_{name}lim")(*limits)


def _few_labels(axis: Axis, limits: tuple[float, float]) -> None:
    """Label the ticks of a log axis: powers of ten if it is long; plain numbers, more of them on a shorter axis, otherwise."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    low, high = limits
    if not low > 0 or high >= 200 * low:
        axis.set_minor_formatter(NullFormatter())
        return
    if high < 3 * low:
        axis.set_major_locator(MaxNLocator(5))
        axis.set_minor_locator(NullLocator())

    def label(x: float, _: int | None) -> str:
        leading = round(x / 10.0 ** math.floor(math.log10(x)), 6) if x > 0 else 0
        return f"{x:g}" if leading in (1, 2, 5) or high < 8 * low else ""

    axis.set_major_formatter(FuncFormatter(label))
    axis.set_minor_formatter(FuncFormatter(label))


def _powers_of_two(axis: Axis, limits: tuple[float, float]) -> tuple[float, float]:
    """Put at most eleven ticks at powers of two; the limits are widened until they contain two ticks, and returned."""
    low, high = limits
    if math.floor(math.log2(high)) <= math.ceil(math.log2(low)):
        low, high = 2.0 ** math.floor(math.log2(low)) * 0.9, 2.0 ** math.ceil(math.log2(high)) * 1.1
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    stride = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if (last - first) / n < 11)
    ticks = [k for k in range(first, last + 1) if k % stride == 0]
    axis.set_ticks([2.0**k for k in ticks], labels=[f"$2^{{{k}}}$" for k in ticks])
    axis.set_ticks([], minor=True)
    return low, high
