"""How the law of forecasts is chosen: ``python -m benchmarks.forecast_choice`` writes two files docs/checks/forecast_choice*.csv.

A law is one option for each entry of `OPTIONS`. `measure` fits it to some runs of a set and forecasts the others. `choose` takes
a law from its errors on some sets, and the law is reported on a set that had no part in the choice. The settings of intervals
are found in the same way. Everything together takes about an hour of CPU.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.forecast import CHECKS, Row, errors
from benchmarks.forecast_data import FITTED_RUNS, OWN_SPLIT, SIZES, lr_scheduling, multi_power_law
from benchmarks.forecast_intervals import FIELDS, Cases, cases_of, likeliest
from nqm.logs import Forecast, Log
from nqm.logs.allowance import ErrorSettings
from nqm.logs.assuming import metric_of
from nqm.logs.fitting import SETTINGS_OF_FIT, ForecastSettings, fit_law, reading
from nqm.show.tables import to_csv
from nqm.types import Array

OPTIONS: dict[str, tuple[Any, ...]] = {
    # The weight norm: at its steady state, or a state with this squared start, or with a start that the logs may move.
    "norm": ("steady", 0.0003, 0.0005, 0.0007, 0.001, 0.002, 0.004, "free"),
    # Saturation of noise: none, or the mean of its prior, times the least loss.
    "k": ("none", 1.6, 3.3, 6.6),
    # Exponent with which the noise of a step is forgotten, and the mean of the prior of the noise speed, or none. The two go
    # together: free fits have speeds of 3 to 15 with the exponent 1, of 0.1 to 0.9 with 1.2, and of 0.02 to 0.06 with 1.5.
    "noise": (
        (1.0, "none"),
        (1.0, 2.0),
        (1.0, 5.5),
        (1.0, 15.0),
        (0.8, "none"),
        (0.8, 15.0),
        (1.1, "none"),
        (1.1, 0.6),
        (1.1, 2.0),
        (1.2, "none"),
        (1.2, 0.2),
        (1.2, 0.6),
        (1.5, "none"),
        (1.5, 0.06),
        (1.5, 0.2),
    ),
    # Factor on the widths of the priors of k, speed and alpha.
    "width": (1.0, 0.5, 2.0),
    # The part of a run in which points count less.
    "beginning": (0.1, 0.05, 0.2),
    # Independent points of a log.
    "effective_points": (10.0, 5.0, 20.0),
}
"""The entries of a law and their options. The first option of each is the simplest form, from which the choice begins."""

Law = tuple[Any, ...]
"""One option for each entry of OPTIONS, in their order."""

SIMPLEST: Law = tuple(options[0] for options in OPTIONS.values())

SCATTER = 0.0005  # Two runs of one schedule differ by about this share of the loss: the unit of errors.
LEAST_GAIN = 0.01  # An option replaces another if it lowers the criterion by this much.
MOST_ROUNDS = 2  # rounds over all entries
MEASURED_POINTS = 30  # points of a run that are compared, and its last one
FREE_START = (0.001, 1.0)  # prior of the norm's squared start if the logs may move it
PRIOR_WIDTH = 0.4  # standard deviation of the logarithms of k and of the noise speed
NO_PRIOR = 5.0  # the same if there is no prior of the noise speed
FEW_STARTS = ((0.003, 1.0), (0.1, 1.0))  # Laws are compared with two starts of the fit, and reported with all of them.

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
    wide = entry["width"]
    norm, (exponent, speed) = entry["norm"], entry["noise"]
    return replace(
        SETTINGS_OF_FIT,
        exponent=exponent,
        beginning=entry["beginning"],
        effective_points=entry["effective_points"],
        alpha=(0.6, 0.5 * wide),
        k=(1e-9, 0.01) if entry["k"] == "none" else (entry["k"], PRIOR_WIDTH * wide),
        speed=(5.5, NO_PRIOR) if speed == "none" else (speed, PRIOR_WIDTH * wide),
        r0=FREE_START if norm == "free" else SETTINGS_OF_FIT.r0 if norm == "steady" else (norm, 0.12),
    )


def fitted_by(law: Law, logs: Sequence[Log], all_starts: bool = True) -> Forecast:
    """The forecast of a law from some logs."""
    settings = settings_of(law)
    if not all_starts:
        settings = replace(settings, starts=FEW_STARTS)
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


def measure(name: str, law: Law, all_starts: bool = False) -> Measured:
    """Fit a law to the runs of a set that are fitted, and forecast the others."""
    groups, figures = (_split if name in SIZES else _peaks)(name, law, all_starts)
    error = float(np.mean([np.mean(group) for group in groups])) / SCATTER
    excess = 0.0
    for figure, bar in BARS[name].items():
        share = (1 - figures[figure]) / (1 - bar) if figure in TOWARDS_ONE else figures[figure] / bar
        excess += max(share - 1, 0.0)
    return Measured(error, figures, excess)


def _split(size: str, law: Law, all_starts: bool) -> tuple[list[list[float]], dict[str, float]]:
    """Errors and figures of the Multi-Power Law's own split: three runs are fitted, six are forecast."""
    logs = multi_power_law_logs(size)
    found = fitted_by(law, [logs[n] for n in OWN_SPLIT], all_starts)
    others = {n: log for n, log in logs.items() if n not in OWN_SPLIT}
    losses = {n: found.predict(log.rates, log.step).loss for n, log in others.items()}
    each = {n: errors(losses[n], log) for n, log in others.items()}
    figures = {
        "mean_r2": float(np.mean([row["r2"] for row in each.values()])),
        "largest_relative_error": max(row["largest_relative_error"] for row in each.values()),
        "wsd_final_error": max(abs(each[n]["final_error"]) for n in ("wsd_20000_24000", "wsdld_20000_24000")),
    }
    return [[run_error(losses[n], log, np.arange(log.step.size)) for n, log in others.items()]], figures


