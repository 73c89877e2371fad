"""How wide the intervals of forecasts are made.

``python -m benchmarks.forecast_intervals`` writes docs/checks/forecast_intervals.csv. `cases_of` forecasts runs from others in ways
in which a user might: from three runs, from short runs alone, at other peak rates. `calibrated` finds how many standard deviations
an interval reaches to either side and three slopes of `ErrorSettings`: those with the least interval score on
some sets of runs and on logs that the exact engine made. The slopes for longer runs and for other batch sizes were added
afterwards, from ``python -m benchmarks.forecast_reach``, and are 0 here. The published splits of the sets have no part in
it: they are reported.
Everything takes about three minutes of CPU.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.forecast import CHECKS, MORE_SPLITS, RUN_SPLITS, Row, after_beginning, made_split
from benchmarks.forecast_data import FITTED_RUNS, OWN_SPLIT, SIZES, lr_scheduling, multi_power_law
from nqm.logs import Forecast, Log, forecast
from nqm.logs.allowance import SETTINGS_OF_ERROR, ErrorSettings, Gaps
from nqm.logs.course import Course
from nqm.show.tables import to_csv
from nqm.types import Array

Fit = Callable[[Sequence[Log]], Forecast]

NORMAL_90 = 1.645  # A normal variable stays within so many standard deviations in 90% of cases.
FIELDS = ("time", "rate", "peak")  # The offset of a run is measured by pairs of runs of one schedule.
START = (NORMAL_90, 0.002, 0.002, 0.002)  # deviations of the normal law, and an error of 0.2% for each factor e
PULL = 0.003  # weight of the squared distance from the start in the logarithms, which decides what the runs leave open
OUTSIDE = 2 / 0.1  # what a point outside a 90% interval costs for each unit of its distance, where the width costs 1
ENGINE = "engine"  # the set of logs that the exact engine made
ENGINE_SEEDS = range(5000, 5030)  # of the cases that calibrate; those that are reported begin with 0
POINTS = 20  # points of a run that are used
EVERY = 3  # Of the 142 runs of lr_scheduling that are forecast, every third is used.
KINDS = ("published", "split", "long", "far")
LONG = "72000"  # what the names of the long runs of the Multi-Power Law end with


@dataclass(frozen=True)
class Widths:
    """How many standard deviations an interval reaches to either side, and the settings of the deviations."""

    reach: float
    settings: ErrorSettings


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

    def held(self, widths: Widths) -> float:
        """The share of points within 90% intervals."""
        return float(np.mean(np.abs(self.error) <= widths.reach * self.width(widths.settings)))

    def score(self, widths: Widths) -> float:
        """The mean interval score of the points after the beginning: the width, and what points lie outside."""
        after, reach = self.gaps.early >= 1, widths.reach * self.width(widths.settings)
        beyond = np.maximum(np.abs(self.error) - reach, 0)
        return float(np.mean((2 * reach + OUTSIDE * beyond)[after])) if after.any() else math.nan


@dataclass(frozen=True, eq=False)
class Case:
    """Runs that are forecast from the same logs.

    ``kind`` is ``published`` for the split that the authors of the runs or the bars name, ``split`` for others, ``long`` for runs
    three times as long as the logs, or ``far`` for peaks outside 5e-4 to 2e-3.
    """

    kind: str
    name: str
    runs: tuple[Run, ...]

    def held(self, widths: Widths) -> float:
        """The share of the points of all runs within 90% intervals."""
        return float(np.average([run.held(widths) for run in self.runs], weights=[run.error.size for run in self.runs]))


@dataclass(frozen=True, eq=False)
class Cases:
    """All cases of a set."""

    found: tuple[Case, ...]

    @cached_property
    def kinds(self) -> dict[str, list[Case]]:
        """The cases by their kind."""
        return {kind: [case for case in self.found if case.kind == kind] for kind in KINDS}

    def score(self, widths: Widths) -> float:
        """The mean over the kinds of cases of the logarithms of scores, without the published split."""
        means = [
            np.mean([math.log(np.nanmean([run.score(widths) for run in case.runs])) for case in cases])
            for kind, cases in self.kinds.items() if cases and kind != "published"
        ]  # fmt: skip
        return float(np.mean(means))


def cases_of(name: str, fit: Fit) -> Cases:
    """The cases of a set, with forecasts that ``fit`` makes from logs."""
    if name == ENGINE:
        return Cases((Case("split", name, tuple(made_run(seed, fit) for seed in ENGINE_SEEDS)),))
    return Cases(tuple(_multi_power_law(name, fit) if name in SIZES else _lr_scheduling(fit)))


def made_run(seed: int, fit: Fit) -> Run:
    """A run that the engine made, beside its forecast from three others."""
    _, logs, left = made_split(seed)
    return Run.of(fit(logs), left)


def _case(kind: str, name: str, fit: Fit, fitted: Sequence[Log], others: Sequence[Log]) -> Case:
    found = fit(fitted)
    return Case(kind, name, tuple(Run.of(found, log) for log in others))


def _multi_power_law(size: str, fit: Fit) -> Iterator[Case]:
    logs = multi_power_law(size)
    for names in (OWN_SPLIT, *MORE_SPLITS):
        others = [log for n, log in logs.items() if n not in names]
        kind = "published" if names is OWN_SPLIT else "split"
        yield _case(kind, " + ".join(names), fit, [logs[n] for n in names], others)
    short = [log for name, log in logs.items() if not name.endswith(LONG)]
    yield _case("long", LONG, fit, short, [log for name, log in logs.items() if name.endswith(LONG)])


def _lr_scheduling(fit: Fit) -> Iterator[Case]:
    runs = {run: one for run, one in lr_scheduling().items() if one.last < 5}
    for chosen in RUN_SPLITS:
        found = fit([runs[run].log for run in chosen])
        name = " + ".join(map(str, chosen))
        left = [run for run in runs if run not in chosen][::EVERY]
        others = {run: Run.of(found, after_beginning(runs[run].log)) for run in left}
        near = {run for run in others if 5e-4 <= runs[run].peak <= 2e-3}
        kind = "published" if chosen is FITTED_RUNS else "split"
        yield Case(kind, name, tuple(each for run, each in others.items() if run in near))
        yield Case("far", name, tuple(each for run, each in others.items() if run not in near))


def calibrated(sets: Sequence[Cases]) -> Widths:
    """The widths with the least interval score on all cases of some sets, each set counting alike."""
    from scipy.optimize import minimize

    start = np.log(START)

    def widths_at(x: Array) -> Widths:
        reach, *slopes = np.exp(x).tolist()
        return Widths(reach, replace(SETTINGS_OF_ERROR, longer=0.0, size=0.0, **dict(zip(FIELDS, slopes, strict=True))))

    def score(x: Array) -> float:
        widths = widths_at(np.clip(x, start - 5, start + 5))
        return float(np.mean([cases.score(widths) for cases in sets])) + PULL * float(np.sum((x - start) ** 2))

    found = minimize(score, start, method="Nelder-Mead", options={"maxfev": 200, "xatol": 0.02, "fatol": 1e-4})
    return widths_at(found.x)


def coverage(cases: Cases, widths: Widths) -> Row:
    """Shares of points within 90% intervals, by kind of case; of long runs, that of the run with the smallest share."""
    published, splits, far = (
        [case.held(widths) for case in cases.kinds[kind]] for kind in ("published", "split", "far")
    )
    long = [run.held(widths) for case in cases.kinds["long"] for run in case.runs]
    return {
        "held_published": published[0] if published else math.nan, "held_mean": float(np.mean(splits)),
        "held_least": min(splits), "held_most": max(splits), "held_long": min(long, default=math.nan),
        "held_far": float(np.mean(far)) if far else math.nan,
    }  # fmt: skip


def report() -> list[Row]:
    """Each set with widths that the other sets calibrate, and with those of nqm, which all sets calibrate."""
    cases = {}
    for name in (*SIZES, "124M", ENGINE):
        cases[name] = cases_of(name, forecast)
        print(f"{name} is forecast", file=sys.stderr, flush=True)
    rows = []
    for left in (*SIZES, "124M", None):
        names = [name for name in cases if name != left]
        widths = calibrated([cases[name] for name in names])
        print(f"without {left}: {widths}", file=sys.stderr, flush=True)
        slopes = {name: getattr(widths.settings, name) for name in FIELDS}
        for name in (left,) if left else cases:
            rows.append(
                {
                    "set": name,
                    "calibrated_on": " + ".join(names),
                    "reach": widths.reach,
                    **slopes,
                    **coverage(cases[name], widths),
                }
            )
    return rows


def main() -> None:
    to_csv(report(), CHECKS / "forecast_intervals.csv")
    print(f"wrote {CHECKS / 'forecast_intervals.csv'}")


if __name__ == "__main__":
    main()
