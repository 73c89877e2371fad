"""How the law of forecasts is chosen: ``python -m benchmarks.forecast_choice`` writes docs/checks/forecast_choice.csv and _tried.csv.

A law is one option for each entry of `OPTIONS`. Its error on a set of runs is measured by `error_on`: some runs are fitted, the
others are forecast. A law is chosen by `choose` from its errors on some sets, and reported on a set that had no part in the
choice. The list, the error and the rule were fixed before the first law was measured.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from benchmarks.forecast import MORE_SPLITS, RUN_SPLITS
from benchmarks.forecast_data import OWN_SPLIT, SIZES, lr_scheduling, multi_power_law
from nqm.logs import Forecast, Log
from nqm.logs.assuming import metric_of
from nqm.logs.fitting import SETTINGS_OF_FIT, ForecastSettings, fit_law, reading

OPTIONS: dict[str, tuple[Any, ...]] = {
    # The weight norm: at its steady state, or a state with this squared start, or with a start that the logs may move.
    "norm": ("steady", 0.0005, 0.0007, 0.001, 0.002, 0.004, "free"),
    # Saturation of noise: none, or the mean of its prior.
    "k": ("none", 0.5, 1.1, 2.2),
    # Exponent with which the noise of a step is forgotten.
    "exponent": (1.0, 0.8, 1.2, 1.5),
    # Prior of the noise speed: none, or its mean.
    "speed": ("none", 2.0, 5.5, 15.0),
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
SHIPPED: Law = (0.0007, 1.1, 1.0, 5.5, 1.0, 0.1, 10.0)

SCATTER = 0.0005  # Two runs of one schedule differ by about this share of the loss: the unit of errors.
LEAST_GAIN = 0.01  # An option replaces another if it lowers the error by this share.
MOST_ROUNDS = 3  # rounds over all entries
MEASURED_POINTS = 30  # points of a run that are compared, and its last one
FREE_START = (0.001, 1.0)  # prior of the norm's squared start if the logs may move it
PRIOR_WIDTH = 0.4  # standard deviation of the logarithms of k and of the noise speed
NO_PRIOR = 5.0  # the same if there is no prior of the noise speed
FEW_STARTS = ((0.003, 1.0), (0.1, 1.0))  # Laws are compared with two starts of the fit, and reported with all of them.

SETS = (*SIZES, "124M")


@dataclass(frozen=True)
class Split:
    """Runs that are fitted, and groups of runs that are forecast; each group counts alike."""

    fitted: tuple[Log, ...]
    others: tuple[tuple[Log, ...], ...]


@cache
def splits_of(name: str) -> tuple[Split, ...]:
    """The splits of a set: four of three fitted runs of nine, or ten runs and three times three runs of lr_scheduling."""
    if name in SIZES:
        logs = multi_power_law(name)
        return tuple(
            Split(tuple(logs[n] for n in names), (tuple(log for n, log in logs.items() if n not in names),))
            for names in (OWN_SPLIT, *MORE_SPLITS)
        )
    runs = {run: one for run, one in lr_scheduling().items() if one.last < 5}
    found = []
    for chosen in RUN_SPLITS:
        # Three runs at one peak say nothing of peaks far away, so that these are left to the split of ten runs.
        all_peaks = len(chosen) > 3
        peaks = sorted({one.peak for one in runs.values() if all_peaks or 5e-4 <= one.peak <= 2e-3})
        groups = [tuple(one.log for r, one in runs.items() if one.peak == p and r not in chosen) for p in peaks]
        found.append(Split(tuple(runs[run].log for run in chosen), tuple(group for group in groups if group)))
    return tuple(found)


def settings_of(law: Law) -> ForecastSettings:
    """The settings of a fit with this law."""
    entry = dict(zip(OPTIONS, law, strict=True))
    wide = entry["width"]
    norm = entry["norm"]
    return replace(
        SETTINGS_OF_FIT,
        exponent=entry["exponent"],
        beginning=entry["beginning"],
        effective_points=entry["effective_points"],
        alpha=(0.6, 0.5 * wide),
        k=(1e-9, 0.01) if entry["k"] == "none" else (entry["k"], PRIOR_WIDTH * wide),
        speed=(5.5, NO_PRIOR) if entry["speed"] == "none" else (entry["speed"], PRIOR_WIDTH * wide),
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


def run_error(found: Forecast, log: Log) -> float:
    """The relative error of a forecast: half the mean over points after the first tenth, half that of the last point."""
    after = np.flatnonzero((log.step > 0) & (log.step >= 0.1 * log.step[-1]))
    few = after[np.unique(np.linspace(0, after.size - 1, MEASURED_POINTS).astype(int))]
    outlook = found.predict(log.rates, log.step[few])
    error = np.abs(np.log(outlook.loss / log.loss[few]))
    return float(error.mean() + error[-1]) / 2


@cache
def error_on(name: str, law: Law) -> float:
    """The mean error of forecasts on a set, over its splits, in units of the scatter of runs."""
    means = []
    for split in splits_of(name):
        found = fitted_by(law, split.fitted, all_starts=False)
        means.append(np.mean([np.mean([run_error(found, log) for log in group]) for group in split.others]))
    return float(np.mean(means)) / SCATTER


def criterion(names: Sequence[str], law: Law) -> float:
    """The geometric mean of the errors on some sets."""
    return math.exp(np.mean([math.log(error_on(name, law)) for name in names]))


def choose(names: Sequence[str]) -> Law:
    """The law that some sets choose: one entry after the other takes its best option, in rounds until none changes."""
    law, least = SIMPLEST, criterion(names, SIMPLEST)
    for _ in range(MOST_ROUNDS):
        before = law
        for i, options in enumerate(OPTIONS.values()):
            tried = {option: criterion(names, (*law[:i], option, *law[i + 1 :])) for option in options}
            option = min(tried, key=lambda one: tried[one])
            if tried[option] < (1 - LEAST_GAIN) * least:
                law, least = (*law[:i], option, *law[i + 1 :]), tried[option]
        print(f"{' + '.join(names)}: {law}, error {least:.2f}", file=sys.stderr, flush=True)
        if law == before:
            break
    return law
