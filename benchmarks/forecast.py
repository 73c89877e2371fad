"""What forecasts were held against: ``python -m benchmarks.forecast [NAME ...]`` writes docs/checks/forecast_NAME.csv.

Everything but the seconds is the same in every run. All parts together take about 15 minutes of CPU.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import multi_power_law as mpl
from benchmarks.forecast_cases import SCHEDULES, Truth, made_logs
from benchmarks.forecast_data import FITTED_RUNS, OWN_SPLIT, SIZES, Described, lr_scheduling, multi_power_law
from nqm.logs import Forecast, Log, forecast, join
from nqm.show.tables import to_csv
from nqm.types import Array

CHECKS = Path(__file__).parents[1] / "docs" / "checks"
MADE_CASES = 200
BEGINNING = 0.6  # the share of a run that is known when its end is forecast

Row = dict[str, Any]

PUBLISHED = {
    "25M": (3.040, 0.525, 0.508, 363.788, 2.066, 0.583, 0.641),
    "100M": (2.651, 0.601, 0.453, 437.946, 2.132, 0.598, 0.655),
}
"""The parameters of the Multi-Power Law as its authors publish them: L0, A, alpha, B, C, beta and gamma."""

MORE_SPLITS = (
    ("cosine_72000", "constant_24000", "wsdcon_3"),
    ("constant_24000", "wsd_20000_24000", "wsdcon_18"),
    ("cosine_24000", "wsdld_20000_24000", "wsdcon_9"),
)
"""Three more sets of three runs of the Multi-Power Law."""

RUN_SPLITS = (FITTED_RUNS, (123, 170, 46), (127, 171, 52), (131, 172, 58))
"""Sets of runs of lr_scheduling: the ten, and cosine, constant and a cooldown over a fifth at each of three peaks."""

PAIRS = (("cosine_24000", "wsdcon_9"), ("constant_24000", "wsdcon_3"), ("cosine_24000", "wsd_20000_24000"))
"""Finished runs of the Multi-Power Law beside the beginning of another run."""


def errors(loss: Array, log: Log) -> Row:
    """R2, the mean absolute and the largest relative error of forecast losses, and the error of the last."""
    e = loss - log.loss
    return {
        "r2": 1 - float(np.sum(e**2) / np.sum((log.loss - log.loss.mean()) ** 2)),
        "mean_absolute_error": float(np.abs(e).mean()),
        "largest_relative_error": float(np.abs(e / log.loss).max()),
        "final_error": float(e[-1]),
    }


def held(found: Forecast, logs: Sequence[Log]) -> tuple[int, int]:
    """How many points of some logs lie in their 90% intervals, also beyond the reach of the fitted logs, and how many there are."""
    outlooks = [found.predict(log, extrapolate=True) for log in logs]
    inside = [(o.low <= log.loss) & (log.loss <= o.high) for log, o in zip(logs, outlooks, strict=True)]
    return sum(int(each.sum()) for each in inside), sum(each.size for each in inside)


def split() -> Iterator[Row]:
    """The Multi-Power Law's own split, by this law and by that one, with parameters fitted here and as published."""
    for size in SIZES:
        logs = multi_power_law(size)
        fitted, others = [logs[n] for n in OWN_SPLIT], {n: log for n, log in logs.items() if n not in OWN_SPLIT}
        found, theta = forecast(fitted), mpl.fit(fitted)
        laws: dict[str, Callable[[Log], Array]] = {
            "nqm": lambda log, found=found: found.predict(log).loss,
            "Multi-Power Law, fitted here": lambda log, theta=theta: mpl.predicted(theta, log),
            "Multi-Power Law, published parameters": lambda log, s=size: mpl.predicted(np.array(PUBLISHED[s]), log),
        }
        for name, law in laws.items():
            each = {run: errors(law(log), log) for run, log in others.items()}
            inside, points = held(found, list(others.values())) if name == "nqm" else (math.nan, math.nan)
            yield {
                "size": size,
                "law": name,
                "mean_r2": float(np.mean([row["r2"] for row in each.values()])),
                "largest_relative_error": max(row["largest_relative_error"] for row in each.values()),
                "mean_absolute_error": float(np.mean([row["mean_absolute_error"] for row in each.values()])),
                "wsd_final_error": each["wsd_20000_24000"]["final_error"],
                "wsdld_final_error": each["wsdld_20000_24000"]["final_error"],
                "held": inside,
                "points": points,
            }


def left_out() -> Iterator[Row]:
    """Each of the nine schedules of the Multi-Power Law, forecast from the other eight."""
    for size in SIZES:
        logs = multi_power_law(size)
        for name, log in logs.items():
            found = forecast([other for other in logs.values() if other is not log])
            inside, points = held(found, [log])
            yield {"size": size, "run": name, **errors(found.predict(log).loss, log), "held": inside, "points": points}


