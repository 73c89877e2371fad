"""A study as one HTML file that loads nothing: pictures, tables, the paper's findings, settings and versions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from ...show.chart import png
from ...show.html import code, page, pairs, paragraph, picture, section, table, versions
from ...show.tables import Table
from ...show.verdict import Finding
from .curves import MEASURED, Curve
from .plots import plot_rates, plot_steps
from .predictions import Predicted
from .verdicts import critical_size


def html(
    title: str, about: Mapping[str, object], target: str, curves: Sequence[Curve], findings: Sequence[Finding], study: str,
    predicted: Predicted | None = None,
) -> str:  # fmt: skip
    """The whole page; ``about`` says where the curves come from, and ``study`` is the study as TOML."""
    notes = [f"{note[0].upper()}{note[1:]}." for note in (predicted.notes if predicted else ())]
    told = map(paragraph, [bands(curves), *notes])
    steps, rates = png(plot_steps(curves, target, predicted)), png(plot_rates(curves, predicted))
    return page(
        title,
        pairs(about),
        section("Steps against batch size", picture(steps, "steps to the target against batch size"), *told),
        section("Critical batch sizes", table(critical_rows(curves, predicted))),
        section("Learning rates", picture(rates, "best learning rate against batch size")),
        section("What the paper says", table(finding_rows(findings))),
        section("Tuned settings", table([row for curve in curves for row in curve.table()])),
        section("The study", code(study)),
        section("Versions", pairs(versions())),
    )


def toml(data: Mapping[str, Mapping[str, object]]) -> str:
    """A study's tables as TOML, which ``nqm lab run`` reads again; empty values are omitted."""
    lines = []
    for name, own in data.items():
        inner = {f"{name}.{_key(k)}": value for k, value in own.items() if isinstance(value, Mapping)}
        for head, rows in (inner if len(inner) == len(own) else {name: own}).items():
            lines += [f"[{head}]", *(f"{_key(k)} = {_toml(v)}" for k, v in rows.items() if v not in ({}, [], None)), ""]
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # TOML and JSON write numbers, text and booleans alike.


def critical_rows(curves: Sequence[Curve], predicted: Predicted | None = None) -> Table:
    """Critical batch sizes by definition, measured with intervals and, where there is a fit, predicted."""
    rows = []
    for curve in curves:
        largest = curve.largest
        row = {"optimizer": curve.name}
        row |= {f"measured, {name}": critical_size(curve, name) for name in MEASURED}
        low, high = curve.read_between("2x")
        row["2x, read between"] = f"{low:,.0f} and {high:,.0f}" if high < math.inf else "-"
        sweep = predicted.sweeps.get(curve.name) if predicted else None
        if sweep is not None:
            found = sweep.critical_batch_size("2x")
            row["predicted, 2x"] = f"{found:,.0f}" if found == found else f">{largest:,.0f}"
        rows.append(row)
    return rows


def finding_rows(findings: Sequence[Finding]) -> Table:
    return [{"statement": f.says, "measured": f.measured, "verdict": f.verdict.value} for f in findings]


def bands(curves: Sequence[Curve]) -> str:
    """A sentence on what a point and the band around it are."""
    found = [share for curve in curves for share in curve.coverage if share == share]
    if not found:
        return "Steps of the best trial of each search, which are biased low: no setting was tried with fresh seeds."
    if not min(found):
        return "Steps of one fresh seed at the best setting of each batch size; with more seeds there are bands."
    share = f"Bands hold the median with probability {100 * min(found):.3g}% or more, by order statistics."
    return f"Medians over fresh seeds at the best setting of each batch size. {share}"
