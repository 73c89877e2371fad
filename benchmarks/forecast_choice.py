"""Laws of forecasts that sets of runs choose, beside the law of nqm, which is derived.

``python -m benchmarks.forecast_choice`` writes docs/checks/forecast_choice.csv and forecast_choice_tried.csv. A law is one option
for each entry of `OPTIONS`. `measure` fits it to some runs of a set and forecasts the others. Of all combinations of options,
`choose` takes the one with the least error on some sets, and it is reported on sets that had no part in the choice. `DERIVED` is
the law that nqm has: its form and the means of its priors follow from how AdamW, the noise of gradients and the cross-entropy
work (docs/forecast.md), and only the width of the priors was chosen, on the two smaller models: the word ``widths`` measures this
alone, in docs/checks/forecast_widths.csv. Everything takes about ten minutes of CPU.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.forecast import CHECKS, MORE_SPLITS, Row, errors
from benchmarks.forecast_data import FITTED_RUNS, OWN_SPLIT, SIZES, WEIGHT_DECAY, lr_scheduling, multi_power_law
from nqm.logs import Forecast, Log
from nqm.logs.assuming import metric_of
from nqm.logs.course import Course
from nqm.logs.fitting import SETTINGS_OF_FIT, ForecastSettings, fit_law, reading
from nqm.show.tables import to_csv
from nqm.types import Array

OPTIONS: dict[str, tuple[Any, ...]] = {
    # The weight norm: at its steady state, or a state with this squared start, or with a start that the logs may move.
    "norm": ("steady", 0.0004, 0.001, 0.002, "free"),
    # Saturation of noise: none, or the mean of its prior, times the least loss.
    "k": ("none", 3.0, 6.0),
    # Exponent with which the noise of a step is forgotten, and the mean of the prior of the noise speed, or none. The two go
    # together: free fits have speeds of 3 to 15 with the exponent 1, of 0.1 to 0.9 with 1.2, and of 0.02 to 0.06 with 1.5.
    "noise": ((1.0, "none"), (1.0, 15.0), (1.0, 38.0), (1.2, "none"), (1.2, 0.2), (1.5, 0.06)),
    # Standard deviation of the logarithms of the start of the norm, the saturation and the noise speed; alpha has twice this.
    "width": (0.25, 1.0),
}
"""The entries of a law and their options."""

Law = tuple[Any, ...]
"""One option for each entry of OPTIONS, in their order."""

LAWS: tuple[Law, ...] = tuple(itertools.product(*OPTIONS.values()))
DERIVED: Law = (0.0004, 3.0, (1.0, 38.0), 0.25)
"""The law of nqm. 25M and 100M chose the width, of 0.25, 0.5 and 1, when all else had been fixed."""

WIDTHS = (0.12, 0.25, 0.5, 1.0)  # The first was measured later than the others, and had no part in the choice.

SCATTER = 0.0005  # Two runs of one schedule differ by about this share of the loss: the unit of errors.
MEASURED_POINTS = 30  # points of a run that are compared, and its last one
FREE_START = (0.001, 1.0)  # prior of the norm's squared start if the logs may move it
NO_PRIOR = 5.0  # standard deviation of the logarithm of the noise speed if it has no prior
COARSE = {"starts": ((0.003, 1.0),), "most_points": 80}
"""Laws are compared with one start of a fit and fewer points of a log, and reported with all of them."""

SETS = (*SIZES, "124M")


BARS = {
    "25M": {"mean_r2": 0.9988, "largest_relative_error": 0.0080, "wsd_final_error": 0.010},
    "100M": {"mean_r2": 0.9990, "largest_relative_error": 0.0100, "wsd_final_error": 0.010},
    "124M": {
        "error_0.0001": 0.04, "error_0.0005": 0.010, "error_0.001": 0.010, "error_0.002": 0.010, "error_0.003": 0.020,
        "rank_correlation": 0.9, "chosen_above_best": 0.005,
    },
}  # fmt: skip
"""What forecasts must reach on each set: at least the first of each, of which 1 is the best, or at most the others."""
TOWARDS_ONE = ("mean_r2", "rank_correlation")  # figures whose best value is 1


@dataclass(frozen=True)
class Measured:
    """A law on a set: the mean error of its forecasts in units of the scatter of runs, and the figures that have bars."""

    error: float
    figures: Mapping[str, float]
    excess: float  # by how much figures pass their bars, as shares of the bars, summed


def settings_of(law: Law) -> ForecastSettings:
    """The settings of a fit with this law."""
    entry = dict(zip(OPTIONS, law, strict=True))
    width = entry["width"]
    norm, (exponent, speed) = entry["norm"], entry["noise"]
    return replace(
        SETTINGS_OF_FIT,
        exponent=exponent,
        alpha=(0.6, 2 * width),
        k=(1e-9, 0.01) if entry["k"] == "none" else (entry["k"], width),
        speed=(5.0, NO_PRIOR) if speed == "none" else (speed, width),
        r0=FREE_START if norm == "free" else SETTINGS_OF_FIT.r0 if norm == "steady" else (norm, width),
    )


def fitted_by(law: Law, logs: Sequence[Log], coarse: bool = False) -> Forecast:
    """The forecast of a law from some logs."""
    settings = replace(settings_of(law), **(COARSE if coarse else {}))
    if law[0] == "steady":
        logs = [replace(log, weight_decay=None, lr=log.rates) for log in logs]
    metric, _ = metric_of(logs)
    return Forecast(
        tuple(logs), fit_law([reading(log, metric, None, settings) for log in logs], metric, settings), None
    )


def run_error(predicted: Array, log: Log, at: Array) -> float:
    """The relative error of forecasts at some points: half the mean after the first tenth, half that of the last point."""
    after = log.step[at] >= 0.1 * log.step[-1]
    error = np.abs(np.log(predicted / log.loss[at]))[after]
    return float(error.mean() + error[-1]) / 2


def measure(name: str, law: Law, coarse: bool = False) -> Measured:
    """Fit a law to the runs of a set that are fitted, and forecast the others."""
    groups, figures = (_split if name in SIZES else _peaks)(name, law, coarse)
    error = float(np.mean([np.mean(group) for group in groups])) / SCATTER
    excess = 0.0
    for figure, bar in BARS[name].items():
        share = (1 - figures[figure]) / (1 - bar) if figure in TOWARDS_ONE else figures[figure] / bar
        excess += max(share - 1, 0.0)
    return Measured(error, figures, excess)


def _split(size: str, law: Law, coarse: bool) -> tuple[list[list[float]], dict[str, float]]:
    """Errors and figures of the Multi-Power Law's own split: three runs are fitted, six are forecast."""
    logs = multi_power_law_logs(size)
    found = fitted_by(law, [logs[n] for n in OWN_SPLIT], coarse)
    others = {n: log for n, log in logs.items() if n not in OWN_SPLIT}
    losses = {n: found.law.loss(course_of(log, log.step)) for n, log in others.items()}
    each = {n: errors(losses[n], log) for n, log in others.items()}
    figures = {
        "mean_r2": float(np.mean([row["r2"] for row in each.values()])),
        "largest_relative_error": max(row["largest_relative_error"] for row in each.values()),
        "wsd_final_error": max(abs(each[n]["final_error"]) for n in ("wsd_20000_24000", "wsdld_20000_24000")),
    }
    return [[run_error(losses[n], log, np.arange(log.step.size)) for n, log in others.items()]], figures


