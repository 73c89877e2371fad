"""Pictures: every matplotlib line in the project.

A picture is data first: a `Line` is points with a look, a `Panel` is lines on axes, and `chart` alone knows matplotlib.
Matplotlib is imported where it is used, through its object interface: no window, no global state, no `pyplot`. The
colours are those of Okabe and Ito (2008), told apart by colour-blind readers too; the same data gives the same bytes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .bounds import bayes_bound, conjugate_gradient_steps, paper_bound
from .optimizers.base import parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from .batch import Sweep
    from .run import Run
    from .search import Scheduled
    from .spectrum import Spectrum

Scale = Literal["linear", "log", "log2"]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLACK, GREY = "#000000", "#808080"
ENDINGS = (".png", ".pdf", ".svg")
HUGE = 1e200  # of a run that diverged; matplotlib's own arithmetic overflows beyond
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a picture looks alike everywhere
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "pdf.fonttype": 42,
    "svg.hashsalt": "nqm",
    "savefig.dpi": 200,
}


@dataclass(frozen=True, eq=False)
class Line:
    """Points and how they look; points that are not finite, or all but, are left out.

    ``tag`` is written at the line's last point, ``label`` in the legend. ``stairs`` holds each value up to the next x.
    """

    x: Any
    y: Any
    label: str = ""
    color: str = PALETTE[0]
    style: str = "-"
    width: float = 1.5
    marker: str = ""
    hollow: bool = False
    stairs: bool = False
    spread: Any = None  # half-width of a shaded band, or its lower and upper side
    error: Any = None  # half-width of error bars
    tag: str = ""
    tag_at: tuple[float, float] = (3.0, 0.0)  # offset of the tag, in points


@dataclass(frozen=True, eq=False)
class Panel:
    """Lines on axes with their names.

    ``legend`` is a matplotlib location, "below" or "none"; ``key`` replaces the lines' own labels in it.
    """

    lines: Sequence[Line]
    x: str
    y: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    title: str = ""
    legend: str = "best"
    key: Sequence[Line] = ()
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_ticks: dict[float, str] | None = None


def chart(
    panels: Sequence[Panel],
    path: str | Path | None = None,
    size: tuple[float, float] | None = None,
    key: Sequence[Line] = (),
) -> Figure:
    """Panels side by side as a figure, written to ``path`` if given.

    Parameters
    ----------
    size : width and height in inches; a text column's 5.5 for one panel, 7.2 for more.
    key : lines whose labels make one legend below all panels, which adds its height.
    """
    check_path(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size or ((5.5, 3.5) if len(panels) == 1 else (7.2, 3.2)), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw(axes, panel)
        if key:
            _legend_below(figure, _handles(key))
    if path is not None:
        save(figure, path)
    return figure


def save(figure: Figure, *paths: str | Path) -> None:
    """Write a figure as PNG, PDF or SVG, as the endings say, making the folders if need be."""
    import matplotlib

    # Dates and version numbers would make two runs differ.
    stamps = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    for path in map(Path, paths):
        check_path(path)
        with matplotlib.rc_context(STYLE):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, metadata=stamps[path.suffix.lower()])
            except OSError as error:
                raise ValueError(f"cannot write the picture {str(path)!r}: {error.strerror or error}") from None
        if len(paths) > 1:
            figure.set_layout_engine("none")  # the first has laid it out, and that takes as long as drawing it


def check_path(path: str | Path | None) -> None:
    """Refuse a picture that could not be written for its ending, before the work is done."""
    if path is not None and Path(path).suffix.lower() not in ENDINGS:
        raise ValueError(f"a picture is written as {', '.join(ENDINGS)}; {Path(path).name!r} ends in none of them")


# What the results of the library look like.


def plot_run(run: Run, path: str | Path | None = None, sampled: Run | None = None) -> Figure:
    """Loss with its parts, signal and noise / B, over steps; and the loss by decade of curvature.

    A sampled run is its mean loss with quantiles of single replicas; ``sampled`` lays one over an exact run.
    """
    steps = np.asarray(run.steps, dtype=float)
    scale: Scale = "log" if np.sum(steps > 0) > 1 else "linear"  # a log axis has no step 0
    dot = "o" if len(steps) < 3 else ""
    # Signal that has died out goes on falling to 1e-300, a run that diverges rises to 1e300; the picture ends before.
    limits = _around(np.minimum(run.loss, 1e6 * run.loss[0]), 1e-3, 1.6)
    title = wrap(f"{run.optimizer}, B = {run.batch_size:g}", 44)
    if run.sampled:
        lines, room = _sampled_lines(run, BLACK), _around(np.minimum(run.loss, 1e6 * run.loss[0]), 0.3, 2.0)
        return chart([Panel(lines, "step", "mean loss", scale, "log", title, y_limits=room)], path)
    with np.errstate(invalid="ignore"):
        noise, bands = run.noise / run.batch_size, run.band_signal + run.band_noise / run.batch_size
    parts = [
        # Where one part makes up the loss, it shows as a rim around it.
        Line(steps, run.signal, "signal", PALETTE[5], width=3.5, marker=dot),
        Line(steps, noise, "noise / B", PALETTE[4], width=3.5, marker=dot),
        Line(steps, run.loss, "loss", BLACK, width=1.3, marker=dot, spread=run.stderr),
    ]
    if 0 < run.floor < math.inf:
        parts.append(Line(steps, np.full(len(steps), run.floor), f"steady state {run.floor:.3g}", GREY, "--", 1.0))
    if sampled is not None:
        few = np.unique(np.linspace(0, len(steps) - 1, 20).astype(int))
        name, error = f"mean of {sampled.replicas:,} replicas", np.asarray(sampled.stderr)[few]
        parts.append(Line(steps[few], sampled.loss[few], name, PALETTE[1], "", marker="o", hollow=True, error=error))
    decades = [
        Line(steps, band, f"{_decade(low)} to {_decade(high)}", color, width=1.1, marker=dot)
        for band, low, high, color in zip(bands, run.band_edges[:-1], run.band_edges[1:], ramp(len(bands)), strict=True)
        if np.any(band > 0)
    ]
    return chart(
        [
            Panel(parts, "step", "expected loss", scale, "log", title, "below", y_limits=limits),
            Panel(decades, "step", "", scale, "log", "by curvature", "below", y_limits=limits),
        ],
        path,
    )


def _sampled_lines(run: Run, color: str) -> list[Line]:
    """The mean over replicas with its standard error, and the band between the outer quantiles."""
    dot = "o" if len(run.steps) < 3 else ""
    lines = [Line(run.steps, run.loss, f"mean of {run.replicas:,} replicas", color, spread=run.stderr, marker=dot)]
    levels = list(run.quantiles or {})
    if run.quantiles and len(levels) > 1:
        sides = run.quantiles[levels[0]], run.quantiles[levels[-1]]
        name = f"{levels[0]:.0%} to {levels[-1]:.0%} of replicas"
        lines.append(Line(run.steps, sides[1], name, GREY, width=0.8, spread=sides, marker=dot))
        lines.append(Line(run.steps, sides[0], "", GREY, width=0.8, marker=dot))
    return lines


def plot_sweeps(sweeps: Sequence[Sweep] | Sweep, path: str | Path | None = None, bounds: bool = True) -> Figure:
    """Tuned steps to the target against batch size, with critical batch sizes (20%), perfect scaling and both bounds.

    Bounds and the conjugate-gradient floor are drawn where all sweeps share their problem and target.
    """
    sweeps = _listed(sweeps)
    first = sweeps[0]
    shared = all(s.target == first.target and s.spectrum is first.spectrum for s in sweeps)
    batch_sizes = np.unique(np.concatenate([np.asarray(s.batch_sizes, dtype=float) for s in sweeps]))
    below = bound_lines(first.spectrum, first.target, batch_sizes) if bounds and shared else []
    floors = (
        cg_lines(first.spectrum, first.target, batch_sizes, [_power(s) for s in sweeps]) if bounds and shared else []
    )
    curves, marks = [], []
    for s, name, color in zip(sweeps, _told_apart(sweeps), _colors(len(sweeps)), strict=True):
        critical = s.critical_batch_size()
        if math.isfinite(critical):
            name += f", critical batch size {_rounded(critical)}"
            marks.append(Line([critical], [curve_at(critical, s.batch_sizes, s.steps)], "", color, "", marker="D"))
        below.append(perfect_scaling(s.batch_sizes, s.steps))
        curves.append(Line(s.batch_sizes, s.steps, name, color, marker="o", error=s.steps_stderr))
    key = [*curves, *(line for line in (*floors, *below) if line.label)]
    if marks:
        key.append(Line([], [], "20% above perfect scaling", GREY, "", marker="D"))
    limits = _around(np.concatenate([line.y for line in (*curves, *floors)]), 0.5, 2.0)
    name = f"steps to loss {first.target:g}" if shared else "steps to target"
    lines = [*below, *floors, *curves, *marks]
    panel = Panel(lines, "batch size", name, "log2", "log2", legend="none", y_limits=limits)
    return chart([panel], path, (5.5, 3.8), key)


def plot_lr(sweeps: Sequence[Sweep] | Sweep, path: str | Path | None = None, effective: bool = True) -> Figure:
    """Best learning rate against batch size: effective, lr / (1 - momentum), or as it is set."""
    sweeps = _listed(sweeps)
    lines = [
        Line(s.batch_sizes, s.effective_lr if effective else s.lr, name, color, marker="o")
        for s, name, color in zip(sweeps, _told_apart(sweeps), _colors(len(sweeps)), strict=True)
    ]
    guide = linear_in_batch(lines[0].x, lines[0].y)
    name = "best effective learning rate" if effective else "best learning rate"
    limits = _around(np.concatenate([line.y for line in lines]), 0.7, 2.0)
    panel = Panel([guide, *lines], "batch size", name, "log2", "log2", legend="none", y_limits=limits)
    return chart([panel], path, key=[*lines, guide])


def plot_schedule(scheduled: Scheduled, path: str | Path | None = None) -> Figure:
    """The learning rate over steps; the batch size too, or instead, where that is what changes."""
    schedule = scheduled.schedule
    rates = [p.value for name, p in parameters(scheduled.optimizer).items() if name.split(".")[-1] == "lr"]
    panels = []
    if np.ptp(schedule.lr) > 0 or np.ptp(schedule.batch_size) == 0:
        values = schedule.lr * rates[0] if rates else schedule.lr
        panels.append(
            _stairs(schedule.ends, values, "learning rate" if rates else "learning rate, multiplied", PALETTE[0])
        )
    if np.ptp(schedule.batch_size) > 0:
        panels.append(_stairs(schedule.ends, schedule.batch_size * scheduled.batch_size, "batch size", PALETTE[1]))
    return chart(panels, path)


def _stairs(ends: Sequence[int], values: Any, name: str, color: str) -> Panel:
    values = np.asarray(values, dtype=float)
    wide = values.min() > 0 and values.max() > 20 * values.min()
    line = Line(np.append(0, ends), np.append(values, values[-1]), "", color, stairs=True)
    return Panel([line], "step", name, "linear", "log" if wide else "linear", legend="none")


# Parts that pictures share.


def bound_lines(spectrum: Spectrum, target: float, batch_sizes: Any) -> list[Line]:
    """The paper's bound and the Bayes bound; one line where they differ by less than a picture shows."""
    sizes = np.asarray(batch_sizes, dtype=float)
    paper, bayes = paper_bound(spectrum, target, 1.0) / sizes, bayes_bound(spectrum, target, 1.0) / sizes
    return bound_pair(sizes, paper, bayes)


