"""The pictures of results, as lines and panels that `chart` draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..optimizers.base import parameters
from ..problems.bounds import bayes_bound, paper_bound
from ..types import Array, Wrong
from .chart import (
    BLACK,
    GREY,
    PALETTE,
    AxisScale,
    Cells,
    Figure,
    Line,
    OnAxes,
    Panel,
    around,
    chart,
    finite,
    ramp,
    wrap,
)
from .numbers import rounded, shown

if TYPE_CHECKING:
    from ..engine.run import Run
    from ..search import PhaseMap, Scheduled
    from ..search.phase import Ticks
    from ..search.sweeps import Sweep


CG = "conjugate gradients (CG)"
PERFECT = "perfect scaling"
NAME_HEIGHT = 10.0  # points between the names of two curves, of which each is 8 points high


def plot_run(
    run: Run, path: str | Path | None = None, sampled: Run | None = None, *, ax: OnAxes | None = None
) -> Figure:
    """The loss over steps with its two parts, signal and noise / B, and beside it the loss by decade of curvature.

    Of a sampled run, the mean loss is drawn, with quantiles over replicas. ``sampled`` adds a sampled run to an exact one.
    """
    steps = np.asarray(run.steps, dtype=float)
    scale: AxisScale = "log" if np.sum(steps > 0) > 1 else "linear"  # A log axis has no step 0.
    dot = "o" if len(steps) < 3 else ""
    title = wrap(f"{run.optimizer}, batch size {shown(run.batch_size)}", 44)
    if run.sampled:
        limits = around(np.minimum(run.loss, 1e6 * run.loss[0]), 0.3, 2.0)
        return chart(
            [Panel(_sampled_lines(run, dot), "step", "mean loss", scale, "log", title, y_limits=limits)], path, ax=ax
        )
    edges = [] if run.band_edges is None else run.band_edges
    with np.errstate(invalid="ignore"):
        noise = run.noise / run.batch_size
        bands = run.band_signal + run.band_noise / run.batch_size if len(edges) else []
    # The signal may fall to 1e-300 and a diverging loss rise to 1e300, so the axis is limited to the range of interest.
    drawn = np.concatenate([run.loss, run.signal, noise, np.ravel(bands)])
    limits = around(np.clip(drawn[drawn > 0], 1e-3 * np.nanmin(run.loss), 1e6 * run.loss[0]), 0.6, 1.6)
    parts = [
        # Both parts are wide lines, so that a part that is hidden behind the loss is visible as a rim.
        Line(steps, run.signal, "signal", PALETTE[5], width=3.5, marker=dot),
        Line(steps, noise, "noise / B", PALETTE[4], width=3.5, marker=dot),
        Line(steps, run.loss, "loss", BLACK, width=1.3, marker=dot, spread=run.stderr),
    ]
    if 0 < run.floor < math.inf:
        parts.append(Line(steps, np.full(len(steps), run.floor), f"steady state {shown(run.floor)}", GREY, "--", 1.0))
    if sampled is not None:
        few = np.unique(np.linspace(0, len(steps) - 1, 20).astype(int))
        name, error = f"mean of {sampled.replicas:,} replicas", np.asarray(sampled.stderr)[few]
        parts.append(Line(steps[few], sampled.loss[few], name, PALETTE[1], "", marker="o", hollow=True, error=error))
    powers = [f"$10^{{{round(math.log10(h))}}}$" for h in edges]
    decades = [
        Line(steps, band, f"{low} to {high}", color, width=1.1, marker=dot)
        for band, low, high, color in zip(bands, powers[:-1], powers[1:], ramp(len(bands)), strict=True)
        if np.any(band > 0)
    ]
    panels = [Panel(parts, "step", "expected loss", scale, "log", title, "below", y_limits=limits)]
    if len(edges):  # A prediction for a network has no bands.
        panels.append(Panel(decades, "step", "", scale, "log", "by curvature", "below", y_limits=limits))
    return chart(panels, path, ax=ax)


def _sampled_lines(run: Run, dot: str) -> list[Line]:
    """The mean over replicas with its standard error, and the band between the outer quantiles."""
    lines = [Line(run.steps, run.loss, f"mean of {run.replicas:,} replicas", BLACK, spread=run.stderr, marker=dot)]
    levels = list(run.quantiles or {})
    if run.quantiles and len(levels) > 1:
        sides = run.quantiles[levels[0]], run.quantiles[levels[-1]]
        name = f"{levels[0]:.0%} to {levels[-1]:.0%} of replicas"
        lines.append(Line(run.steps, sides[1], name, GREY, width=0.8, spread=sides, marker=dot))
        lines.append(Line(run.steps, sides[0], "", GREY, width=0.8, marker=dot))
    return lines


def plot_sweeps(
    sweeps: Sequence[Sweep] | Sweep, path: str | Path | None = None, bounds: bool = True, *, ax: OnAxes | None = None
) -> Figure:
    """Tuned steps to the target against batch size. Curves are named at their ends, and marks are critical batch sizes.

    Each curve has its line of perfect scaling. The lower bounds, which hold for every method, are drawn only if all sweeps
    have the same problem and target.
    """
    sweeps = _listed(sweeps)
    first = sweeps[0]
    shared = all(s.target == first.target and s.spectrum is first.spectrum for s in sweeps)
    batch_sizes = np.unique(np.concatenate([np.asarray(s.batch_sizes, dtype=float) for s in sweeps]))
    guides, curves, points, marks, critical = [], [], [], [], {}
    if bounds and shared and first.spectrum is not None:
        asked = first.spectrum, first.target
        guides = bound_pair(batch_sizes, *(bound(*asked, 1.0) / batch_sizes for bound in (paper_bound, bayes_bound)))
    for s, name, color in _named(sweeps):
        at, name = s.critical_batch_size(), name + (" (mean field)" if s.method == "mean field" else "")
        if math.isfinite(at):
            critical[name] = shown(rounded(at))
            place = {"tag": critical[name], "tag_at": (5.0, 6.0)}
            marks.append(
                Line([at], [curve_at(at, s.bend.knots.at, s.bend.knots.steps)], "", color, "", marker="D", **place)
            )
        guides.append(Line(s.batch_sizes, s.perfect_scaling(), PERFECT, GREY, ":", 1.0))
        added = _added_points(s, at)
        points.append(Line(*added, "", color, "", marker="o", hollow=True))
        points.append(Line(s.batch_sizes, s.steps, "", color, "", marker="o", error=s.steps_stderr))
        x = np.append(s.batch_sizes, added[0])
        y, order = np.append(s.steps, added[1]), np.argsort(x)
        curves.append(Line(x[order], y[order], "", color, tag=name))
    limits = around(np.concatenate([line.y for line in curves]), 0.5, 2.0)
    name = f"steps to loss {first.target:g}" if shared else "steps to target"
    lines = [*_named_inside(guides, limits), *_apart(curves, limits, 200.0), *points, *marks]
    hollow = any(line.hollow and len(np.ravel(line.x)) for line in points)
    panel = Panel(lines, "batch size", name, "log2", "log2", _headline(critical, hollow), "none", y_limits=limits)
    return chart([panel], path, (6.2, 3.8), ax=ax)


def _added_points(s: Sweep, critical: float) -> tuple[Array, Array]:
    """Batch sizes and steps of the points that a sweep added, as far out as those that were asked for and the mark."""
    ends = [*s.batch_sizes.tolist(), *([critical] if math.isfinite(critical) else [])]
    shown_of = [p for p in s.added if p.steps is not None and 0.9 * min(ends) <= p.batch_size <= 1.1 * max(ends)]
    return np.array([p.batch_size for p in shown_of], dtype=float), np.array([p.steps for p in shown_of], dtype=float)


def _headline(critical: dict[str, str], hollow: bool) -> str:
    """The critical batch sizes of named curves as a sentence, and what the marks and hollow points are."""
    if not critical:
        return ""
    (name, size), *others = sorted(critical.items(), key=lambda one: -float(one[1].replace(",", "")))
    scale = ", ".join([f"{name} scales to batch size {size}", *(f"{name} to {size}" for name, size in others)])
    added = "; hollow: added by the sweep" if hollow else ""
    return f"{wrap(scale, 76)}\n(marks: twice the steps of perfect scaling{added})"


def _named_inside(guides: Sequence[Line], limits: tuple[float, float] | None) -> list[Line]:
    """Guides, cut where they leave the picture. Each kind is named once: bounds to the left of their end, others to the right."""
    cut = []
    for guide in guides:
        x, y = finite(guide.x, guide.y)
        if limits is not None and len(y) and y[0] > limits[0] > y[-1]:  # a guide falls as 1 / B
            inside = y >= limits[0]
            x, y = np.append(x[inside], x[0] * y[0] / limits[0]), np.append(y[inside], limits[0])
        cut.append(replace(guide, x=x, y=y, label=""))
    last = {guide.label: i for i, guide in sorted(enumerate(guides), key=lambda one: np.max(cut[one[0]].x, initial=0))}
    bounds = [label for label in last if "bound" in label]
    for label, i in last.items():
        up = NAME_HEIGHT * bounds.index(label) if label in bounds else 0.0  # names stand above each other
        left = -(4.5 * len(label) + 8 + up) if label in bounds else 4.0
        cut[i] = replace(cut[i], tag=label, tag_at=(left, 6.0 + up))
    return cut


def _apart(curves: Sequence[Line], limits: tuple[float, float] | None, height: float) -> list[Line]:
    """The curves with their names moved up or down so far that no two names touch; ``height`` is that of the axis in points."""
    ended = [(line, y[-1]) for line in curves for _, y in [finite(line.x, line.y)] if len(y)]
    if limits is None or len(ended) < 2:
        return list(curves)
    scale = height / math.log(limits[1] / limits[0])
    order = sorted(range(len(ended)), key=lambda i: ended[i][1])
    wanted = np.array([scale * math.log(ended[i][1] / limits[0]) for i in order])
    placed, top = wanted.copy(), height
    for i in range(1, len(placed)):  # upwards, then back down where the picture ends
        placed[i] = max(placed[i], placed[i - 1] + NAME_HEIGHT)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], top)
        top = placed[i] - NAME_HEIGHT
    moved = {id(ended[i][0]): float(at - want) for i, at, want in zip(order, placed, wanted, strict=True)}
    return [replace(line, tag_at=(5.0, moved.get(id(line), 0.0))) for line in curves]


def plot_lr(
    sweeps: Sequence[Sweep] | Sweep, path: str | Path | None = None, effective: bool = True, *, ax: OnAxes | None = None
) -> Figure:
    """The best learning rate against batch size; the effective one, lr / (1 - momentum), unless ``effective`` is false."""
    sweeps = _listed(sweeps)
    lines = [
        Line(s.batch_sizes, s.effective_lr if effective else s.lr, name, color, marker="o")
        for s, name, color in _named(sweeps)
    ]
    name = "best effective learning rate" if effective else "best learning rate"
    return chart([rates_panel(lines, name)], path, key=lines, ax=ax)


def plot_schedule(scheduled: Scheduled, path: str | Path | None = None, *, ax: OnAxes | None = None) -> Figure:
    """The learning rate over steps, and the batch size if the schedule changes it."""
    schedule, B = scheduled.schedule, scheduled.batch_size
    rates = [p.value for name, p in parameters(scheduled.optimizer).items() if name.split(".")[-1] == "lr"]
    panels = []
    if np.ptp(schedule.lr) > 0 or np.ptp(schedule.batch_size) == 0:
        values, name = (schedule.lr * rates[0], "") if rates else (schedule.lr, ", multiplied")
        panels.append(_stairs(schedule.ends, values, f"learning rate{name}", PALETTE[0]))
    if np.ptp(schedule.batch_size) > 0:
        panels.append(_stairs(schedule.ends, schedule.batch_size * B, "batch size", PALETTE[1]))
    size = "as drawn" if np.ptp(schedule.batch_size) > 0 else shown(B)
    title = "\n".join(wrap(line, 76) for line in (f"{scheduled.optimizer}, batch size {size}", scheduled.message))
    return chart(panels, path, title=title, ax=ax)


def plot_map(found: PhaseMap, path: str | Path | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Steps to the target over two settings, as colours, with the edge of stability and the cell with the fewest steps."""
    x, y, best = _MapAxis(found.x), _MapAxis(found.y), found.best()
    lines = []
    if len(found.boundary):
        edge = np.asarray(found.boundary, dtype=float)
        lines.append(Line(x.at(edge[:, 0]), y.at(edge[:, 1]), "edge of stability", BLACK, "--"))
    if best is not None:
        fewest = f"fewest steps: {best['steps']:,}"
        lines.append(Line([x.at(best["x"])], [y.at(best["y"])], fewest, PALETTE[1], "", marker="D"))
    size = "" if found.batch_size is None else f", batch size {shown(found.batch_size)}"
    cells = Cells(x.sides, y.sides, found.steps, f"steps to loss {found.target:g} (white: never)")
    panel = Panel(
        lines, x.name, y.name, x.scale, y.scale, wrap(f"{found.optimizer}{size}", 76), "below", cells=cells,
        x_limits=x.limits, y_limits=y.limits,
    )  # fmt: skip
    return chart([panel], path, (5.5, 4.2), ax=ax)


