"""How far from their logs forecasts go: ``python -m benchmarks.forecast_reach`` writes docs/checks/forecast_reach.csv.

Runs of other peak rates, lengths and batch sizes are forecast from logs of one of them, beyond the reach of the logs, too. A row has
the share of points after the beginning, and of last losses, that 90% intervals held, by how many times the logged quantity the run
has.

It takes about a minute. Other batch sizes need the curves of MLPerf in the folder that NQM_CURVES names (``mlperf/curves.csv.gz``,
from the results of MLPerf Training 5.1), and are omitted without it.
"""

from __future__ import annotations

import csv
import gzip
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.forecast import CHECKS, Row
from benchmarks.forecast_data import SIZES, lr_scheduling, multi_power_law
from nqm.logs import Forecast, Log, forecast
from nqm.show.tables import to_csv

TRIPLES = {
    1e-4: (121, 169, 40),
    5e-4: (123, 170, 46),
    1e-3: (127, 171, 52),
    2e-3: (131, 172, 58),
    3e-3: (168, 173, 153),
}
"""A cosine, a constant rate and a cooldown over a fifth at each peak rate of lr_scheduling."""

CONSTANT = (170, 171, 172)  # constant rates of 50,000 steps at three peaks of lr_scheduling
SHORT = {5e-4: (27, 43, 63, 91), 1e-3: (31, 49, 67, 95), 2e-3: (35, 55, 71, 99)}  # runs of 15,000 steps
BEGINNINGS = (1000, 2000, 3000, 5000, 8000, 15_000, 25_000, 35_000)  # steps of a constant run that are fitted
SEEDS = 6  # runs of each setting of MLPerf that are forecast; two of them are fitted
BEGINNING = 0.1  # part of a run that is not compared

Found = tuple[str, str, float, float, bool, float]
"""The quantity, the set, the ratio, the share of points held, whether the last one is, and the relative error of the last."""


def beside(what: str, name: str, ratio: float, found: Forecast, log: Log) -> Found:
    """A run beside its forecast."""
    outlook = found.predict(log, extrapolate=True)
    after = log.step > BEGINNING * log.step[-1]
    inside = (outlook.low <= log.loss) & (log.loss <= outlook.high)
    last = float(np.log(outlook.loss[-1] / log.loss[-1]))
    return what, name, ratio, float(inside[after].mean()), bool(inside[-1]), last


def peaks() -> Iterator[Found]:
    """Runs of other peak rates, from three at one peak."""
    runs = lr_scheduling()
    for peak, chosen in TRIPLES.items():
        found = forecast([runs[run].log for run in chosen])
        for number, run in runs.items():
            if number not in chosen:
                yield beside("peak rate", "124M", run.peak / peak, found, run.log)


def lengths() -> Iterator[Found]:
    """Constant runs from their beginnings, and longer runs from short ones."""
    runs = lr_scheduling()
    whole = [("124M", [runs[run].log for run in CONSTANT])]
    whole += [(size, [multi_power_law(size)["constant_72000"]]) for size in SIZES]
    for name, logs in whole:
        for log in logs:
            for steps in BEGINNINGS:
                if log.rates[:steps].max() > 0 and (log.step <= steps).sum() >= 12:
                    yield beside(
                        "length", f"{name}, its beginning", log.step[-1] / steps, forecast(begun(log, steps)), log
                    )
    for peak, chosen in SHORT.items():
        found = forecast([runs[run].log for run in chosen])
        for number, run in runs.items():
            if run.peak == peak and number not in chosen:
                yield beside("length", "124M, four shorter runs", run.steps / 15_000, found, run.log)


def begun(log: Log, steps: int) -> Log:
    """The first steps of a log."""
    known = log.step <= steps
    return replace(log, step=log.step[known], loss=log.loss[known], lr=log.rates[:steps], remarks=())


def sizes(folder: Path) -> Iterator[Found]:
    """Runs of MLPerf at other batch sizes, from those at one."""
    for name, logs in mlperf(folder).items():
        for size in sorted(logs):
            fitted = [log for runs in logs[size] for log in runs[:2]]
            found = forecast(fitted)
            for other, settings in logs.items():
                for log in (log for runs in settings for log in runs if log not in fitted):
                    yield beside("batch size", name, other / size, found, log)


def mlperf(folder: Path) -> dict[str, dict[float, list[list[Log]]]]:
    """Some runs of each setting, by benchmark and batch size."""
    points: dict[tuple[str, ...], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    columns = ("benchmark", "batch_size", "lr", "warmup_steps", "decay_samples", "end_lr")
    with gzip.open(folder / "curves.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            points[tuple(row[c] for c in columns)][row["run"]][int(row["samples"])] = float(row["val_loss"])
    found: dict[str, dict[float, list[list[Log]]]] = defaultdict(lambda: defaultdict(list))
    for (name, size, lr, *others), runs in points.items():
        settings = [float(value or 0) for value in others]
        made = [_logged(curve, float(size), float(lr), *settings) for curve in list(runs.values())[:SEEDS]]
        found[name][float(size)].append(made)
    return found


def _logged(curve: dict[int, float], size: float, lr: float, warmup: float, decay: float, end: float) -> Log:
    """A curve of losses over samples as a log: a linear warm-up, then a cosine over the samples of the decay."""
    at = {max(1, round(samples / size)): loss for samples, loss in sorted(curve.items())}
    t = np.arange(1, max(at) + 2)  # one more than the steps, so that these are not the rates of the logged steps
    u = np.clip((t - warmup) / max(decay / size, 1), 0, 1)
    after = end + (lr - end) * (1 + np.cos(np.pi * u)) / 2 if decay else np.full(len(t), lr)
    rates = np.where(t <= warmup, lr * t / max(warmup, 1), after)
    return Log(list(at), list(at.values()), rates, size, "AdamW", 0.1)


def tabled(found: Sequence[Found]) -> list[Row]:
    """One row for each quantity, set and ratio."""
    groups: dict[tuple[str, str, float], list[Found]] = defaultdict(list)
    for each in found:
        groups[each[0], each[1], float(f"{each[2]:.2g}")].append(each)
    return [
        {
            "what": what, "set": name, "ratio": ratio, "runs": len(rows), "held": float(np.mean([row[3] for row in rows])),
            "last_held": float(np.mean([row[4] for row in rows])),
            "error": float(np.sqrt(np.mean([row[5] ** 2 for row in rows]))),
        }
        for (what, name, ratio), rows in sorted(groups.items())
    ]  # fmt: skip


def main() -> None:
    found = [*peaks(), *lengths()]
    folder = Path(os.environ.get("NQM_CURVES", "")) / "mlperf"
    if os.environ.get("NQM_CURVES") and (folder / "curves.csv.gz").is_file():
        found += sizes(folder)
    else:
        print("without NQM_CURVES, other batch sizes are omitted", file=sys.stderr)
    to_csv(tabled(found), CHECKS / "forecast_reach.csv")
    print(f"wrote {CHECKS / 'forecast_reach.csv'}")


if __name__ == "__main__":
    main()