def bound_pair(batch_sizes: Any, paper: Any, bayes: Any) -> list[Line]:
    """Lines of the two bounds, from their values."""
    paper, bayes = np.asarray(paper, dtype=float), np.asarray(bayes, dtype=float)
    if np.all(paper < 1.05 * bayes):
        gap = float(np.max(paper / bayes) - 1)
        return [Line(batch_sizes, bayes, f"Bayes bound (d/2CB: +{gap:.1%})", GREY, "-", 0.9)]
    return [
        Line(batch_sizes, bayes, "Bayes bound", GREY, "-", 0.9),
        Line(batch_sizes, paper, "d/2CB, the paper's bound", GREY, "-.", 0.9),
    ]


def cg_lines(spectrum: Spectrum, target: float, batch_sizes: Any, powers: Sequence[float | None]) -> list[Line]:
    """For each preconditioner, the steps that conjugate gradients take without noise."""
    steps = [(p, conjugate_gradient_steps(spectrum, target, p)) for p in sorted({p for p in powers if p is not None})]
    return cg_floors(batch_sizes, [n for _, n in steps if n])


def cg_floors(batch_sizes: Any, steps: Sequence[float]) -> list[Line]:
    """Level lines at the steps of conjugate gradients, each with its number at the end."""
    sizes = np.asarray(batch_sizes, dtype=float)
    ends = [sizes.min(), sizes.max()]
    names = ["CG: conjugate gradients", *[""] * len(steps)]
    return [Line(ends, [n, n], name, GREY, "--", 0.7, tag=f"CG {n:g}") for n, name in zip(steps, names, strict=False)]