class _MapAxis:
    """An axis of a map. A momentum or a decay is drawn as its memory 1 / (1 - value), in which its values are evenly spaced."""

    def __init__(self, ticks: Ticks) -> None:
        self.memory = ticks.scale == "memory"
        self.name = f"1 / (1 - {ticks.name})" if self.memory else ticks.name.replace("_", " ")
        spaced = self.memory or ticks.scale == "log"
        self.scale: AxisScale = "log2" if ticks.name == "batch_size" else "log" if spaced else "linear"
        middle = self.at(ticks.values)
        middle = np.log(middle) if spaced else middle
        inner = (middle[1:] + middle[:-1]) / 2
        sides = np.concatenate([[2 * middle[0] - inner[0]], inner, [2 * middle[-1] - inner[-1]]])
        self.sides = np.exp(sides) if spaced else sides
        self.limits = float(self.sides[0]), float(self.sides[-1])

    def at(self, values: ArrayLike) -> Array:
        values = np.asarray(values, dtype=float)
        return 1 / (1 - values) if self.memory else values


def _stairs(ends: Sequence[int], values: ArrayLike, name: str, color: str) -> Panel:
    values = np.asarray(values, dtype=float)
    wide = values.min() > 0 and values.max() > 20 * values.min()
    line = Line(np.append(0, ends), np.append(values, values[-1]), "", color, stairs=True)
    return Panel([line], "step", name, "linear", "log" if wide else "linear", legend="none")


