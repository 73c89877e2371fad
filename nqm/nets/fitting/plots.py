"""Charts of fits, predictions and checks: the lines and panels that `show.chart` draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...show.chart import BLACK, GREY, PALETTE, Figure, Line, OnAxes, Panel, chart, wrap

if TYPE_CHECKING:
    from .model import Fit
    from .prediction import Prediction
    from .validation import Check


def plot_fit(fit: Fit, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Plot the cumulative shares of signal and noise over curvature, and the noise along the largest curvatures."""
    lines = []
    for name, measure, color in (("signal", fit.signal, PALETTE[0]), ("noise", fit.noise, PALETTE[1])):
        if not measure.weight.any():  # no gradient noise
            continue
        order = np.argsort(measure.h)
        share = np.cumsum(measure.weight[order]) / measure.weight.sum()
        fine = measure.h[order] > 0
        lines.append(Line(measure.h[order][fine], share[fine], name, color, stairs=True))
    shares = Panel(lines, "curvature", "share below", "log", "linear", "signal and noise")
    h, c = fit.top["h"], fit.top["c"]
    slope, _ = fit.noise_exponent
    if not np.isfinite(slope):
        return chart([shares], path, ax=ax)
    level = float(np.exp(np.mean(np.log(c[c > 0]) - slope * np.log(h[c > 0]))))
    along = Line(h, c, "along the top curvatures", PALETTE[2], style="", marker="o")
    straight = Line(h, level * h**slope, f"slope {slope:.2f}", GREY, "--", 1.0)
    against = Panel([along, straight], "curvature h", "noise variance c", "log", "log", "C against H")
    return chart([shares, against], path, ax=ax)


def plot_prediction(prediction: Prediction, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Plot the predicted loss over steps, with its interval."""
    steps = np.maximum(prediction.steps, 0.5)  # step 0 on a log axis
    ends = (prediction.low, prediction.high) if np.isfinite(prediction.high).all() else None
    line = Line(steps, prediction.loss, "predicted", BLACK, spread=ends)
    title = wrap(f"{prediction.run.optimizer}, B = {prediction.run.batch_size:g}", 44)
    return chart([Panel([line], "step", "training loss", "log", "log", title)], path, ax=ax)


def plot_check(check: Check, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Plot predicted losses with their intervals and real ones with standard errors, and the errors over lr x steps x curvature."""
    over, errors = [], []
    for i, row in enumerate(check.rows):
        color, name = PALETTE[i % len(PALETTE)], f"{row.trained.optimizer}, B = {row.trained.batch_size:g}"
        if row.prediction.run.outcome.ok:
            ahead = row.prediction
            ends = (ahead.low, ahead.high) if np.isfinite(ahead.high).all() else None
            over.append(Line(ahead.steps, ahead.loss, "", color, spread=ends))
            errors.append(Line(row.prediction.reach, 100 * np.abs(row.error), "", color, marker=".", width=0.8))
        run = row.trained
        over.append(Line(run.steps, run.loss, name, color, style="", marker="o", error=run.stderr))
    title = "line and band: predicted, with its 90% interval\npoints and bars: trained, with the standard error"
    losses = Panel(over, "step", "training loss", "log", "log", title, "none")
    shares = Panel(errors, "lr x steps x curvature", "error, %", "log", "log", "", "none")
    return chart([losses, shares], path, key=[line for line in over if line.label], size=(7.2, 4.6), ax=ax)