def _peaks(_: str, law: Law, all_starts: bool) -> tuple[list[list[float]], dict[str, float]]:
    """Errors by peak rate, and figures of the last losses, of lr_scheduling: ten runs are fitted, the others are forecast."""
    runs = lr_scheduling_runs()
    found = fitted_by(law, [runs[run].log for run in FITTED_RUNS], all_starts)
    others = [one for run, one in runs.items() if run not in FITTED_RUNS and one.last < 5]
    at = [_few_points(one.log) for one in others]
    losses = [found.predict(one.log.rates, one.log.step[few]).loss for one, few in zip(others, at, strict=True)]
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


multi_power_law_logs = cache(multi_power_law)
lr_scheduling_runs = cache(lr_scheduling)

TRIED: dict[tuple[str, Law], Measured] = {}
"""Every law that was measured, by set and law."""


def tried(name: str, law: Law) -> Measured:
    """A law on a set, measured once."""
    if (name, law) not in TRIED:
        TRIED[name, law] = measure(name, law)
    return TRIED[name, law]


def criterion(names: Sequence[str], law: Law) -> float:
    """The mean over some sets of the logarithm of the error and of the excess over the bars."""
    found = [tried(name, law) for name in names]
    return float(np.mean([math.log(each.error) + each.excess for each in found]))


def choose(names: Sequence[str]) -> Law:
    """The law that some sets choose: one entry after the other takes its best option, in rounds until none changes."""
    law, least = SIMPLEST, criterion(names, SIMPLEST)
    for _ in range(MOST_ROUNDS):
        before = law
        for i, options in enumerate(OPTIONS.values()):
            values = {option: criterion(names, (*law[:i], option, *law[i + 1 :])) for option in options}
            option = min(values, key=lambda one: values[one])
            if values[option] < least - LEAST_GAIN:
                law, least = (*law[:i], option, *law[i + 1 :]), values[option]
        print(f"{' + '.join(names)}: {law}, criterion {least:.3f}", file=sys.stderr, flush=True)
        if law == before:
            break
    return law


CHOICES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("100M", "124M"), ("25M",)), (("25M", "124M"), ("100M",)), (("25M", "100M"), ("124M",)), (SETS, SETS),
)  # fmt: skip
"""Sets that choose a law, and sets on which it is reported. The last is what nqm has: no set is left to test it."""


@cache
def cases_by(law: Law, name: str) -> Cases:
    """The runs of a set beside their forecasts by a law."""
    return cases_of(name, lambda logs: fitted_by(law, logs, all_starts=False))


def coverage(law: Law, name: str, settings: ErrorSettings) -> Row:
    """Shares of points within 90% intervals: on the published split, over all splits, and of long runs from short ones."""
    kinds = cases_by(law, name).kinds
    splits = [case.held(settings) for case in kinds["split"]]
    long = [run.held(settings) for case in kinds["long"] for run in case.runs]
    return {
        "held_published": splits[0], "held_mean": float(np.mean(splits)), "held_least": min(splits), "held_most": max(splits),
        "held_long": min(long) if long else math.nan,
    }  # fmt: skip


def reported(law: Law, chosen_on: Sequence[str], on: str, settings: ErrorSettings) -> Row:
    """One row of the report."""
    entries = {name: str(option) for name, option in zip(OPTIONS, law, strict=True)}
    slopes = {name: getattr(settings, name) for name in FIELDS}
    return {
        "set": on,
        "chosen_on": " + ".join(chosen_on),
        **entries,
        **measure(on, law, all_starts=True).figures,
        **coverage(law, on, settings),
        **slopes,
    }


def report() -> list[Row]:
    """Each law that was chosen, on the sets that it is reported on, and the bars."""
    rows = []
    for names, others in CHOICES:
        law = choose(names)
        settings = likeliest([cases_by(law, name) for name in names])
        rows += [reported(law, names, other, settings) for other in others]
    rows += [{"set": name, "chosen_on": "bar", **bars} for name, bars in BARS.items()]
    return _even(rows)


def _even(rows: list[Row]) -> list[Row]:
    """Rows that all have the same columns."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name, math.nan) for name in header} for row in rows]


def main() -> None:
    rows = report()
    to_csv(rows, CHECKS / "forecast_choice.csv")
    every = [
        {"set": name, **{entry: str(option) for entry, option in zip(OPTIONS, law, strict=True)}, "error": found.error,
         "excess": found.excess, **found.figures}
        for (name, law), found in TRIED.items()
    ]  # fmt: skip
    to_csv(_even(every), CHECKS / "forecast_choice_tried.csv")
    print(f"wrote {CHECKS / 'forecast_choice.csv'} and {CHECKS / 'forecast_choice_tried.csv'}")


if __name__ == "__main__":
    main()
