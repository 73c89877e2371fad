"""What a forecast can be asked: a schedule, rates, a log or a number, as the rate and the batch size of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..engine.schedule import Schedule, as_schedule
from ..optimizers import SGD, Optimizer
from ..problems.base import Steps, check_batch_size, is_number, report_steps
from ..types import Array, Wrong
from .course import Course
from .fitting import sizes_of
from .log import Log

if TYPE_CHECKING:
    from .forecasting import Forecast

POINTS = 200  # steps that are reported of a run if none are named


@dataclass(frozen=True, eq=False)
class AskedRun:
    """A run that a forecast is asked about: its rates, the steps to report, its batch sizes, and its course."""

    rates: Array
    times: Array
    size: float | None  # the batch size at the first step
    sizes: Array | float | None  # the batch size, or that of each step
    course: Course


def asked(
    forecast: Forecast, lr: object, steps: Steps | None, peak: float | None, batch_size: float | None
) -> AskedRun:
    """The run that a caller describes, as in `Forecast.predict`."""
    if isinstance(lr, str):
        lr = as_schedule(lr, 0, "lr")
    if isinstance(lr, Optimizer):
        lr = _rate_of(lr)
    size: Array | float | None = None if batch_size is None else check_batch_size(batch_size)
    if isinstance(lr, Log):
        rates, times = lr.rates, _times(lr.step, steps)
        # Without batch sizes in the logs of the forecast, that of this log cannot be compared with theirs.
        if size is None and lr.batch_size is not None and forecast.batch_size is not None:
            size = sizes_of(lr, 1.0)
    elif isinstance(lr, Schedule):
        rates, times, size = _scheduled(forecast, lr, steps, peak, size)
    elif is_number(lr):
        rates, times = _constant(forecast, float(lr), steps)
    else:
        rates = row_of(lr)
        times = _times(len(rates), steps)
    if len(rates) < times[-1]:
        raise Wrong(f"lr has {len(rates):,} rates, the last step asked for is {times[-1]:,}", argument="lr")
    rates = rates[: max(int(times[-1]), 1)]
    if not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
        raise Wrong("lr must be finite, not negative, and positive somewhere", argument="lr")
    course = Course.of(rates, times, forecast.metric.weight_decay, ratio_of(forecast, size, len(rates)))
    return AskedRun(rates, times, None if size is None else float(np.ravel(size)[0]), size, course)


def _times(default: Steps, steps: Steps | None) -> Array:
    """The steps to report, in rising order."""
    if steps is None and np.ndim(default):
        return np.asarray(default)
    return np.asarray(report_steps(default if steps is None else steps, "linear", POINTS))


def _scheduled(
    forecast: Forecast, schedule: Schedule, steps: Steps | None, peak: float | None, size: float | None
) -> tuple[Array, Array, Array | float | None]:
    """Rates, reported steps and batch sizes of a schedule, whose multipliers are on the peak and on the batch size."""
    top = forecast.peaks[1] if peak is None else peak
    if not is_number(top) or not 0 < top < math.inf:
        raise Wrong(f"peak must be a positive learning rate, got {peak!r}", argument="peak")
    times = _times(schedule.steps, steps)
    last = max(int(times[-1]), 1)
    rates = top * schedule.multipliers("lr", last)
    if not np.any(schedule.batch_size != 1):
        return rates, times, size
    base = size or forecast.batch_size
    if base is None:
        raise Wrong("these logs have no batch size: give batch_size= to schedule it", argument="batch_size")
    return rates, times, base * schedule.multipliers("batch_size", last)


def _constant(forecast: Forecast, rate: float, steps: Steps | None) -> tuple[Array, Array]:
    """Rates and reported steps of a constant rate after the warm-up of the logs."""
    if steps is None:
        raise Wrong("a constant rate needs steps=", argument="steps")
    times = _times(0, steps)
    n = max(int(times[-1]), 1)
    return rate * np.minimum(1.0, np.arange(1, n + 1) / max(min(forecast.warmup, n // 2), 1)), times


def row_of(lr: object) -> Array:
    """One learning rate for each step."""
    try:
        rates = np.array(lr, dtype=float)
    except (TypeError, ValueError):
        rates = np.zeros(0)
    if rates.ndim != 1 or not rates.size:
        form = "a Schedule with its peak, one learning rate for each step, a Log, or a number"
        raise Wrong(f"lr must be {form}, got {lr!r:.60}", argument="lr")
    return rates


def _rate_of(optimizer: Optimizer) -> float:
    if not isinstance(optimizer, SGD) or not is_number(optimizer.lr):
        raise Wrong(
            f"a forecast answers for the optimizer of its logs, and SGD(lr) stands for its learning rate; got {optimizer}",
            argument="optimizer",
        )
    return float(optimizer.lr)


def ratio_of(forecast: Forecast, size: Array | float | None, steps: int) -> Array | float:
    """Batch sizes relative to the reference of a forecast."""
    if size is None:
        return 1.0
    if forecast.batch_size is None:
        raise Wrong("these logs have no batch size, so a forecast for another is not possible", argument="batch_size")
    ratio = np.asarray(size, dtype=float) / forecast.batch_size
    return ratio[:steps] if ratio.ndim else float(ratio)