def _peaks(_: str, law: Law, coarse: bool) -> tuple[list[list[float]], dict[str, float]]:
    """Errors by peak rate, and figures of the last losses, of lr_scheduling: ten runs are fitted, the others are forecast."""
    runs = lr_scheduling_runs()
    found = fitted_by(law, [runs[run].log for run in FITTED_RUNS], coarse)
    others = [one for run, one in runs.items() if run not in FITTED_RUNS and one.last < 5]
    at = [_few_points(one.log) for one in others]
    losses = [found.law.loss(course_of(one.log, one.log.step[few])) for one, few in zip(others, at, strict=True)]
    error = np.array([run_error(loss, one.log, few) for loss, one, few in zip(losses, others, at, strict=True)])
    ends, last = np.array([loss[-1] for loss in losses]), np.array([one.last for one in others])
    peaks = np.array([one.peak for one in others])
    every = sorted(set(peaks.tolist()))
    figures = {f"error_{peak:g}": float(np.abs(ends - last)[peaks == peak].mean()) for peak in every}
    long = np.array([one.steps == 50_000 for one in others])
    figures["rank_correlation"] = float(np.corrcoef(rankdata(ends[long]), rankdata(last[long]))[0, 1])
    figures["chosen_above_best"] = float(last[long][np.argmin(ends[long])] - last[long].min())
    return [error[peaks == peak].tolist() for peak in every], figures


