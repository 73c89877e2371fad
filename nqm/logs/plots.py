"""Charts of forecasts: logged, fitted and predicted losses over steps, with the learning rates below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..show.chart import BLACK, PALETTE, Figure, Line, OnAxes, Panel, chart
from ..types import Array

if TYPE_CHECKING:
    from .batches import BatchRamp
    from .best import BestSchedule
    from .checking import LeftOut
    from .forecasting import Forecast
    from .lengths import LossesByLength
    from .log import Log
    from .outlook import Outlook

PANEL_HEIGHTS = (3.0, 1.0)  # relative heights of losses and learning rates
PICTURE_SIZE = (6.4, 4.8)  # inches
MOST_DRAWN = 400  # points of a line of learning rates


def plot_forecast(
    forecast: Forecast, path: str | None = None, outlooks: Sequence[Outlook] = (), *, ax: OnAxes | None = None
) -> Figure:
    """Plot the logged losses (points), the fitted law (lines) and outlooks (bands), with the learning rates below."""
    losses, rates = [], []
    for i, log in enumerate(forecast.logs):
        color, name = PALETTE[i % len(PALETTE)], log.name or f"log {i + 1}"
        fitted = forecast.predict(log)
        losses.append(_points(log, name, color))
        losses.append(Line(log.step, fitted.loss, "", color, width=1.1))
        rates.append(_rates(log.rates, color))
    for i, outlook in enumerate(outlooks):
        color = BLACK if len(outlooks) == 1 else PALETTE[-1 - i % len(PALETTE)]
        losses.append(_band(outlook, color, "forecast"))
        rates.append(_rates(outlook.rates, color))
    return _stacked(losses, rates, "points: logged; lines: the fitted law", path, ax)


def plot_outlook(
    outlook: Outlook, path: str | None = None, log: Log | None = None, *, ax: OnAxes | None = None
) -> Figure:
    """Plot the expected loss with its 90% interval, the losses of a log (points), and the learning rates below."""
    losses = [_band(outlook, BLACK, "forecast")]
    if log is not None:
        losses.append(_points(log, log.name or "logged", PALETTE[0]))
    title = "90% interval of one run" if np.isfinite(outlook.low[-1]) else "no interval: beyond the reach of the logs"
    title = title if log is None else f"points: logged; {title}"
    return _stacked(losses, [_rates(outlook.rates, BLACK)], title, path, ax)


def plot_best(found: BestSchedule, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Plot the losses of the best schedule, with its 90% interval, and of the usual ones, with the learning rates below.

    The axis of losses shows the second half of the run, because schedules differ there.
    """
    losses, rates = [], []
    for (name, outlook), color in zip(found.compared.items(), PALETTE, strict=False):
        label = f"{name}, {outlook.loss[-1]:.4f}"
        losses.append(Line(outlook.steps, outlook.loss, label, color, width=1.1))
        rates.append(_rates(outlook.rates, color))
    losses.append(_band(found.outlook, BLACK, f"best, {found.loss:.4f}"))
    rates.append(_rates(found.outlook.rates, BLACK))
    late = [v for line in losses for v in _ends(line) if np.isfinite(v)]
    return _stacked(losses, rates, "loss at the end of each schedule; 90% interval of the best", path, ax, late)


def _ends(line: Line) -> Array:
    """The values of a line, and the ends of its interval, in the second half of the run."""
    half = np.asarray(line.x) >= np.max(line.x) / 2
    values = np.atleast_2d(np.asarray(line.y, dtype=float))
    if line.spread is not None:
        values = np.concatenate([values, np.asarray(line.spread, dtype=float)])
    return values[:, half].ravel()


def plot_left_out(check: LeftOut, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Plot each log (points) with its forecast from the other logs (lines with bands), and the relative errors below."""
    losses, errors = [], []
    for i, (log, outlook) in enumerate(zip(check.logs, check.outlooks, strict=True)):
        color = PALETTE[i % len(PALETTE)]
        losses.append(_points(log, log.name or f"log {i + 1}", color))
        losses.append(_band(outlook, color, ""))
        errors.append(Line(log.step, 100 * (outlook.loss / log.loss - 1), "", color, width=0.9))
    shown = np.concatenate([np.asarray(line.y) for line in losses if line.marker])
    along = _along(losses)
    title = "points: logged; lines: forecast from the other logs"
    upper = Panel(losses, "", "loss", title=title, x_limits=along, y_limits=_limits(shown))
    lower = Panel(errors, "step", "error, %", legend="none", x_limits=along)
    return chart([upper, lower], path, PICTURE_SIZE, heights=PANEL_HEIGHTS, ax=ax)


def plot_lengths(found: LossesByLength, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Plot the least loss with its interval over the length of training, and what 10% more steps buy below."""
    loss = Line(found.steps, found.loss, "", BLACK, marker="o", spread=(found.low, found.high))
    gain = Line(found.steps, found.gain, "", BLACK, marker="o")
    upper = Panel(
        [loss], "", "least loss", "log", "linear", "best schedule of each length, 90% interval", legend="none"
    )
    lower = Panel(
        [gain], "steps", "gain of 10%", "log", "linear", legend="none", y_limits=(0.0, 1.1 * float(found.gain.max()))
    )
    return chart([upper, lower], path, PICTURE_SIZE, heights=PANEL_HEIGHTS, ax=ax)


def plot_ramp(ramp: BatchRamp, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
    """Plot the critical batch size along the run with its interval, and the ramp that it suggests."""
    line = Line(ramp.steps, ramp.batch_size, "critical batch size", BLACK, spread=(ramp.low, ramp.high))
    return chart([Panel([line], "step", "batch size", "linear", "log", "90% interval")], path, ax=ax)


def _stacked(
    losses: list[Line], rates: list[Line], title: str, path: str | None, ax: OnAxes | None,
    shown: Sequence[float] | None = None,
) -> Figure:  # fmt: skip
    """Losses above learning rates; the axis of losses shows the values ``shown``, by default all but the first transient."""
    along = _along(losses)
    values = np.concatenate([np.asarray(line.y, dtype=float) for line in losses])
    limits = _limits(values) if shown is None else (min(shown), max(shown))
    upper = Panel(losses, "", "loss", title=title, x_limits=along, y_limits=limits)
    lower = Panel(rates, "step", "learning rate", legend="none", x_limits=along)
    return chart([upper, lower], path, PICTURE_SIZE, heights=PANEL_HEIGHTS, ax=ax)


def _along(lines: Sequence[Line]) -> tuple[float, float]:
    """The steps that both panels show."""
    return 0.0, 1.03 * max(float(np.max(line.x)) for line in lines)


def _limits(values: Array) -> tuple[float, float] | None:
    """Limits that show the run after its first transient: up to the lowest value plus what 95% of the values are above it."""
    fine = values[np.isfinite(values)]
    if not fine.size:
        return None
    low, high = float(fine.min()), float(np.quantile(fine, 0.95))
    room = 0.05 * max(high - low, 1e-6 * abs(low), 1e-12)
    return low - room, high + room


def _points(log: Log, label: str, color: str) -> Line:
    few = _few(len(log.step), 60)
    return Line(log.step[few], log.loss[few], label, color, "", marker=".", width=0.8)


def _band(outlook: Outlook, color: str, label: str) -> Line:
    return Line(outlook.steps, outlook.loss, label, color, spread=(outlook.low, outlook.high))


def _rates(rates: Array, color: str) -> Line:
    few = _few(len(rates), MOST_DRAWN)
    return Line(few + 1, rates[few], "", color, width=1.1)


def _few(count: int, most: int) -> Array:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))
