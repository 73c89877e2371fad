"""The tables of docs/forecast.md from files of docs/checks, which ``python -m benchmarks.forecast`` and its siblings wrote."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from nqm.show.numbers import percent
from nqm.show.tables import markdown

CHECKS = Path(__file__).with_name("checks")
SCATTER = (
    0.0005  # the unit of errors in forecast_widths.csv: two runs of one schedule differ by about this share of the loss
)


def forecast_rows(name: str) -> list[dict[str, str]]:
    """What ``python -m benchmarks.forecast`` wrote."""
    with (CHECKS / f"forecast_{name}.csv").open() as file:
        return list(csv.DictReader(file))


def forecast_tables() -> str:
    """What forecasts were held against: published runs, and logs whose law is known."""
    split = [
        (
            row["size"], row["law"], f"{float(row['mean_r2']):.4f}", percent(float(row["largest_relative_error"])),
            f"{float(row['mean_absolute_error']):.4f}",
            f"{float(row['wsd_final_error']):+.4f}, {float(row['wsdld_final_error']):+.4f}", _held([row]),
        )
        for row in forecast_rows("split")
    ]  # fmt: skip
    left_out = [
        (row["run"], row["size"], f"{float(row['r2']):.4f}", percent(float(row["largest_relative_error"])),
         f"{float(row['final_error']):+.4f}", _held([row]))
        for row in sorted(forecast_rows("left_out"), key=lambda row: row["run"])
    ]  # fmt: skip
    coverage = [(row["set"], row["fitted"], _held([row])) for row in forecast_rows("coverage")]
    made = [
        (row["what"], f"{row['decided']} of {row['cases']}", _held([row], "decided")) for row in forecast_rows("made")
    ]
    seconds = [
        (
            row["what"],
            f"{float(row['seconds']):.2g}",
            f"{float(row['plain_seconds']):.2g}" if row["plain_seconds"] else "",
        )
        for row in forecast_rows("seconds")
    ]
    errors = [
        "mean R2",
        "largest relative error",
        "mean absolute error",
        "error of the last loss, WSD and its linear form",
    ]
    return "\n\n".join(
        [
            forecast_choice(),
            "Three runs are fitted, and six others are forecast:",
            markdown(["size", "law", *errors, "points in 90% intervals"], split),
            "Each run is forecast from the eight others of its size:",
            markdown(["run", "size", "R2", "largest relative error", "error of the last loss", "held"], left_out),
            forecast_peaks(),
            forecast_beginnings(),
            forecast_intervals(),
            forecast_reach(),
            "Points of all other runs that lie in 90% intervals, for a dozen sets of fitted runs:",
            markdown(["set", "fitted", "held"], coverage),
            "Logs made by the exact engine, on quadratics with known parameters: three of four runs are fitted. Parameters count "
            "where the fit calls them decided.",
            markdown(["interval of", "decided", "held"], made),
            "CPU seconds, beside those of a plain Python loop over single steps:",
            markdown(["work", "seconds", "plain loop"], seconds),
        ]
    )


def forecast_choice() -> str:
    """The derived law, and the laws that some sets choose, on the sets that had no part in the choice."""
    rows = forecast_rows("choice")
    small = [
        (row["set"], _chosen(row), _law(row), f"{float(row['mean_r2']):.5f}", percent(float(row["largest_relative_error"])),
         f"{float(row['wsd_final_error']):.4f}")
        for row in rows if row["mean_r2"]
    ]  # fmt: skip
    figures = [
        name for name in rows[0] if name.startswith("error_") or name in ("rank_correlation", "chosen_above_best")
    ]
    large = [
        (_chosen(row), _law(row), *(f"{float(row[name]):.4f}" for name in figures))
        for row in rows if row["rank_correlation"]
    ]  # fmt: skip
    errors = ["mean R2", "largest relative error", "final loss of WSD"]
    return "\n\n".join(
        [
            "The law of nqm, which is derived, and laws that sets of runs choose, on the published splits. Rows with `all three` "
            "have seen the runs that they are measured on.",
            markdown(["set", "chosen on", "law", *errors], small),
            "The same for 124M: mean absolute errors of the last losses by peak rate, the rank correlation over runs of 50,000 "
            "steps, and how far above the best measured run the run lies that the forecast would choose.",
            markdown(["chosen on", "law", *(name.replace("_", " ") for name in figures)], large),
            "The derived law with other widths of its priors: the mean relative error of forecasts, in the median of four splits and "
            "in brackets in the worst of them. The first width had no part in the choice.",
            markdown(["width", "25M", "100M"], _widths()),
        ]
    )


def _widths() -> list[tuple[str, ...]]:
    """A row for each width of the priors: the median and the largest error over the splits of each set."""
    rows, lines = forecast_rows("widths"), []
    for width in dict.fromkeys(row["width"] for row in rows):
        of = [
            [SCATTER * float(r["error"]) for r in rows if (r["width"], r["set"]) == (width, s)] for s in ("25M", "100M")
        ]
        lines.append((width, *(f"{100 * np.median(each):.3f}% ({100 * max(each):.3f}%)" for each in of)))
    return lines


def forecast_intervals() -> str:
    """How many points 90% intervals hold, with widths that other sets calibrate and with those of nqm."""
    names = ["published split", "other splits", "long runs", "other peaks"]
    rows = [
        (row["set"], _calibrated(row), f"{float(row['reach']):.2f}", _share(row["held_published"]), _splits(row),
         _share(row["held_long"]), _share(row["held_far"]))
        for row in forecast_rows("intervals")
    ]  # fmt: skip
    return "\n\n".join(
        [
            "Shares of points within 90% intervals. Widths are calibrated without the published splits; of the two long runs, the "
            "smaller share is given. `engine` are logs that the exact engine made.",
            markdown(["set", "calibrated on", "deviations", *names], rows),
        ]
    )


RATIOS = (0.0, 0.15, 0.3, 0.7, 0.95, 1.05, 1.7, 2.6, 4.7, 7.0, math.inf)
"""Bounds between which ratios of a run to its logs share a row."""


def forecast_reach() -> str:
    """Points and last losses that 90% intervals hold, by how many times its logs a run is."""
    groups: dict[tuple[str, str, int], list[dict[str, str]]] = {}
    for row in forecast_rows("reach"):
        at = max(i for i, bound in enumerate(RATIOS) if float(row["ratio"]) >= bound)
        groups.setdefault((row["what"], row["set"], at), []).append(row)
    rows = []
    for (what, name, _), found in sorted(groups.items()):
        runs = [int(row["runs"]) for row in found]
        ends = [min(float(row["ratio"]) for row in found), max(float(row["ratio"]) for row in found)]
        held, last = (
            100 * sum(n * float(row[column]) for n, row in zip(runs, found, strict=True)) / sum(runs)
            for column in ("held", "last_held")
        )
        times = f"{ends[0]:g}" if ends[0] == ends[1] else f"{ends[0]:g} to {ends[1]:g}"
        rows.append((what, name, times, str(sum(runs)), f"{held:.0f}%", f"{last:.0f}%"))
    return "\n\n".join(
        [
            "Runs that are so many times what their logs hold, of which all have one peak rate, length or batch size: shares of "
            "points, and of last losses, in 90% intervals. A run at the peak 5e-3, which did not train, is among those of five rows. "
            "Batch sizes are those of Llama 3.1 8B and Flux.1, from the results of MLPerf Training 5.1.",
            markdown(["quantity", "runs of", "times the logs", "runs", "points held", "last losses held"], rows),
        ]
    )


def _chosen(row: dict[str, str]) -> str:
    return "all three" if row["chosen_on"].count("+") == 2 else row["chosen_on"]


def _calibrated(row: dict[str, str]) -> str:
    return "all of these" if row["calibrated_on"].count("+") == 3 else row["calibrated_on"]


def _law(row: dict[str, str]) -> str:
    """A law in short: start of the norm, saturation, exponent and speed of the noise, and the width of the priors."""
    if not row["noise"]:
        return ""
    exponent, speed = row["noise"].strip("()").replace("'", "").split(", ")
    return ", ".join([f"r0 {row['norm']}", f"k {row['k']}", f"b {exponent}", f"speed {speed}", f"width {row['width']}"])


def _share(value: str) -> str:
    return f"{100 * float(value):.0f}%" if value else ""


def _splits(row: dict[str, str]) -> str:
    least, most = _share(row["held_least"]), _share(row["held_most"])
    return least if least == most else f"{least} to {most}"


def _held(rows: list[dict[str, str]], points: str = "points") -> str:
    known = [row for row in rows if row["held"]]
    return f"{100 * sum(float(r['held']) for r in known) / sum(float(r[points]) for r in known):.1f}%" if known else ""


def forecast_peaks() -> str:
    """Last losses of runs at other peak rates, on the curves' own validation set and on that of the authors' table."""
    rows = forecast_rows("peaks")
    gap = float(np.mean([float(r["final_val_loss"]) - float(r["last_loss"]) for r in rows if r["fitted"] == "1"]))
    lines = []
    for peak in sorted({float(r["peak"]) for r in rows if float(r["last_loss"]) < 5}):
        kept = [r for r in rows if float(r["peak"]) == peak and r["fitted"] == "0"]
        errors = np.array([float(r["predicted"]) - float(r["last_loss"]) for r in kept])
        others = np.array([float(r["predicted"]) + gap - float(r["final_val_loss"]) for r in kept])
        means = (f"{np.abs(errors).mean():.4f}", f"{errors.mean():+.4f}", f"{np.abs(errors).max():.4f}")
        lines.append((f"{peak:g}", str(len(kept)), *means, f"{np.abs(others).mean():.4f}"))
    head = (
        "Ten runs of the model of 124 million weights at the peaks 5e-4 and 2e-3 are fitted, and the last validation losses of the "
        "others are forecast (one run diverges and is omitted). The authors' column `final_val_loss` is on another validation set; "
        f"the last column compares with it, after the mean difference on the fitted runs, {gap:.4f}, is added:"
    )
    names = ["peak", "runs", "mean absolute error", "bias", "largest error", "mean absolute error, `final_val_loss`"]
    return f"{head}\n\n{markdown(names, lines)}"


def forecast_beginnings() -> str:
    """How often the last loss of a run is forecast from its beginning and two finished runs."""
    rows = forecast_rows("beginnings")
    near = [abs(float(r["predicted"]) - float(r["last_loss"])) <= 0.01 for r in rows]
    sets = [
        (name, [n for n, r in zip(near, rows, strict=True) if r["set"] == name]) for name in ("25M", "100M", "124M")
    ]
    by = ", ".join(f"{sum(found)} of {len(found)} for {name}" for name, found in sets)
    return (
        "From the first 60% of a run and two finished runs of the same model, the last loss is forecast within 0.01 in "
        f"{sum(near)} of {len(near)} cases ({by})."
    )