def _few_points(log: Log) -> Array:
    """Some points of a log after its first step, evenly spread."""
    after = np.flatnonzero(log.step > 0)
    return after[np.unique(np.linspace(0, after.size - 1, MEASURED_POINTS).astype(int))]


COURSES: dict[str, Course] = {}
"""The courses of runs that are forecast, by the names of the runs and their last losses: they are the same for all laws."""


def course_of(log: Log, steps: Array) -> Course:
    """The course of a run, made once."""
    key = f"{log.name} {log.loss[-1]}"
    if key not in COURSES:
        COURSES[key] = Course.of(log.rates, steps, WEIGHT_DECAY)
    return COURSES[key]


multi_power_law_logs = cache(multi_power_law)
lr_scheduling_runs = cache(lr_scheduling)

TRIED: dict[tuple[str, Law], Measured] = {}
"""Every law that was measured, by set and law."""


def tried(name: str, law: Law) -> Measured:
    """A law on a set, measured once."""
    if (name, law) not in TRIED:
        TRIED[name, law] = measure(name, law, coarse=True)
    return TRIED[name, law]


def criterion(names: Sequence[str], law: Law) -> float:
    """The mean over some sets of the logarithm of the error and of the excess over the bars."""
    found = [tried(name, law) for name in names]
    return float(np.mean([math.log(each.error) + each.excess for each in found]))


def choose(names: Sequence[str]) -> Law:
    """The law of all combinations of options that has the least criterion on some sets."""
    return min(LAWS, key=lambda law: criterion(names, law))


CHOICES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("100M", "124M"), ("25M",)), (("25M", "124M"), ("100M",)), (("25M", "100M"), ("124M",)), (("124M",), SIZES), (SETS, SETS),
)  # fmt: skip
"""Sets that choose a law, and sets on which it is reported. What all three choose is not tested by any of them."""


def reported(law: Law, chosen_on: str, on: str) -> Row:
    """One row of the report."""
    entries = {name: str(option) for name, option in zip(OPTIONS, law, strict=True)}
    return {
        "set": on,
        "chosen_on": chosen_on,
        **entries,
        **measure(
            on,
            law,
        ).figures,
    }


def report() -> list[Row]:
    """The derived law and each law that was chosen, on the sets that they are reported on, and the bars."""
    rows = [reported(DERIVED, "derived", name) for name in SETS]
    for names, others in CHOICES:
        law = choose(names)
        rows += [reported(law, " + ".join(names), other) for other in others]
    rows += [{"set": name, "chosen_on": "bar", **bars} for name, bars in BARS.items()]
    return _even(rows)


def _even(rows: list[Row]) -> list[Row]:
    """Rows that all have the same columns."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name, math.nan) for name in header} for row in rows]


def widths() -> Iterator[Row]:
    """The error of the derived law with several widths of its priors, on four splits of the two smaller models."""
    for width in WIDTHS:
        for size in SIZES:
            logs = multi_power_law_logs(size)
            for names in (OWN_SPLIT, *MORE_SPLITS):
                found = fitted_by((*DERIVED[:-1], width), [logs[n] for n in names])
                others = [log for n, log in logs.items() if n not in names]
                losses = [found.law.loss(course_of(log, log.step)) for log in others]
                each = [run_error(loss, log, np.arange(len(loss))) for loss, log in zip(losses, others, strict=True)]
                yield {
                    "width": width,
                    "set": size,
                    "fitted": " + ".join(names),
                    "error": float(np.mean(each)) / SCATTER,
                }


def main(names: Sequence[str]) -> None:
    to_csv(list(widths()), CHECKS / "forecast_widths.csv")
    print(f"wrote {CHECKS / 'forecast_widths.csv'}")
    if list(names) == ["widths"]:
        return
    for i, law in enumerate(LAWS):
        print(f"{i} of {len(LAWS)}: {law}, criterion {criterion(SETS, law):.3f}", file=sys.stderr, flush=True)
    to_csv(report(), CHECKS / "forecast_choice.csv")
    every = [
        {"set": name, **{entry: str(option) for entry, option in zip(OPTIONS, law, strict=True)}, "error": found.error,
         "excess": found.excess, **found.figures}
        for (name, law), found in TRIED.items()
    ]  # fmt: skip
    to_csv(_even(every), CHECKS / "forecast_choice_tried.csv")
    print(f"wrote {CHECKS / 'forecast_choice.csv'} and {CHECKS / 'forecast_choice_tried.csv'}")


if __name__ == "__main__":
    main(sys.argv[1:])
