"""`forecast`: from logged runs to the loss of runs that were not made, with what the logs can decide."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import number, numbers
from ..engine.schedule import Schedule
from ..optimizers import Optimizer
from ..problems.base import Steps, check_batch_size, is_number, report_steps
from ..types import Array, Wrong
from .course import Course
from .fitting import NORMAL_90, SETTINGS_OF_FIT, Fitted, fit_law, reading, sizes_of, warmup_of
from .law import NAMES, LossLaw, RateMetric
from .log import Log
from .outlook import Outlook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .batches import BatchRamp
    from .checking import LeftOut
    from .deciding import NextRun
    from .planning import BestSchedule, Rates
    from .problem import LoggedProblem

FORECAST_FORMAT = "nqm forecast 1"
WIDEST = 50.0  # An interval is never wider than a factor exp(50) on either side, so that its ends are numbers.
USUAL_ERROR = 0.005  # Published runs are fitted to 0.0005 to 0.002; a law that misses by more than this does not fit.


@dataclass(frozen=True)
class ErrorSettings:
    """Relative standard deviations of a single run around its forecast, beside the uncertainty of the parameters.

    docs/forecast.md has the share of points that 90% intervals held, over twelve sets of three to ten logs of three models.
    """

    # The residuals of the fit, times this: what a run does beside the law is alike in logs and forecasts. The covariance of
    # the parameters has the offset of single runs, which is a part of it, so that this is below 1.
    residuals: float = 0.9
    # At least this with fewer than three logs, which leave too few residuals: from two, intervals held half of the points.
    few: float = 0.003
    # What the law gets wrong outside the peak rates of the logs, for each factor e beyond them: forecasts from rates of
    # 0.0005 and 0.002 were off by 0.013 at 0.0001 and by 0.003 at 0.003.
    peak: float = 0.008
    # The same for each factor e beyond the longest log: runs three times as long were off by 0.001 to 0.002.
    length: float = 0.0015


SETTINGS_OF_ERROR = ErrorSettings()

ADAPTIVE = ("adam", "lion", "adafactor", "lamb", "rmsprop", "adagrad", "shampoo", "soap", "muon")
"""Optimizers by name whose updates have a size of their own."""


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
        return f"{len(self.logs)} logs, {self.optimizer}: {floor}, fitted to {100 * self.error:.2g}%"

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
    def peaks(self) -> tuple[float, float]:
        """The smallest and the largest peak learning rate of the logs."""
        found = [float(log.rates.max()) for log in self.logs]
        return min(found), max(found)

    @cached_property
    def longest(self) -> int:
        """The last step of the longest log."""
        return max(int(log.step[-1]) for log in self.logs)

    @cached_property
    def warmup(self) -> int:
        """Steps of warm-up of the logs: the median over them."""
        return int(np.median([warmup_of(log.rates) for log in self.logs]))

    def table(self) -> list[dict[str, Any]]:
        """One row for each parameter: its value, its 90% interval, and whether the logs decide it."""
        deviation = np.sqrt(np.diag(self.fitted.covariance))
        rows = []
        for name in self.metric.names:
            i = NAMES.index(name)
            spread = math.exp(min(NORMAL_90 * deviation[i], 700))
            value = self.law[name]
            decided = bool(deviation[i] < 0.5 * self.fitted.prior[i] and deviation[i] < 1)
            interval = {"low": value / spread, "high": value * spread}
            rows.append({"parameter": name, "value": value, **interval, "decided": decided})
        return rows

    def predict(
        self,
        lr: Schedule | Log | Sequence[float] | Array | float,
        steps: Steps | None = None,
        *,
        peak: float | None = None,
        batch_size: float | None = None,
    ) -> Outlook:
        """Expected loss of a run that was not made, with its 90% interval.

        Parameters
        ----------
        lr : a `Schedule` of multipliers on ``peak``; one learning rate for each step; a `Log`, whose rates and steps are
            taken; or one number, a constant rate after the warm-up of the logs.
        steps : the last step, or the steps to report; by default those of the schedule, the rates or the log.
        peak : the rate that a schedule multiplies; by default the largest peak of the logs.
        batch_size : that of the run, or of a schedule's multiplier 1; by default that of the logs.

        >>> from nqm.logs import Log, forecast
        >>> t = np.arange(100, 4001, 100)
        >>> fast, slow = (Log(t, 2 + 6 / np.sqrt(1 + lr * t) + 0.1 * lr, lr, optimizer="SGD") for lr in (0.1, 0.05))
        >>> outlook = forecast([fast, slow]).predict(0.05, steps=[4000])
        >>> bool(abs(outlook.loss[0] - slow.loss[-1]) < 0.02)
        True
        """
        rates, times, size = self._asked(lr, steps, peak, batch_size)
        course = Course.of(rates, times, self.metric.weight_decay, self._ratio(size, len(rates)))
        loss, J = self.law.jacobian(course)
        signal, noise = self.law.parts(course)
        form = self._form_error(float(rates.max()), times)
        share = J / loss[:, None]
        variance = np.einsum("ij,jk,ik->i", share, self.fitted.covariance, share) + form**2
        spread = np.minimum(NORMAL_90 * np.sqrt(np.maximum(variance, 0)), WIDEST)
        shown = None if size is None else float(np.ravel(size)[0])
        sentence = self._distance(float(rates.max()), int(times[-1]), shown)
        return Outlook(
            times, loss, loss * np.exp(-spread), loss * np.exp(spread), signal, noise, rates, shown, sentence
        )

    @cached_property
    def problem(self) -> LoggedProblem:
        """The forecast as a problem, for `tune`, `sweep`, `steps_to_target` and everything else that takes one.

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
        warmup: int | None = None, trunk: Rates | None = None, batch_size: float | None = None,
    ) -> BestSchedule:  # fmt: skip
        """The learning rates that end with the least expected loss after so many steps; see `planning.best_schedule`."""
        from .planning import best_schedule

        return best_schedule(
            self, steps, max_lr, min_lr, pieces=pieces, monotone=monotone, warmup=warmup, trunk=trunk, batch_size=batch_size
        )  # fmt: skip

    def critical_batch_size(
        self, lr: Schedule | Log | Sequence[float] | Array | float | None = None, steps: Steps | None = None, *,
        peak: float | None = None,
    ) -> BatchRamp:  # fmt: skip
        """The critical batch size along a run, by default the longest log; it needs logs at two or more batch sizes."""
        from .batches import critical_batch_size

        return critical_batch_size(self, lr, steps, peak=peak)

    def losses_by_length(self, lengths: Sequence[int], max_lr: float | None = None) -> list[dict[str, Any]]:
        """The least expected loss for each length of training, and what another 10% of it would buy."""
        from .planning import losses_by_length

        return losses_by_length(self, lengths, max_lr)

    @cached_property
    def undecided(self) -> tuple[str, ...]:
        """Sentences on what these logs cannot decide."""
        from .deciding import undecided

        return undecided(self)

    def next_run(self, steps: int | None = None, max_lr: float | None = None) -> NextRun:
        """The run to make next: the one that narrows the interval of the best schedule's final loss most."""
        from .deciding import next_run

        return next_run(self, steps, max_lr)

    def plot(self, path: str | None = None, outlooks: Sequence[Outlook] = ()) -> Figure:
        """Logged and fitted losses, and outlooks, over steps, the learning rates below; written to ``path`` if given."""
        from .plots import plot_forecast

        return plot_forecast(self, path, outlooks)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, from which `Forecast.load` makes the same forecast."""
        return {
            "format": FORECAST_FORMAT, "metric": {"kind": self.metric.kind, "weight_decay": self.metric.weight_decay},
            "theta": numbers(self.law.theta), "covariance": [numbers(row) for row in self.fitted.covariance],
            "prior": numbers(self.fitted.prior), "cost": number(self.fitted.cost), "scatter": number(self.fitted.scatter),
            "residuals": [numbers(e) for e in self.fitted.residuals], "batch_size": number(self.batch_size),
            "remarks": list(self.remarks), "logs": [log.to_dict() for log in self.logs],
            "undecided": list(self.undecided), "parameters": self.table(),
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the forecast with its logs as JSON."""
        from ..show.tables import to_json

        Path(path).write_text(to_json(self.to_dict()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Forecast:
        """Read what `save` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise Wrong(f"{path} is no forecast: {error}; write one with nqm forecast fit", argument="path") from None
        if not isinstance(data, dict) or data.get("format") != FORECAST_FORMAT:
            raise Wrong(f"{path} is no forecast; write one with nqm forecast fit LOGS --out {path}", argument="path")
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Forecast:
        """From what `to_dict` gave."""
        try:
            law = LossLaw(
                RateMetric(data["metric"]["kind"], float(data["metric"]["weight_decay"])),
                np.array(data["theta"], float),
            )
            residuals = tuple(np.array(e, float) for e in data["residuals"])
            covariance, prior = np.array(data["covariance"], float), np.array(data["prior"], float)
            fitted = Fitted(law, covariance, prior, float(data["cost"]), float(data["scatter"]), residuals)
            logs = tuple(Log(**log) for log in data["logs"])
            size = data["batch_size"]
            shapes = law.theta.shape == prior.shape == (len(NAMES),) and covariance.shape == (len(NAMES), len(NAMES))
            if (
                law.metric.kind not in ("norm", "half", "plain")
                or not logs
                or not shapes
                or not np.isfinite(law.theta).all()
            ):
                raise Wrong("its entries do not fit together", argument="path")
            return cls(logs, fitted, None if size is None else check_batch_size(size), tuple(map(str, data["remarks"])))
        except (KeyError, TypeError, ValueError) as error:
            raise Wrong(f"this forecast is damaged: {error}; write it again with nqm forecast fit", "path") from None

    def _asked(
        self, lr: object, steps: Steps | None, peak: float | None, batch_size: float | None
    ) -> tuple[Array, Array, Array | float | None]:
        """Rates of every step, the steps to report, and batch sizes, from what a caller gave."""
        if isinstance(lr, Optimizer):
            lr = self._rate_of(lr)
        size: Array | float | None = None if batch_size is None else check_batch_size(batch_size)
        if isinstance(lr, Log):
            rates, times = lr.rates, lr.step if steps is None else report_steps(steps, "linear", 200)
            if size is None and lr.batch_size is not None:
                size = sizes_of(lr, 1.0)
        elif isinstance(lr, Schedule):
            top = self.peaks[1] if peak is None else peak
            if not is_number(top) or not 0 < top < math.inf:
                raise Wrong(f"peak must be a positive learning rate, got {peak!r}", argument="peak")
            times = report_steps(lr.steps if steps is None else steps, "linear", 200)
            rates = top * lr.multipliers("lr", max(int(times[-1]), 1))
            if np.any(lr.batch_size != 1):
                base = size or self.batch_size
                if base is None:
                    raise Wrong("these logs have no batch size: give batch_size= to schedule it", argument="batch_size")
                size = base * lr.multipliers("batch_size", max(int(times[-1]), 1))
        elif is_number(lr):
            if steps is None:
                raise Wrong("a constant rate needs steps=", argument="steps")
            times = report_steps(steps, "linear", 200)
            n = max(int(times[-1]), 1)
            rates = float(lr) * np.minimum(1.0, np.arange(1, n + 1) / max(min(self.warmup, n // 2), 1))
        else:
            rates = self._row(lr)
            times = report_steps(len(rates) if steps is None else steps, "linear", 200)
        if len(rates) < times[-1]:
            raise Wrong(f"lr has {len(rates):,} rates, the last step asked for is {times[-1]:,}", argument="lr")
        rates = rates[: max(int(times[-1]), 1)]
        if not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
            raise Wrong("lr must be finite, not negative, and positive somewhere", argument="lr")
        return rates, np.asarray(times), size

    @staticmethod
    def _row(lr: object) -> Array:
        try:
            rates = np.array(lr, dtype=float)
        except (TypeError, ValueError):
            rates = np.zeros(0)
        if rates.ndim != 1 or not rates.size:
            form = "a Schedule with its peak, one learning rate for each step, a Log, or a number"
            raise Wrong(f"lr must be {form}, got {lr!r:.60}", argument="lr")
        return rates

    @staticmethod
    def _rate_of(optimizer: Optimizer) -> float:
        from ..optimizers import SGD

        if not isinstance(optimizer, SGD) or not is_number(optimizer.lr):
            raise Wrong(
                f"a forecast answers for the optimizer of its logs, and SGD(lr) stands for its learning rate; got {optimizer}",
                argument="optimizer",
            )
        return float(optimizer.lr)

    def _ratio(self, size: Array | float | None, steps: int) -> Array | float:
        """Batch sizes relative to the reference."""
        if size is None:
            return 1.0
        if self.batch_size is None:
            raise Wrong(
                "these logs have no batch size, so a forecast for another is not possible", argument="batch_size"
            )
        ratio = np.asarray(size, dtype=float) / self.batch_size
        return ratio[:steps] if ratio.ndim else float(ratio)

    def _form_error(self, peak: float, times: Array) -> Array:
        """Relative error of a run around the law: as the fit's own, larger at the beginning and outside the logs."""
        beyond = max(math.log(self.peaks[0] / peak), math.log(peak / self.peaks[1]), 0.0)
        longer = np.log(np.maximum(times / self.longest, 1.0))
        early = np.minimum(1.0, np.maximum(times, 1) / (SETTINGS_OF_FIT.beginning * self.longest))
        scatter = SETTINGS_OF_ERROR.residuals * self.fitted.scatter
        own = (scatter if len(self.logs) > 2 else max(scatter, SETTINGS_OF_ERROR.few)) / early
        return np.sqrt(own**2 + (SETTINGS_OF_ERROR.peak * beyond) ** 2 + (SETTINGS_OF_ERROR.length * longer) ** 2)

    def _distance(self, peak: float, last: int, size: float | None) -> str:
        """The sentence on how far from the logs a run is."""
        low, high = self.peaks
        parts = []
        if not low / 1.001 <= peak <= high * 1.001:
            nearest = high if peak > high else low
            parts.append(
                f"its peak rate {peak:.3g} is {max(peak / nearest, nearest / peak):.2g} times away from the logs'"
            )
        if last > 1.05 * self.longest:
            parts.append(f"it is {last / self.longest:.2g} times as long as the longest log")
        sizes = [float(np.ravel(log.batch_size)[0]) for log in self.logs if log.batch_size is not None]
        if size is not None and sizes and not min(sizes) / 1.001 <= size <= max(sizes) * 1.001:
            parts.append(f"its batch size {size:,.6g} is outside the logs' {min(sizes):,.6g} to {max(sizes):,.6g}")
        if not parts:
            return "This run is within the peak rates and lengths of the logs."
        return (
            "This run is outside the logs: "
            + "; ".join(parts)
            + ". Its interval is widened by what such forecasts missed."
        )


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
    batch_size, more = reference_of(logs)
    readings = [reading(log, metric, batch_size) for log in logs]
    omitted = sum(each.omitted for each in readings)
    if omitted:
        more = (*more, f"{omitted:,} points before the first step or within a warm-up are not fitted.")
    fitted = fit_law(readings, metric)
    if fitted.scatter > USUAL_ERROR:
        missed = (
            f"The law misses these logs by {100 * fitted.scatter:.2g}%, where published runs are fitted to 0.05 to 0.2%"
        )
        more = (*more, f"{missed}: take its forecasts as a direction, and look for what differs between the logs.")
    return Forecast(logs, fitted, batch_size, (*said, *more))


def is_forecast(path: str | Path) -> bool:
    """Whether `Forecast.save` wrote a file, by its beginning."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            return f'"format": "{FORECAST_FORMAT}"' in file.read(1000)
    except (OSError, UnicodeDecodeError):
        return False


def metric_of(logs: Sequence[Log]) -> tuple[RateMetric, tuple[str, ...]]:
    """How the learning rates of these logs become effective ones, with what had to be assumed."""
    kinds = {adaptive(log.optimizer) for log in logs if log.optimizer is not None}
    if len(kinds) > 1:
        raise Wrong(
            "the logs are of optimizers of two kinds, such as SGD and Adam; forecast each by itself", argument="logs"
        )
    if kinds == {False}:
        return RateMetric("plain"), ()
    decays = {log.weight_decay for log in logs}
    if len(decays) > 1:
        known = ", ".join(sorted("unknown" if d is None else f"{d:g}" for d in decays))
        raise Wrong(f"the logs have different weight decays ({known}); forecast each by itself", argument="logs")
    decay = decays.pop()
    said = () if kinds else ("No optimizer is known: AdamW is assumed. Say optimizer= if it is another.",)
    if decay is None:
        held = "the weight norm is taken at its steady state, an effective rate of lr / sqrt(peak)"
        return RateMetric("half"), (*said, f"No weight decay is known: {held}. Say weight_decay= for its transient.")
    return RateMetric("norm", float(decay)), said


def adaptive(optimizer: Optimizer | str | None) -> bool:
    """Whether an optimizer's updates have a size of their own, by its name."""
    name = (optimizer if isinstance(optimizer, str) else type(optimizer).__name__).lower()
    return any(each in name for each in ADAPTIVE)


def reference_of(logs: Sequence[Log]) -> tuple[float | None, tuple[str, ...]]:
    """The batch size to which the noise of the law refers: the geometric mean of those of the logs."""
    known = [float(np.exp(np.mean(np.log(log.batch_size)))) for log in logs if log.batch_size is not None]
    if known and len(known) < len(logs):
        return None, (
            f"{len(logs) - len(known)} of {len(logs)} logs have no batch size, so it is left out of account.",
        )
    return (float(np.exp(np.mean(np.log(known)))) if known else None), ()
