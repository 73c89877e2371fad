"""How wide the intervals of forecasts are made: the settings of their allowance that are likeliest on the runs of some sets.

`cases_of` forecasts runs from others in ways in which a user might: from three runs, from short runs alone, at other peak rates.
`likeliest` finds the settings; it is part of ``python -m benchmarks.forecast_choice``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.forecast import MORE_SPLITS, RUN_SPLITS, after_beginning
from benchmarks.forecast_data import OWN_SPLIT, SIZES, lr_scheduling, multi_power_law
from nqm.logs import Forecast, Log
from nqm.logs.allowance import SETTINGS_OF_ERROR, ErrorSettings, Gaps
from nqm.logs.course import Course
from nqm.logs.fitting import NORMAL_90
from nqm.types import Array

Fit = Callable[[Sequence[Log]], Forecast]

FIELDS = ("time", "rate", "peak")  # The offset of a run is measured by pairs of runs of one schedule.
START = (0.002, 0.002, 0.002)  # of these fields: an error of 0.2% for each factor e
PULL = 0.01  # weight of the squared distance from the start in the logarithms, which decides what the runs leave open
POINTS = 40  # points of a run that are used
LONG = "72000"  # what the names of the long runs of the Multi-Power Law end with


@dataclass(frozen=True, eq=False)
class Run:
    """A run beside its forecast: relative errors, their deviation from the parameters, and how far from the logs they are."""

    error: Array
    deviation: Array
    gaps: Gaps

    @classmethod
    def of(cls, found: Forecast, log: Log) -> Run:
        few = np.unique(np.linspace(0, log.step.size - 1, POINTS).astype(int))
        few = few[log.step[few] > 0]
        course = Course.of(log.rates, log.step[few], found.metric.weight_decay)
        loss, J = found.law.jacobian(course)
        share = J / loss[:, None]
        variance = np.einsum("ij,jk,ik->i", share, found.fitted.covariance, share)
        return cls(np.log(log.loss[few] / loss), np.sqrt(np.maximum(variance, 0)), Gaps.of(found, course))

    def width(self, settings: ErrorSettings) -> Array:
        return np.hypot(self.deviation, self.gaps.allowance(settings))

    def held(self, settings: ErrorSettings) -> float:
        """The share of points within 90% intervals."""
        return float(np.mean(np.abs(self.error) <= NORMAL_90 * self.width(settings)))

    def surprise(self, settings: ErrorSettings) -> float:
        """Minus the mean log likelihood of the points after the beginning."""
        after, width = self.gaps.early >= 1, self.width(settings)
        return float(np.mean((np.log(width) + (self.error / width) ** 2 / 2)[after])) if after.any() else 0.0


@dataclass(frozen=True, eq=False)
class Case:
    """Runs that are forecast from the same logs.

    ``kind`` is ``split``, ``long`` for runs three times as long as the logs, or ``far`` for peaks outside 5e-4 to 2e-3.
    """

    kind: str
    name: str
    runs: tuple[Run, ...]

    def held(self, settings: ErrorSettings) -> float:
        """The share of the points of all runs within 90% intervals."""
        return float(
            np.average([run.held(settings) for run in self.runs], weights=[run.error.size for run in self.runs])
        )


@dataclass(frozen=True, eq=False)
class Cases:
    """All cases of a set."""

    found: tuple[Case, ...]

    @cached_property
    def kinds(self) -> dict[str, list[Case]]:
        return {kind: [case for case in self.found if case.kind == kind] for kind in ("split", "long", "far")}

    def surprise(self, settings: ErrorSettings) -> float:
        """The mean over the kinds of cases, each case and each of its runs counting alike."""
        means = [
            np.mean([np.mean([run.surprise(settings) for run in case.runs]) for case in cases])
            for cases in self.kinds.values() if cases
        ]  # fmt: skip
        return float(np.mean(means))


def cases_of(name: str, fit: Fit) -> Cases:
    """The cases of a set, with forecasts that ``fit`` makes from logs."""
    return Cases(tuple(_multi_power_law(name, fit) if name in SIZES else _lr_scheduling(fit)))


def _case(kind: str, name: str, fit: Fit, fitted: Sequence[Log], others: Sequence[Log]) -> Case:
    found = fit(fitted)
    return Case(kind, name, tuple(Run.of(found, log) for log in others))


def _multi_power_law(size: str, fit: Fit) -> Iterator[Case]:
    logs = multi_power_law(size)
    for names in (OWN_SPLIT, *MORE_SPLITS):
        others = [log for n, log in logs.items() if n not in names]
        yield _case("split", " + ".join(names), fit, [logs[n] for n in names], others)
    short = [log for name, log in logs.items() if not name.endswith(LONG)]
    yield _case("long", LONG, fit, short, [log for name, log in logs.items() if name.endswith(LONG)])


def _lr_scheduling(fit: Fit) -> Iterator[Case]:
    runs = {run: one for run, one in lr_scheduling().items() if one.last < 5}
    for chosen in RUN_SPLITS:
        found = fit([runs[run].log for run in chosen])
        name = " + ".join(map(str, chosen))
        others = {run: Run.of(found, after_beginning(one.log)) for run, one in runs.items() if run not in chosen}
        near = {run for run in others if 5e-4 <= runs[run].peak <= 2e-3}
        yield Case("split", name, tuple(each for run, each in others.items() if run in near))
        yield Case("far", name, tuple(each for run, each in others.items() if run not in near))


def likeliest(sets: Sequence[Cases]) -> ErrorSettings:
    """The settings with the largest likelihood on all cases of some sets, each set counting alike."""
    from scipy.optimize import minimize

    start = np.log(START)

    def settings_at(x: Array) -> ErrorSettings:
        return replace(SETTINGS_OF_ERROR, **dict(zip(FIELDS, np.exp(x).tolist(), strict=True)))

    def surprise(x: Array) -> float:
        settings = settings_at(np.clip(x, start - 5, start + 5))
        return float(np.mean([cases.surprise(settings) for cases in sets])) + PULL * float(np.sum((x - start) ** 2))

    found = minimize(surprise, start, method="Nelder-Mead", options={"maxfev": 400, "xatol": 0.01, "fatol": 1e-5})
    return settings_at(found.x)