def bound_pair(batch_sizes: ArrayLike, paper: ArrayLike, bayes: ArrayLike) -> list[Line]:
    """The Bayes bound, and the paper's bound if it differs by more than 5%, which a reader can see."""
    paper, bayes = np.asarray(paper, dtype=float), np.asarray(bayes, dtype=float)
    lower = Line(batch_sizes, bayes, "lower bound (Bayes)", GREY, "-", 0.9)
    if np.all(paper < 1.05 * bayes):
        return [lower]
    return [lower, Line(batch_sizes, paper, "the paper's bound", GREY, "--", 0.9)]


def cg_floors(batch_sizes: ArrayLike, steps: Sequence[float], colors: Sequence[str] = ()) -> list[Line]:
    """Horizontal lines at the steps that conjugate gradients take without noise, each with its number as a tag."""
    sizes = np.asarray(batch_sizes, dtype=float)
    ends = [sizes.min(), sizes.max()]
    named = zip(steps, colors or [GREY] * len(steps), strict=True)
    return [Line(ends, [n, n], CG, color, "-.", 0.9, tag=f"CG {n:g}") for n, color in named]


def perfect_scaling(batch_sizes: ArrayLike, steps: ArrayLike) -> Line:
    """A line along which twice the batch needs half the steps, through the point of the curve with the fewest examples."""
    x, y = finite(batch_sizes, steps)
    x, y = (x, np.min(x * y) / x) if len(x) else (x, y)
    return Line(x, y, PERFECT, GREY, ":", 1.0)