def perfect_scaling(batch_sizes: Any, steps: Any, label: str = "perfect scaling", color: str = GREY) -> Line:
    """Twice the batch, half the steps, through the point of a curve with the fewest examples."""
    x, y = _finite(batch_sizes, steps)
    x, y = (x, np.min(x * y) / x) if len(x) else (x, y)
    return Line(x, y, label, color, ":", 1.0)


def linear_in_batch(batch_sizes: Any, rates: Any, label: str = "proportional to B") -> Line:
    """Twice the batch, twice the rate, from the first point of a curve."""
    x, y = _finite(batch_sizes, rates)
    x, y = (x, y[:1] * x / x[0]) if len(x) else (x, y)
    return Line(x, y, label, GREY, ":", 1.0)


def curve_at(batch_size: float, batch_sizes: Any, steps: Any) -> float:
    """A curve between its points, straight in logarithms."""
    x, y = _finite(batch_sizes, steps)
    return float(np.exp2(np.interp(np.log2(batch_size), np.log2(x), np.log2(y))))


def ramp(n: int) -> list[str]:
    """n colours in an order that the eye follows, dark to light (viridis, without its pale end)."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(c) for c in colormaps["viridis"](np.linspace(0.0, 0.85, max(n, 1)))][:n]


def wrap(text: str, width: int = 60) -> str:
    return "\n".join(textwrap.wrap(text, width, break_long_words=False))


def _listed(sweeps: Sequence[Sweep] | Sweep) -> list[Sweep]:
    found = list(sweeps) if isinstance(sweeps, (list, tuple)) else [sweeps]
    if not found:
        raise ValueError("there is no sweep to plot; give at least one")
    return found  # type: ignore[return-value]


def _told_apart(sweeps: Sequence[Sweep]) -> list[str]:
    """Labels, without empty brackets, and with the target where sweeps differ in it."""
    one = len({s.target for s in sweeps}) == 1
    return [s.label.replace("()", "") + ("" if one else f" to {s.target:g}") for s in sweeps]


def _colors(n: int) -> list[str]:
    return list(PALETTE[:n]) if n <= len(PALETTE) else ramp(n)


def _power(sweep: Sweep) -> float | None:
    """The p of a sweep's preconditioner H^-p; None where p was tuned, for then no one curve of CG belongs to it."""
    found = {p.value for o in sweep.optimizers if o for name, p in parameters(o).items() if name.endswith("power")}
    return sweep.power if len(found) < 2 and sweep.steps_stderr is None else None


