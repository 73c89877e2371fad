"""What an interval allows for beside the uncertainty of the parameters: the scatter of runs, and the error of the law itself.

The residuals of a fit do not show what the law gets wrong where no log has been. A point of a run lies at an intrinsic time S
and has an effective rate eta. The law was held against a loss at the logged point that is nearest in log S and log eta, and its
error grows with the distance from there. Relative to the loss, the variance of a run around its forecast is

    offset^2 + scatter^2 + (peak dp)^2 + (longer dt)^2 + (size dB)^2 + min over logged points of (time dS)^2 + (rate de)^2

beside that of the parameters. dS and de are the differences in log S and in log eta. dp, dt and dB are how far the logarithms of the
peak rate, of the step and of the batch size are outside those of the logs; dt counts steps after the end of the longest log
alone. scatter is that of the residuals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..types import Array
from .course import Course
from .fitting import SETTINGS_OF_FIT
from .law import LossLaw

if TYPE_CHECKING:
    from .forecasting import Forecast

STATES = 40  # Points of a log to which distances are measured.
LEAST_RATE_SHARE = 0.01  # Effective rates below this share of the largest of the logs count as this share.
LEAST_TIME_SHARE = 1e-6  # The same for intrinsic times, as a share of the longest of the logs.


@dataclass(frozen=True)
class ErrorSettings:
    """Relative standard deviations of a single run around its forecast, beside the uncertainty of the parameters.

    ``python -m benchmarks.forecast_intervals`` finds ``time``, ``rate`` and ``peak`` on published runs and on logs that the exact
    engine made. ``longer`` and ``size`` were added to them afterwards, and only widen: ``python -m benchmarks.forecast_reach``.
    """

    offset: float = SETTINGS_OF_FIT.offset  # What all points of a run have in common, such as its seed.
    few: float = 0.003  # The least scatter with fewer than three logs: from two, intervals held half of the points.
    time: float = 0.00073  # Error of the law for each factor e in intrinsic time from the nearest logged point.
    rate: float = 0.00066  # The same for each factor e in the effective rate.
    peak: float = 0.0047  # The same for each factor e of the peak rate outside those of the logs.
    longer: float = 0.006  # The same for each factor e of the steps after the longest log.
    size: float = 0.015  # The same for each factor e of the batch size outside those of the logs.
    # Factor on these three where the weight norm is taken at its steady state: on nine splits of the sets, 4 had the least interval
    # score of 2 to 6, and 90% intervals held 78 to 99% of the points.
    steady: float = 4.0


SETTINGS_OF_ERROR = ErrorSettings()


@dataclass(frozen=True, eq=False)
class Gaps:
    """How far the points of a run are from all logged points, and how early they are."""

    time: Array  # differences in log intrinsic time, a row for each point of the run
    rate: Array  # differences in log effective rate
    peak: float  # how far log peak is outside the logs
    early: Array  # 1 after the beginning; the part of the beginning that has passed before it
    scatter: float  # of the residuals of the fit
    logs: int
    steady: bool  # whether the weight norm is taken at its steady state
    longer: Array | float = 0.0  # how far log step is after the longest log
    size: float = 0.0  # how far the log batch size is outside the logs, at the step where it is farthest

    @classmethod
    def of(cls, forecast: Forecast, course: Course, more: Course | None = None) -> Gaps:
        """The gaps between a run and the logs of a forecast, and one more run if it is given."""
        logs = [*forecast.courses, *([more] if more is not None else [])]
        states = [logged_states(forecast.law, log) for log in logs]
        S, eta = (np.concatenate(each) for each in zip(*states, strict=True))
        own_S, own_eta = states_of(forecast.law, course)
        floor, start = LEAST_RATE_SHARE * eta.max(), LEAST_TIME_SHARE * S.max()
        x, y = (np.log(np.maximum(each, start)) for each in (own_S, S))
        u, v = (np.log(np.maximum(each, floor)) for each in (own_eta, eta))
        peaks = [log.peak for log in logs]
        beyond = max(math.log(min(peaks) / course.peak), math.log(course.peak / max(peaks)), 0.0)
        longest = max(float(log.lengths.sum()) for log in logs)
        longer = np.log(np.maximum(course.steps / longest, 1.0))
        ratios = np.concatenate([log.batch_size for log in logs])
        farthest = max(
            float(ratios.min() / course.batch_size.min()), float(course.batch_size.max() / ratios.max()), 1.0
        )
        early = np.minimum(1.0, np.maximum(course.steps, 1) / (SETTINGS_OF_FIT.beginning * longest))
        steady = forecast.metric.kind == "half"
        return cls(
            x[:, None] - y, u[:, None] - v, beyond, early, forecast.fitted.scatter, len(logs), steady, longer,
            math.log(farthest),
        )  # fmt: skip

    def form(self, settings: ErrorSettings = SETTINGS_OF_ERROR) -> Array:
        """The relative error of the law's form at each point."""
        nearest = np.min((settings.time * self.time) ** 2 + (settings.rate * self.rate) ** 2, axis=1)
        outside = (
            (settings.peak * self.peak) ** 2 + (settings.longer * self.longer) ** 2 + (settings.size * self.size) ** 2
        )
        return (settings.steady if self.steady else 1.0) * np.sqrt(nearest + outside)

    def allowance(self, settings: ErrorSettings = SETTINGS_OF_ERROR) -> Array:
        """The relative standard deviation of a run around its forecast at each point, without that of the parameters."""
        own = math.hypot(settings.offset, self.scatter)
        own = max(own, settings.few) if self.logs < 3 else own
        return np.hypot(own / self.early, self.form(settings))


def states_of(law: LossLaw, course: Course) -> tuple[Array, Array]:
    """The intrinsic time and the effective rate at each reading of a course."""
    eta, _ = law.metric.rates(course, law["r0"])
    S = np.append(0.0, np.cumsum(course.lengths * eta))
    return S[course.blocks + 1], eta[np.maximum(course.blocks, 0)]


def logged_states(law: LossLaw, course: Course) -> tuple[Array, Array]:
    """The same at some of the readings, evenly spread."""
    S, eta = states_of(law, course)
    few = np.unique(np.linspace(0, len(S) - 1, STATES).astype(int))
    return S[few], eta[few]
