"""How far a run is from the logs of a forecast, and how far forecasts go: beyond that there is no interval and no advice.

The constants say how many times what the logs hold intervals were checked, on runs that published logs of other peaks, lengths and
batch sizes forecast. docs/forecast.md has the table, and ``python -m benchmarks.forecast_reach`` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..types import Array, Wrong
from .fitting import after_warmup

if TYPE_CHECKING:
    from .forecasting import Forecast

PEAK_REACH = 3.0
"""Largest peak rate with an interval, over that of the logs.

From runs of 124 million weights at one peak, intervals held 80 to 100% of the points of runs at 1.5 to 4 times it, and 5% at 5 times.
From the peak 1e-3, a run at 3 times it trained as forecast, and one at 5 times it did not train.
"""

LOW_PEAK_REACH = 30.0
"""Smallest logged peak rate over the smallest peak with an interval: runs at 1/30 of a peak are the farthest that were checked."""

SIZE_REACH = 4.0
"""Largest factor between a batch size with an interval and the nearest of the logs.

From AdamW at one batch size, intervals held the last losses of all runs at 4 times it (30 of MLPerf's Llama 3.1 8B and Flux.1),
and of none at 1/4.5 of it (6 of Flux.1).
"""

LENGTH_REACH = 6.0
"""Longest run with an interval, over the longest log.

From the beginning of a constant run, intervals held all points of the run if it was up to 6 times as long (3 runs of 124 million
weights and 2 others), and one of three last losses was outside at 10 times.
"""

SAME_SHARE = 1.05  # Peak rates, lengths and batch sizes within this factor count as one.
SAID_ERROR = (
    0.001  # A form error of this share of the loss is said, even if peak and length are within those of the logs.
)


@dataclass(frozen=True)
class Distance:
    """A quantity of a run that is outside those of the logs, and the nearest of the logs. ``what`` is its name."""

    what: str
    value: float
    logged: float
    reach: float

    @property
    def times(self) -> float:
        """The larger of the two over the smaller one."""
        return max(self.value, self.logged) / max(min(self.value, self.logged), 1e-300)

    @property
    def beyond(self) -> bool:
        """Whether forecasts were not checked so far from the logs."""
        return self.times > self.reach * (1 + 1e-9)

    @property
    def bound(self) -> float:
        """The farthest value that is within reach."""
        return self.logged * self.reach if self.value > self.logged else self.logged / self.reach

    @property
    def checked(self) -> str:
        """How far forecasts were checked."""
        if self.what == "length":
            return f"lengths up to {self.reach:g} times that of the longest log"
        side = f"up to {self.reach:g} times" if self.value > self.logged else f"down to 1/{self.reach:g} of"
        return f"{self.what}s {side} those of the logs"

    def phrase(self, subject: str) -> str:
        """How far outside the logs the subject of a sentence is."""
        if self.what == "length":
            return f"{subject} is {_times(self.times)} times as long as the longest log, {self.logged:,.0f} steps"
        side = (
            "times the largest of the logs"
            if self.value > self.logged
            else "times smaller than the smallest of the logs"
        )
        return f"{subject} {self.shown(self.value)} is {_times(self.times)} {side}, {self.shown(self.logged)}"

    def shown(self, value: float) -> str:
        return f"{value:.3g}" if self.what == "peak rate" else f"{value:,.6g}"


def distances(
    forecast: Forecast, peak: float | None = None, steps: int | None = None, sizes: Array | float | None = None
) -> list[Distance]:
    """What of a run is outside the logs: its peak rate, its length, its batch sizes.

    A peak below those of the logs is inside if the rates of the logs go down to it, unless it is out of reach.
    """
    found: list[Distance] = []
    if peak is not None:
        low, high = forecast.peaks
        if peak > SAME_SHARE * high:
            found.append(Distance("peak rate", peak, high, PEAK_REACH))
        elif peak * SAME_SHARE < low and (peak < least_rate(forecast) or peak * LOW_PEAK_REACH < low):
            found.append(Distance("peak rate", peak, low, LOW_PEAK_REACH))
    if steps is not None and steps > SAME_SHARE * forecast.longest:
        found.append(Distance("length", steps, forecast.longest, LENGTH_REACH))
    logged = forecast.batch_sizes
    if sizes is not None and logged is not None:
        least, most = float(np.min(sizes)), float(np.max(sizes))
        if most > SAME_SHARE * logged[1]:
            found.append(Distance("batch size", most, logged[1], SIZE_REACH))
        if least * SAME_SHARE < logged[0]:
            found.append(Distance("batch size", least, logged[0], SIZE_REACH))
    return found


def least_rate(forecast: Forecast) -> float:
    """The smallest learning rate above zero at which a loss was logged after a warm-up."""
    rates = np.concatenate([log.logged_rates[after_warmup(log)] for log in forecast.logs])
    return float(np.min(rates[rates > 0], initial=forecast.peaks[0]))


def require_reach(found: list[Distance], arguments: Mapping[str, str], extrapolate: bool) -> None:
    """Refuse a question beyond what forecasts were checked for; ``arguments`` has the argument that each quantity comes from."""
    for each in found:
        if each.beyond and not extrapolate:
            argument = arguments[each.what]
            subject = f"a run of {each.value:,.0f} steps" if each.what == "length" else f"the {each.what}"
            bound = f"{each.bound:,.0f} steps" if each.what == "length" else each.shown(each.bound)
            most = "most" if each.value > each.logged else "least"
            raise Wrong(
                f"{each.phrase(subject)}; forecasts were checked for {each.checked}: ask for at {most} {bound}, or extrapolate",
                argument=argument,
            )


def distance_sentence(
    found: list[Distance], peaks: tuple[float, float], peak: float, form: float, extrapolate: bool
) -> str:
    """The sentence on how far from the logs a run is; ``form`` is the error of the law's form at its end."""
    parts = [each.phrase("it" if each.what == "length" else f"its {each.what}") for each in found]
    if form >= SAID_ERROR and not parts and peak * SAME_SHARE >= peaks[0]:
        parts = ["no log was near its last learning rate after so much training"]
    beyond = [each for each in found if each.beyond]
    checked = f" Forecasts were checked for {' and '.join(each.checked for each in beyond)}" if beyond else ""
    if beyond and not extrapolate:
        where = "" if any(each.what != "length" for each in beyond) else f" after step {math.floor(beyond[0].bound):,}"
        return f"This run is outside the logs: {'; '.join(parts)}.{checked}: there is no interval{where}. Extrapolate to have one."
    widened = f" Its interval allows for an error of the law of {100 * form:.2g}% of the loss at the end."
    if parts:
        far = f"{checked}, so its interval is a guess." if beyond else ""
        return f"This run is outside the logs: {'; '.join(parts)}.{far}{widened}"
    if peak * SAME_SHARE < peaks[0]:
        inside = f"This run is within the rates and lengths of the logs, whose peak rates are {peaks[0]:.3g} and more."
        return inside + (widened if form >= SAID_ERROR else "")
    return "This run is within the peak rates and lengths of the logs."


def _times(value: float) -> str:
    """A factor with three digits, and with all of its digits if it is large."""
    return f"{value:.3g}" if value < 100 or value >= 1e7 else f"{value:,.0f}"