def linear_in_batch(batch_sizes: ArrayLike, rates: ArrayLike, top: float = math.inf) -> Line:
    """A line along which twice the batch has twice the rate, from the first point of a curve up to the rate ``top``."""
    x, y = finite(batch_sizes, rates)
    ends = np.array([1.0, np.clip(top / y[0], 1.0, x[-1] / x[0])]) if len(x) else x
    return Line(x[:1] * ends, y[:1] * ends, "proportional to B", GREY, ":", 1.0)


def rates_panel(lines: Sequence[Line], name: str) -> Panel:
    """Best learning rates against batch size, with a line proportional to the batch size that ends inside the picture."""
    limits = around(np.concatenate([line.y for line in lines]), 0.6, 10.0)
    guide = linear_in_batch(lines[0].x, lines[0].y, 0.6 * limits[1] if limits else math.inf)
    guide = replace(guide, tag=guide.label, tag_at=(-84.0, 0.0))
    return Panel([guide, *lines], "batch size", name, "log2", "log2", legend="none", y_limits=limits)


def curve_at(batch_size: float, batch_sizes: ArrayLike, steps: ArrayLike) -> float:
    """The steps at a batch size, interpolated linearly in logarithms."""
    x, y = finite(batch_sizes, steps)
    return float(np.exp2(np.interp(np.log2(batch_size), np.log2(x), np.log2(y))))


def _listed(sweeps: Sequence[Sweep] | Sweep) -> list[Sweep]:
    found = list(sweeps) if isinstance(sweeps, (list, tuple)) else [sweeps]
    if not found:
        raise Wrong("there is no sweep to plot; give at least one")
    return found  # type: ignore[return-value]


def _named(sweeps: Sequence[Sweep]) -> list[tuple[Sweep, str, str]]:
    """Each sweep with its label and its colour. Labels lack empty brackets, and have the target if the targets differ."""
    one = len({s.target for s in sweeps}) == 1
    names = [s.label.replace("()", "") + ("" if one else f" to {s.target:g}") for s in sweeps]
    colors = PALETTE[: len(sweeps)] if len(sweeps) <= len(PALETTE) else ramp(len(sweeps))
    return list(zip(sweeps, names, colors, strict=True))