def _rounded(value: float) -> str:
    """Three digits, whole from 10 on, with commas."""
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.3g}'):,.0f}"


def _decade(value: float) -> str:
    return f"$10^{{{round(math.log10(value))}}}$"


def _finite(x: Any, y: Any) -> tuple[Any, Any]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    keep = np.isfinite(x) & (np.abs(y) < HUGE)
    return x[keep], y[keep]


def _around(values: Any, below: float, above: float) -> tuple[float, float] | None:
    """Limits of a log axis: the finite positive values with room."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values) & (values > 0)]
    return (float(values.min() * below), float(values.max() * above)) if values.size else None


# How a panel becomes axes.


def _draw(axes: Any, panel: Panel) -> None:
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
        if panel.legend == "below":
            axes.legend(handles=_handles(entries), loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        else:
            axes.legend(handles=_handles(entries), loc=panel.legend)


def _draw_line(axes: Axes, line: Line) -> None:
    x, y = _finite(line.x, line.y)
    if line.spread is not None and len(x):
        low, high = line.spread if isinstance(line.spread, tuple) else (line.y - line.spread, line.y + line.spread)
        (below, low), (above, high) = _finite(line.x, low), _finite(line.x, high)
        if len(below) == len(above):
            axes.fill_between(below, low, high, color=line.color, alpha=0.2, linewidth=0)
    if line.error is not None and len(x):
        known = np.isfinite(line.y) & np.isfinite(line.error)
        at, error = np.asarray(line.x, dtype=float)[known], np.asarray(line.error)[known]
        axes.errorbar(at, np.asarray(line.y)[known], error, fmt="none", ecolor=line.color, elinewidth=1, capsize=2)
    axes.plot(x, y, drawstyle="steps-post" if line.stairs else "default", **_look(line))
    if line.tag and len(x):
        look = {"va": "center", "fontsize": 8, "color": line.color}
        axes.annotate(line.tag, (x[-1], y[-1]), xytext=line.tag_at, textcoords="offset points", **look)


def _look(line: Line) -> dict[str, Any]:
    return {
        "color": line.color,
        "linestyle": line.style or "none",
        "linewidth": line.width,
        "marker": line.marker or None,
        "markersize": {"D": 6.0}.get(line.marker, 3.5),
        "markerfacecolor": "white" if line.hollow else line.color,
        "markeredgecolor": "white" if line.marker == "D" else line.color,
        "markeredgewidth": 0.8,
        "label": line.label or None,
    }


def _legend_below(figure: Figure, handles: list[Any]) -> None:
    """A legend read by rows, as few as the figure's width allows and as even as can be."""
    for rows in range(1, len(handles) + 1):
        columns = math.ceil(len(handles) / rows)
        by_rows = [handle for j in range(columns) for handle in handles[j::columns]]  # matplotlib fills columns first
        legend = figure.legend(handles=by_rows, loc="outside lower center", ncols=columns)
        box = legend.get_window_extent()
        if columns == 1 or box.width <= figure.get_figwidth() * figure.dpi:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        legend.remove()


