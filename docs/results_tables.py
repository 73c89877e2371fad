"""The tables of docs/results.md: what studies measured, from nqm/paper/studies, and the options of K-FAC, from docs/checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nqm.lab.compare import Curve, Topic, by_topic, findings, read_curves, read_table
from nqm.lab.compare.curves import MEASURED, critical
from nqm.lab.compare.verdicts import critical_size
from nqm.paper.network_studies import TITLES, names, table_of
from nqm.show.tables import Table, column, distinct, markdown
from nqm.show.verdict import Finding

CHECKS = Path(__file__).with_name("checks")
SUMMARY = ("fashion_cnn", "fashion_wide", "fashion_validation", "digits", "moby_transformer", "cifar_resnet8")
"""Studies whose trainings begin at the start: those of the summary and of the table of verdicts."""


def verdict_table() -> str:
    """The verdict of each network on each of the paper's findings."""
    judged = {name: by_topic(read_curves(table_of(name))) for name in names() if name in SUMMARY}
    rows = [(topic.value, *(_verdicts(found[topic]) for found in judged.values())) for topic in Topic]
    return markdown(["the paper", *(TITLES[name] for name in judged)], rows)


def _verdicts(found: list[Finding]) -> str:
    """How often each verdict was reached on one finding; "-" if the study does not tell."""
    values = [one.verdict.value for one in found]
    if len(set(values)) < 2:
        return values[0] if values else "-"
    return ", ".join(f"{value} ({values.count(value)} of {len(values)})" for value in dict.fromkeys(values))


def summary_table() -> str:
    """Critical batch sizes of each optimizer, twice perfect scaling, on the networks that were trained from their start."""
    found = {name: {curve.name: curve for curve in read_curves(table_of(name))} for name in names() if name in SUMMARY}
    optimizers = dict.fromkeys(optimizer for curves in found.values() for optimizer in curves)
    rows = [
        (f"`{one}`", *(_critical(curves[one], [{}])[1] if one in curves else "" for curves in found.values()))
        for one in optimizers
    ]
    return markdown(["critical batch size", *(TITLES[name] for name in found)], rows)


def results_tables(table: Table) -> str:
    """What a study measured: steps, critical batch sizes, the paper's findings."""
    curves, sizes = read_curves(table), distinct(table, "batch_size")
    cells = {(row["optimizer"], row["batch_size"]): row for row in table}
    steps = [(f"{B:,.0f}", *(_steps(cells[curve.name, B]) for curve in curves)) for B in sizes]
    titles = ["optimizer", "20% over perfect scaling", "twice perfect scaling", "fewest examples / fewest steps"]
    titles += ["predicted, twice"] * ("predicted" in table[0])
    critical = [(f"`{curve.name}`", *_critical(curve, table)) for curve in curves]
    certain = any(curve.certain for curve in curves)  # A study with one search decides nothing.
    judged = [(one.says, one.measured, one.verdict.value) for one in findings(curves)] if certain else []
    return "\n\n".join(
        [
            markdown(["batch size", *(f"`{curve.name}`" for curve in curves)], steps),
            markdown(titles, critical),
            *([markdown(["the paper", "measured", "verdict"], judged)] if judged else []),
        ]
    )


def _steps(row: dict[str, Any]) -> str:
    """Median over seeds with its interval, or a lower bound; why it decides nothing; and the prediction, if there is one."""
    often = lambda steps: "never" if steps is None else f"{steps:,.0f}"  # noqa: E731
    text = f"{often(row['steps'])} ({often(row['low'])} to {often(row['high'])})"
    if row["steps"] is None:
        text = f"more than {often(row['more_than'])}" if row["more_than"] else "none"
    open_ = {"edge": row["at_edge"], "unfinished": row["state"] != "done"}
    told = [text, *(why for why, so in open_.items() if so)]
    return ", ".join([*told, often(row["predicted"])] if row.get("predicted") else told)


def _critical(curve: Curve, table: Table) -> list[str]:
    """The critical batch sizes of a curve, and the one that was predicted."""
    open_ = ", not decided" if curve.doubts() else ""
    shown = [critical_size(curve, by).removesuffix(" (not known)") + open_ for by in MEASURED]
    if "predicted" in table[0]:
        predicted = critical(curve.batch_sizes, column(table, "predicted", optimizer=curve.name), "2x")
        shown.append(f"{predicted:,.0f}" if np.isfinite(predicted) else f">{curve.largest:,.0f}")
    return shown


def edges_table(read_rows: Callable[[str], list[dict[str, Any]]]) -> str:
    """The cells whose first search ended at an end of a range: the setting and the steps, before and now."""
    lines = []
    for before in read_rows("edges"):
        study, name, size = before["study"], before["optimizer"], before["batch_size"]
        rows = table_of(study) if study in names() else read_table(CHECKS / f"{study}.csv")
        now = next(row for row in rows if (row["optimizer"], row["batch_size"]) == (name, size))
        then = f"{before['setting']} {before['value']:.4g}, {before['end']}"
        steps = f"{before['steps']:.0f} ({before['low']:.0f} to {before['high']:.0f})"
        again = not now["at_edge"]
        if again and now[before["setting"]] == before["value"]:
            after = ["the same; no fewer steps beyond", "the same"]
        else:
            after = [f"{before['setting']} {now[before['setting']]:.4g}", _steps(now | {"predicted": None})]
        lines.append(
            (f"`{study}`", f"`{name}`", f"{size:,.0f}", then, steps, *(after if again else ["not measured again", ""]))
        )
    return markdown(["study", "optimizer", "batch size", "best setting, end", "steps", "now", "steps now"], lines)


def kfac_table(read_rows: Callable[[str], list[dict[str, Any]]]) -> str:
    """What each option of K-FAC does, on both networks."""
    lines = []
    for name, title in (("digits", "digits"), ("fashion", "Fashion CNN")):
        for row in read_rows(f"kfac_{name}"):
            tried, steps = int(row["settings"]), row["steps"]
            known = f"{steps:.0f} ({row['low']:.0f} to {row['high']:.0f})" if steps == steps else "none"
            shares = [f"{int(row[what])} of {tried}" for what in ("diverged", "reached")]
            lines.append((f"{title}, {row['batch_size']:.0f}", row["variant"], *shares, known))
    return markdown(["network, batch size", "K-FAC with", "diverged", "reached the target", "steps of the best"], lines)
