"""The critical batch size along a run, from logs at several batch sizes, and the ramp of batch sizes it suggests.

At step t of a run the loss above its floor is signal(t) + noise(t) B_0 / B, B_0 the batch size of the law. The critical batch
size is the one at which the two are alike, ``B_0 noise(t) / signal(t)``: below it most of what is left is noise, which a
larger batch removes; above it most is signal, which only more steps remove. It grows as the signal falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import numbers
from ..engine.schedule import Schedule
from ..problems.base import Steps
from ..types import Array, Wrong
from .asking import asked
from .best import step_batch_sizes
from .course import Course
from .fitting import INTERVAL_90
from .law import NAMES, LossLaw
from .log import Log
from .reach import SIZE_REACH, distances, require_reach

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes
    from .forecasting import Forecast

LEAST_RATIO = 1.5  # Logs whose batch sizes differ by less than this factor do not tell of other batch sizes.


@dataclass(frozen=True, eq=False, repr=False)
class BatchRamp(Tabular):
    """The critical batch size at steps of a run, with its 90% interval, and a schedule of batch sizes that follows it.

    Where it is beyond the reach of the logs, ``low`` and ``high`` are NaN, and the schedule stays within.
    """

    steps: Array
    batch_size: Array
    low: Array
    high: Array
    within: tuple[float, float] = (0.0, math.inf)  # the smallest and the largest batch size that the ramp recommends

    def _brief(self) -> str:
        first, last = self.batch_size[0], self.batch_size[-1]
        return f"critical batch size {first:,.0f} at step {self.steps[0]:,} to {last:,.0f} at step {self.steps[-1]:,}"

    def table(self) -> list[dict[str, Any]]:
        """One row for each step."""
        from ..show.tables import rows_of

        return rows_of({"step": self.steps, "batch_size": self.batch_size, "low": self.low, "high": self.high})

    @property
    def ramp(self) -> Schedule:
        """Batch sizes that are powers of two, double when the critical batch size has doubled, and never fall."""
        sizes = 2.0 ** np.floor(np.log2(np.maximum(np.maximum.accumulate(self.batch_size), 1.0)))
        least, most = (max(limit, 1.0) for limit in self.within)
        sizes = np.clip(
            sizes, 2.0 ** math.ceil(math.log2(least)), most if math.isinf(most) else 2.0 ** math.floor(math.log2(most))
        )
        starts = np.append(0, self.steps[:-1])
        return Schedule(np.maximum(self.steps - starts, 1), batch_size=sizes)

    @property
    def sentence(self) -> str:
        """What lies beyond the reach of the logs; empty if nothing does."""
        unknown = ~np.isfinite(self.low)
        if not unknown.any():
            return ""
        where = f"{unknown.sum():,} of {len(unknown):,} steps"
        sides = f"{self.within[0]:,.6g} to {self.within[1]:,.6g}"
        checked = f"forecasts were checked to factors of {SIZE_REACH:g} from the batch sizes of the logs, {sides}"
        return f"At {where} the critical batch size has no interval, and the ramp stays within: {checked}. Extrapolate to have them."

    def _notes(self) -> tuple[str, ...]:
        return (self.sentence,) if self.sentence else ()

    def megatron(self, tokens_per_example: float = 1.0) -> str:
        """The ramp as Megatron's ``--step-batch-size-schedule`` takes it."""
        return step_batch_sizes(self.ramp, 1.0, tokens_per_example)

    def to_dict(self) -> dict[str, Any]:
        names = ("steps", "batch_size", "low", "high")
        return {name: numbers(getattr(self, name)) for name in names} | {
            "megatron": self.megatron(), "sentence": self.sentence
        }  # fmt: skip

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
        """The critical batch size over steps with its interval; written to ``path`` if given."""
        from .plots import plot_ramp

        return plot_ramp(self, path, ax=ax)


def critical_batch_size(
    forecast: Forecast, lr: object = None, steps: Steps | None = None, *, peak: float | None = None,
    extrapolate: bool = False,
) -> BatchRamp:  # fmt: skip
    """The critical batch size along a run, by default that of the longest log; ``lr`` is as in `Forecast.predict`.

    With ``extrapolate`` there are intervals and recommendations beyond the reach of the logs, too.
    """
    sizes = [float(np.exp(np.mean(np.log(log.batch_size)))) for log in forecast.logs if log.batch_size is not None]
    if forecast.batch_size is None or max(sizes) < LEAST_RATIO * min(sizes):
        have = "no batch size" if not sizes else f"batch sizes from {min(sizes):,.6g} to {max(sizes):,.6g}"
        raise Wrong(
            f"the critical batch size needs logs at two or more batch sizes, a factor of {LEAST_RATIO:g} apart; "
            f"these logs have {have}",
            argument="logs",
        )
    run = max(forecast.logs, key=lambda log: log.step[-1]) if lr is None else lr
    if isinstance(run, Log):
        run = Log(
            run.step, run.loss, run.rates if run.every_step else run.lr, name=run.name
        )  # at the reference batch size
    whole = asked(forecast, run, steps, peak, None)
    named = {"peak rate": "peak", "length": "steps"}
    require_reach(distances(forecast, float(whole.rates.max()), int(whole.times[-1])), named, extrapolate)
    times = whole.times[whole.times > 0]
    course = Course.of(whole.rates, times, forecast.metric.weight_decay)
    law = forecast.law
    signal, noise = law.parts(course)
    ratio = noise / signal
    slopes = _log_ratio_slopes(law, course)
    variance = np.einsum("ij,jk,ik->i", slopes, forecast.fitted.covariance, slopes)
    spread = np.exp(np.minimum(INTERVAL_90 * np.sqrt(np.maximum(variance, 0)), 700))
    value = forecast.batch_size * ratio
    if extrapolate:
        return BatchRamp(times, value, value / spread, value * spread)
    least, most = forecast.batch_sizes or (0.0, math.inf)
    least, most = least / SIZE_REACH, most * SIZE_REACH
    known = np.where((value >= least) & (value <= most), 1.0, math.nan)
    return BatchRamp(times, value, known * value / spread, known * value * spread, (least, most))


def _log_ratio_slopes(law: LossLaw, course: Course, step: float = 1e-5) -> Array:
    """Derivatives of log(noise / signal) by the log parameters, by central differences of two closed forms."""
    columns = []
    for i in range(len(NAMES)):
        ends = []
        for sign in (1, -1):
            theta = law.theta.copy()
            theta[i] += sign * step
            signal, noise = replace(law, theta=theta).parts(course)
            ends.append(np.log(np.maximum(noise, math.ulp(0.0))) - np.log(signal))
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.nan_to_num(np.stack(columns, axis=1))