def _handles(lines: Sequence[Line]) -> list[Any]:
    from matplotlib.lines import Line2D

    seen: dict[str, Line] = {}
    for line in lines:
        seen.setdefault(line.label, line)
    return [Line2D([], [], **_look(line)) for line in seen.values()]


def _scale(axes: Axes, name: str, scale: Scale, limits: tuple[float, float] | None, data: Sequence[Any]) -> None:
    if scale != "linear":
        getattr(axes, f"set_{name}scale")("log", base=2 if scale == "log2" else 10, nonpositive="mask")
    if scale == "log2":
        found = _around(np.concatenate([np.ravel(np.asarray(d, dtype=float)) for d in data]), 0.8, 1.25)
        limits = _powers_of_two(getattr(axes, f"{name}axis"), limits or found or (1.0, 2.0))
    if limits:
        getattr(axes, f"set_{name}lim")(*limits)


def _powers_of_two(axis: Axis, limits: tuple[float, float]) -> tuple[float, float]:
    """Ticks at powers of two, at most ten, written as such; the limits widened until they hold two."""
    low, high = limits
    if math.floor(math.log2(high)) <= math.ceil(math.log2(low)):
        low, high = 2.0 ** math.floor(math.log2(low)) * 0.9, 2.0 ** math.ceil(math.log2(high)) * 1.1
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    stride = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if (last - first) / n < 11)
    ticks = [k for k in range(first, last + 1) if k % stride == 0]
    axis.set_ticks([2.0**k for k in ticks], labels=[f"$2^{{{k}}}$" for k in ticks])
    axis.set_ticks([], minor=True)
    return low, high