def peaks() -> Iterator[Row]:
    """The last losses of lr_scheduling: the fitted runs, and all others, whose losses the fit did not see."""
    runs = lr_scheduling()
    found = forecast([runs[run].log for run in FITTED_RUNS])
    for run, one in runs.items():
        outlook = found.predict(one.log, steps=[int(one.log.step[-1])])
        yield {
            "run": run,
            "peak": one.peak,
            "steps": one.steps,
            "scheduler": one.scheduler,
            "cooldown": one.cooldown,
            "shape": one.shape if one.scheduler == "wsd" else "",
            "end": float(one.log.rates[-1] / one.peak),
            "fitted": int(run in FITTED_RUNS),
            "last_loss": one.last,
            "final_val_loss": one.final,
            "predicted": float(outlook.loss[0]),
            "low": float(outlook.low[0]),
            "high": float(outlook.high[0]),
        }


def begun(log: Log) -> Log:
    """The first part of a log."""
    kept = log.step <= BEGINNING * log.step[-1]
    return replace(log, step=log.step[kept], loss=log.loss[kept], lr=log.rates, name=f"beginning of {log.name}")


def unfinished() -> Iterator[tuple[str, Log, list[Log]]]:
    """Runs of which the first part is known, each with two finished runs of the same model and optimizer.

    For lr_scheduling these are the cosine and the linear cooldown over a fifth that last 25,000 steps and have the same
    peak. Of runs with one description, the first alone is taken.
    """
    for size in SIZES:
        logs = multi_power_law(size)
        for name, log in logs.items():
            for pair in PAIRS:
                if name not in pair:
                    yield size, log, [logs[n] for n in pair]
    runs, seen = lr_scheduling(), set()
    for one in runs.values():
        shape = one.shape if one.cooldown else ""
        kind = (one.peak, one.steps, one.scheduler, one.cooldown, shape, round(one.log.rates[-1] / one.peak, 3))
        finished_runs = [r for r in runs.values() if r.peak == one.peak and r.steps == 25_000 and finished(r)]
        beside = {r.scheduler: whole(r, runs) for r in reversed(finished_runs)}
        if one.steps > 25_000 and len(beside) == 2 and kind not in seen:
            seen.add(kind)
            yield "124M", whole(one, runs), list(beside.values())


def finished(one: Described) -> bool:
    """Whether a run is the cosine to a tenth, or the linear cooldown over the last fifth."""
    to_tenth = one.scheduler == "cos" and round(float(one.log.rates[-1]) / one.peak, 3) == 0.1
    return to_tenth or (one.scheduler == "wsd" and one.cooldown == 0.2 and one.shape == "linear")


def whole(one: Described, runs: dict[int, Described]) -> Log:
    """The log of a run with its beginning, which cooldowns have in common with the constant run of their peak."""
    first = int(one.log.step[0])
    if first == 0:
        return one.log
    trunks = [r.log for r in runs.values() if r.peak == one.peak and r.scheduler == "wsd" and r.cooldown == 0]
    apart = [abs(float(np.interp(first, log.step, log.loss)) - one.log.loss[0]) for log in trunks]
    return join(one.log, trunks[int(np.argmin(apart))])


def beginnings() -> Iterator[Row]:
    """The last loss of a run from its first 60% and two finished runs."""
    for source, log, beside in unfinished():
        found = forecast([begun(log), *beside])
        outlook = found.predict(log, steps=[int(log.step[-1])])
        yield {
            "set": source,
            "run": log.name,
            "peak": float(log.rates.max()),
            "beside": " + ".join(other.name for other in beside),
            "last_loss": float(log.loss[-1]),
            "predicted": float(outlook.loss[0]),
        }


def coverage() -> Iterator[Row]:
    """How many points of all other runs lie in the 90% intervals, for a dozen sets of fitted runs."""
    for size in SIZES:
        logs = multi_power_law(size)
        for names in (OWN_SPLIT, *MORE_SPLITS):
            inside, points = held(
                forecast([logs[n] for n in names]), [log for n, log in logs.items() if n not in names]
            )
            yield {"set": size, "fitted": " + ".join(names), "held": inside, "points": points}
    runs = {run: one for run, one in lr_scheduling().items() if 5e-4 <= one.peak <= 2e-3}
    for chosen in RUN_SPLITS:
        others = [after_beginning(one.log) for run, one in runs.items() if run not in chosen]
        inside, points = held(forecast([runs[run].log for run in chosen]), others)
        yield {"set": "124M", "fitted": " + ".join(map(str, chosen)), "held": inside, "points": points}


