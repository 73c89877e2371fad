"""`forecast`: from logged runs to the loss of runs that were not made, with what the logs can decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..engine.schedule import Schedule
from ..problems.base import Steps
from ..types import Array, Wrong
from .allowance import Gaps
from .asking import asked
from .assuming import metric_of, mixed_losses, reference_of, rising, without_copies
from .course import Course
from .fitting import DECIDING_POINTS, INTERVAL_90, Fitted, after_warmup, fit_law, reading, sizes_of, warmup_of
from .law import NAMES, LossLaw, RateMetric
from .log import Log
from .noise import misfit, noise_of
from .outlook import Outlook
from .reach import distance_sentence, distances
from .saving import as_dict, parts_of, read_json
from .sheets import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes
    from .batches import BatchRamp
    from .best import BestSchedule
    from .checking import LeftOut
    from .deciding import NextRun
    from .lengths import LossesByLength
    from .planning import Rates
    from .problem import LoggedProblem

WIDEST = 50.0  # An interval is never wider than a factor exp(50) on either side, so that its ends are numbers.
USUAL_ERROR = 0.005  # Published runs are fitted to 0.0005 to 0.002; a law that misses by more than this does not fit.


@dataclass(frozen=True, eq=False, repr=False)
class Forecast(Tabular):
    """The law that explains some logs, and what follows from it for other schedules, lengths and batch sizes.

    A forecast answers for the optimizer of its logs: a learning rate means that optimizer's.
    """

    logs: tuple[Log, ...]
    fitted: Fitted
    batch_size: float | None  # the reference: the noise of the law is that of this batch size
    remarks: tuple[str, ...] = field(default=())

    def _brief(self) -> str:
        law = self.law
        floor = f"floor {law['floor']:.4g}, signal exponent {law['alpha']:.3g}"
        beside = f" beside noise of {100 * self.noise:.2g}%" if self.noisy else ""
        fitted = f"fitted to {100 * self.misfit:.2g}%{beside}"
        return f"{counted(len(self.logs), 'log')}, {self.optimizer}: {floor}, {fitted}"

    def _notes(self) -> tuple[str, ...]:
        return (*self.remarks, *self.undecided)

    @property
    def law(self) -> LossLaw:
        return self.fitted.law

    @property
    def metric(self) -> RateMetric:
        return self.fitted.law.metric

    @property
    def optimizer(self) -> str:
        """The optimizer of the logs, in words."""
        known = {str(log.optimizer) for log in self.logs if log.optimizer is not None}
        name = " or ".join(sorted(known)) or ("an adaptive optimizer" if self.metric.adaptive else "SGD")
        return name + (f" with weight decay {self.metric.weight_decay:g}" if self.metric.kind == "norm" else "")

    @cached_property
    def error(self) -> float:
        """Root mean square of the relative residuals of the fit, after the beginning and without spikes."""
        return self.fitted.scatter

    @cached_property
    def noise(self) -> float:
        """The noise of a single logged loss as a share of the loss, by its differences from its neighbours."""
        losses = [log.loss[after_warmup(log)] for log in self.logs]
        return math.sqrt(float(np.mean([noise_of(np.log(each)) ** 2 for each in losses])))

    @property
    def noisy(self) -> bool:
        """Whether the logged losses scatter by more than laws miss published runs, as those of single batches do."""
        return self.noise > USUAL_ERROR

    @cached_property
    def misfit(self) -> float:
        """How far the law misses the logs, beside the noise of single points where that is large; 0 if it may be noise alone."""
        return misfit(self.fitted.residuals, self.error) if self.noisy else self.error

    @cached_property
    def peaks(self) -> tuple[float, float]:
        """The smallest and the largest peak learning rate of the logs."""
        found = [float(log.rates.max()) for log in self.logs]
        return min(found), max(found)

    @property
    def most_points(self) -> int:
        """The number of fitted points of the log that has the most."""
        return max(len(e) for e in self.fitted.residuals)

    @cached_property
    def batch_sizes(self) -> tuple[float, float] | None:
        """The smallest and the largest batch size of the logs; None if it is not known."""
        if self.batch_size is None:
            return None
        sizes = np.concatenate([np.ravel(log.batch_size) for log in self.logs])
        return float(sizes.min()), float(sizes.max())

    @cached_property
    def longest(self) -> int:
        """The last step of the longest log."""
        return max(int(log.step[-1]) for log in self.logs)

    @cached_property
    def courses(self) -> tuple[Course, ...]:
        """The courses of the logs, read at their points after the warm-up."""
        decay, size = self.metric.weight_decay, self.batch_size
        return tuple(Course.of(log.rates, log.step[after_warmup(log)], decay, sizes_of(log, size)) for log in self.logs)

    @cached_property
    def warmup(self) -> int:
        """Steps of warm-up of the logs: the median over them."""
        return int(np.median([warmup_of(log.rates) for log in self.logs]))

    def table(self) -> list[dict[str, Any]]:
        """One row for each parameter: its value, its 90% interval, and whether the logs decide it."""
        deviation, enough = np.sqrt(np.diag(self.fitted.covariance)), self.most_points >= DECIDING_POINTS
        rows = []
        for name in self.metric.names:
            i = NAMES.index(name)
            spread = math.exp(min(INTERVAL_90 * deviation[i], 700))
            value = self.law[name]
            decided = bool(enough and deviation[i] < 0.5 * self.fitted.prior[i] and deviation[i] < 1)
            interval = {"low": value / spread, "high": value * spread}
            rows.append({"parameter": name, "value": value, **interval, "decided": decided})
        return rows

    def predict(
        self,
        lr: Schedule | str | Log | Sequence[float] | Array | float,
        steps: Steps | None = None,
        *,
        peak: float | None = None,
        batch_size: float | None = None,
        extrapolate: bool = False,
    ) -> Outlook:
        """Expected loss of a run that was not made, with its 90% interval.

        Beyond the reach of the logs (`nqm.logs.reach`: 3 times their largest peak rate, 6 times their length, a factor of 4 in the
        batch size) there is no interval: ``low`` and ``high`` are NaN.

        Parameters
        ----------
        lr : a `Schedule` of multipliers on ``peak``, or its text; one learning rate for each step; a `Log`, whose rates and steps are
            taken; or one number, a constant rate after the warm-up of the logs.
        steps : the last step, or the steps to report; by default those of the schedule, the rates or the log.
        peak : the rate that a schedule multiplies; by default the largest peak of the logs.
        batch_size : that of the run, or of a schedule's multiplier 1; by default that of the logs.
        extrapolate : give an interval beyond the reach of the logs, too, where nothing has checked it.

        >>> from nqm.logs import Log, forecast
        >>> t = np.arange(100, 4001, 100)
        >>> fast, slow = (Log(t, 2 + 6 / np.sqrt(1 + lr * t) + 0.1 * lr, lr, optimizer="SGD") for lr in (0.1, 0.05))
        >>> outlook = forecast([fast, slow]).predict(0.05, steps=[4000])
        >>> bool(abs(outlook.loss[0] - slow.loss[-1]) < 0.02)
        True
        """
        run = asked(self, lr, steps, peak, batch_size)
        loss, J = self.law.jacobian(run.course)
        signal, noise = self.law.parts(run.course)
        gaps = Gaps.of(self, run.course)
        share = J / loss[:, None]
        variance = np.einsum("ij,jk,ik->i", share, self.fitted.covariance, share) + gaps.allowance() ** 2
        spread = np.minimum(INTERVAL_90 * np.sqrt(np.maximum(variance, 0)), WIDEST)
        low, high = loss * np.exp(-spread), loss * np.exp(spread)
        top = float(run.rates.max())
        found = distances(self, top, int(run.times[-1]), run.sizes)
        beyond = [each for each in found if each.beyond and not extrapolate]
        for each in beyond:
            unknown = run.times > each.bound if each.what == "length" else slice(None)
            low[unknown] = high[unknown] = math.nan
        sentence = distance_sentence(found, self.peaks, top, float(gaps.form()[-1]), extrapolate)
        said = tuple(each.phrase("it" if each.what == "length" else f"its {each.what}") for each in beyond)
        return Outlook(run.times, loss, low, high, signal, noise, run.rates, run.size, sentence, said)

    @cached_property
    def problem(self) -> LoggedProblem:
        """The forecast as a problem, for `tune`, `sweep`, `steps_to_target` and everything else that takes one.

        It refuses questions beyond the reach of the logs; ``replace(found.problem, extrapolate=True)`` answers them.

        >>> from nqm import SGD, steps_to_target
        >>> from nqm.logs import Log, forecast
        >>> t = np.arange(100, 4001, 100)
        >>> runs = [Log(t, 2 + 6 / np.sqrt(1 + lr * t) + 0.1 * lr, lr, optimizer="SGD") for lr in (0.1, 0.05)]
        >>> problem = forecast(runs).problem
        >>> 1800 < steps_to_target(problem, SGD(0.1), batch_size=1, target=2.45).steps < 1900  # 2.45 is reached at 1,850
        True
        """
        from .problem import LoggedProblem

        return LoggedProblem(self)

    def check(self) -> LeftOut:
        """Leave each log out in turn, and forecast it from the others."""
        from .checking import leave_out

        return leave_out(self)

    def optimal_schedule(
        self, steps: int, max_lr: float | None = None, min_lr: float = 0.0, *, pieces: int = 50, monotone: bool = True,
        warmup: int | None = None, trunk: Rates | None = None, batch_size: float | None = None, extrapolate: bool = False,
    ) -> BestSchedule:  # fmt: skip
        """The learning rates that end with the least expected loss after so many steps; see `planning.best_schedule`."""
        from .planning import best_schedule

        return best_schedule(
            self, steps, max_lr, min_lr, pieces=pieces, monotone=monotone, warmup=warmup, trunk=trunk, batch_size=batch_size,
            extrapolate=extrapolate,
        )  # fmt: skip

    def critical_batch_size(
        self, lr: Schedule | str | Log | Sequence[float] | Array | float | None = None, steps: Steps | None = None, *,
        peak: float | None = None, extrapolate: bool = False,
    ) -> BatchRamp:  # fmt: skip
        """The critical batch size along a run, by default the longest log; it needs logs at two or more batch sizes."""
        from .batches import critical_batch_size

        return critical_batch_size(self, lr, steps, peak=peak, extrapolate=extrapolate)

    def losses_by_length(
        self, lengths: Sequence[int] | None = None, max_lr: float | None = None, min_lr: float = 0.0, *,
        extrapolate: bool = False,
    ) -> LossesByLength:  # fmt: skip
        """The least expected loss for each length of training, and what another 10% of it would buy; see `lengths`."""
        from .lengths import losses_by_length

        return losses_by_length(self, lengths, max_lr, min_lr, extrapolate=extrapolate)

    @cached_property
    def undecided(self) -> tuple[str, ...]:
        """Sentences on what these logs cannot decide."""
        from .deciding import undecided

        return undecided(self)

    def next_run(self, steps: int | None = None, max_lr: float | None = None, *, extrapolate: bool = False) -> NextRun:
        """The run to make next: the one that narrows the interval of the best schedule's final loss most."""
        from .deciding import next_run

        return next_run(self, steps, max_lr, extrapolate=extrapolate)

    def plot(self, path: str | None = None, outlooks: Sequence[Outlook] = (), *, ax: OnAxes | None = None) -> Figure:
        """Logged and fitted losses, and outlooks, over steps, the learning rates below; written to ``path`` if given."""
        from .plots import plot_forecast

        return plot_forecast(self, path, outlooks, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, from which `Forecast.load` makes the same forecast."""
        return as_dict(self)

    def save(self, path: str | Path) -> None:
        """Write the forecast with its logs as JSON."""
        from ..show.tables import to_json

        Path(path).write_text(to_json(self.to_dict()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Forecast:
        """Read what `save` wrote."""
        return cls.from_dict(read_json(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Forecast:
        """From what `to_dict` gave."""
        return cls(*parts_of(data))


def forecast(logs: Sequence[Log] | Log) -> Forecast:
    """Fit the law to logs of one model and optimizer: the forecast of runs that were not made.

    >>> from nqm.logs import Log
    >>> t = np.arange(100, 4001, 100)
    >>> runs = [Log(t, 2 + 6 / np.sqrt(1 + lr * t) + 0.1 * lr, lr, optimizer="SGD") for lr in (0.1, 0.05)]
    >>> forecast(runs).error < 0.005
    True
    """
    logs = (logs,) if isinstance(logs, Log) else tuple(logs)
    if not logs or not all(isinstance(log, Log) for log in logs):
        raise Wrong(f"forecast needs logs, as read_logs gives them, got {logs!r:.60}", argument="logs")
    metric, said = metric_of(logs)
    logs, copies = without_copies(logs)
    batch_size, more = reference_of(logs)
    readings = [reading(log, metric, batch_size) for log in logs]
    omitted = sum(each.omitted for each in readings)
    if omitted:
        more = (*more, f"{omitted:,} points before the first step or within a warm-up are not fitted.")
    more = (*more, *(sentence for log in logs if (sentence := rising(log)) is not None))
    fitted = fit_law(readings, metric)
    found = Forecast(logs, fitted, batch_size)
    if found.noisy:
        single = f"The losses scatter by {100 * found.noise:.2g}% from one logged point to the next, as those of single batches do"
        group = round(max(int(after_warmup(log).sum()) / len(r.y) for log, r in zip(logs, readings, strict=True)))
        holds = f"medians of {group} neighbouring points" if group > 1 else "single losses"
        more = (
            *more,
            f"{single}: the law is judged beside this scatter. A forecast is the loss without it, and intervals are for {holds}.",
        )
    if found.misfit > USUAL_ERROR:
        beside = ", beside their scatter," if found.noisy else ""
        missed = f"The law misses these logs by {100 * found.misfit:.2g}%{beside} where published runs are fitted to 0.05 to 0.2%"
        more = (*more, f"{missed}: take its forecasts as a direction, and look for what differs between the logs.")
    return Forecast(logs, fitted, batch_size, (*copies, *mixed_losses(logs), *said, *more))