def after_beginning(log: Log) -> Log:
    """A log without its first tenth: the warm-up and the first transient, which the law does not describe."""
    kept = log.step >= 0.1 * log.step[-1]
    return replace(log, step=log.step[kept], loss=log.loss[kept], lr=np.append(log.rates, 0.0))


def made_split(seed: int) -> tuple[Truth, list[Log], Log]:
    """Known parameters, three logs of four that have them, and the fourth."""
    rng = np.random.default_rng(seed)
    truth = Truth.random(rng)
    logs = made_logs(truth, rng)
    left = logs.pop(list(SCHEDULES)[rng.integers(len(SCHEDULES))])
    return truth, list(logs.values()), left


def made_case(seed: int) -> list[Row]:
    """A fit to three of four logs with known parameters, and the fourth one's forecast."""
    truth, logs, left = made_split(seed)
    found = forecast(logs)
    outlook = found.predict(left)
    rows = []
    for row in found.table():
        value = getattr(truth, row["parameter"])
        inside = int(row["low"] <= value <= row["high"])
        rows.append({"what": row["parameter"], "decided": int(row["decided"]), "held": inside, "cases": 1})
    ends = int(outlook.low[-1] <= left.loss[-1] <= outlook.high[-1])
    points = int(np.sum((outlook.low <= left.loss) & (left.loss <= outlook.high)))
    rows.append({"what": "last loss of a fourth run", "decided": 1, "held": ends, "cases": 1})
    rows.append({"what": "points of a fourth run", "decided": left.step.size, "held": points, "cases": left.step.size})
    return rows


def made(cases: Sequence[int] = range(MADE_CASES)) -> Iterator[Row]:
    """How often 90% intervals of decided parameters hold the truth of logs made by the exact engine."""
    found = [row for seed in cases for row in made_case(seed)]
    for what in dict.fromkeys(row["what"] for row in found):
        rows = [row for row in found if row["what"] == what]
        decided = sum(row["decided"] for row in rows)
        inside = sum(row["held"] for row in rows if row["decided"])
        yield {"what": what, "cases": sum(row["cases"] for row in rows), "decided": decided, "held": inside}


def plain_end(found: Forecast, rates: Array) -> float:
    """The loss after all steps, one after the other in plain Python."""
    law, wd = found.law, found.metric.weight_decay
    square, S, ends = law["r0"], 0.0, []
    for lr in rates.tolist():
        eta = lr / math.sqrt(square)
        square = square * (1 - lr * wd) ** 2 + lr * lr
        S += eta
        ends.append((S, eta))
    C, z = law["C"], 0.0
    for end, eta in ends:
        z += eta * (math.log1p(2 * C * (S - end + eta)) - math.log1p(2 * C * (S - end))) / (2 * C)
    z *= law["N"]
    return law["floor"] + law["A"] * (1 + S / law["s0"]) ** -law["alpha"] + z / (1 + law["k"] * z)


def seconds() -> Iterator[Row]:
    """CPU seconds of a fit and of a forecast, beside those of plain Python loops over single steps."""
    logs = multi_power_law("25M")
    fitted = [logs[n] for n in OWN_SPLIT]
    at = np.linspace(2160, 24_000, 200).astype(int)
    dense = [
        replace(
            log, step=at[at <= log.step[-1]], loss=np.interp(at[at <= log.step[-1]], log.step, log.loss), lr=log.rates
        )
        for log in fitted
    ]
    found = forecast(dense)
    whole_fit = min(_cpu(lambda: forecast(dense)) for _ in range(3))
    rates = 3e-4 * (0.55 + 0.45 * np.cos(np.pi * np.arange(100_000) / 100_000))
    ours = min(_cpu(lambda: found.predict(rates)) for _ in range(5))
    loop = min(_cpu(lambda: plain_end(found, rates)) for _ in range(2))
    # A loop that reports 200 evenly spaced steps goes over half of the steps for each, on average.
    yield {"what": "a fit of three logs of 200 points", "seconds": whole_fit, "plain_seconds": math.nan}
    yield {"what": "a forecast over 100,000 steps, 200 of them reported", "seconds": ours, "plain_seconds": 100 * loop}
    last = min(_cpu(lambda: found.predict(rates, steps=[100_000])) for _ in range(5))
    yield {"what": "a forecast over 100,000 steps, the last one reported", "seconds": last, "plain_seconds": loop}


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "split": split, "left_out": left_out, "peaks": peaks, "beginnings": beginnings, "coverage": coverage, "made": made,
    "seconds": seconds,
}  # fmt: skip


def main(names: Sequence[str]) -> None:
    if unknown := set(names) - set(PARTS):
        sys.exit(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in names or PARTS:
        to_csv(list(PARTS[name]()), CHECKS / f"forecast_{name}.csv")
        print(f"wrote {CHECKS / f'forecast_{name}.csv'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
