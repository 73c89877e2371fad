"""A study as one HTML file that loads nothing: pictures, tables, what the paper says of them, settings and versions."""

from __future__ import annotations

import base64
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ...show.chart import png
from ...show.numbers import shown
from ...show.tables import Table, header
from ...show.verdict import Finding
from .curves import MEASURED, Curve
from .findings import beyond
from .plots import plot_rates, plot_steps
from .predicted import Predicted

PACKAGES = ("nqm", "numpy", "scipy", "torch", "scikit-learn", "dask")
LONG = 24  # characters of a cell that is read as text: it may wrap, and stands to the left
STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0.2rem; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; border-radius: 4px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, td.text, th.text { text-align: left; white-space: normal; }
pre { overflow-x: auto; padding: 0.8rem; border: 1px solid var(--line); border-radius: 4px; font-size: 13px; }
"""


@dataclass(frozen=True, eq=False)
class Report:
    """What a report tells: where the curves come from, the curves, what was predicted, what follows."""

    title: str
    about: Mapping[str, Any]
    target: str
    curves: Sequence[Curve]
    findings: Sequence[Finding]
    study: str  # as TOML
    predicted: Predicted | None = None

    def html(self) -> str:
        """The whole page."""
        parts = [
            f"<h1>{escape(self.title)}</h1>", _pairs(self.about), "<h2>Steps against batch size</h2>",
            _picture(plot_steps(self.curves, self.target, self.predicted), "steps to the target against batch size"),
            f"<p>{bands(self.curves)}</p>",
            *self._notes(), "<h2>Critical batch sizes</h2>", _table(critical_rows(self.curves, self.predicted)),
            "<h2>Learning rates</h2>",
            _picture(plot_rates(self.curves, self.predicted), "best learning rate against batch size"),
            "<h2>What the paper says</h2>", _table(finding_rows(self.findings)), "<h2>Tuned settings</h2>",
            _table([row for curve in self.curves for row in curve.table()]),
            "<h2>The study</h2>", f"<pre>{escape(self.study)}</pre>", "<h2>Versions</h2>", _pairs(versions()),
        ]  # fmt: skip
        head = f"<title>{escape(self.title)}</title><style>{STYLE}</style>"
        meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        return (
            f'<!doctype html>\n<html lang="en"><head>{meta}{head}</head>\n<body>\n'
            + "\n".join(parts)
            + "\n</body></html>\n"
        )

    def _notes(self) -> list[str]:
        notes = self.predicted.notes if self.predicted else ()
        return [f"<p>{escape(note[0].upper() + note[1:])}.</p>" for note in notes]


def toml(data: Mapping[str, Mapping[str, Any]]) -> str:
    """A study's tables as TOML, which ``nqm lab run`` takes again; what is empty is left out."""
    lines = []
    for name, table in data.items():
        nested = all(isinstance(value, Mapping) for value in table.values())
        for head, rows in ((f"{name}.{_key(k)}", v) for k, v in table.items()) if nested else ((name, table),):
            lines += [f"[{head}]", *(f"{_key(k)} = {_toml(v)}" for k, v in rows.items() if v not in ({}, [], None)), ""]
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # numbers, text and booleans are written alike in both


def critical_rows(curves: Sequence[Curve], predicted: Predicted | None = None) -> Table:
    """Critical batch sizes by definition, measured with intervals and, where there is a fit, predicted."""
    rows = []
    for curve in curves:
        largest = curve.largest
        row: dict[str, Any] = {"optimizer": curve.name}
        for definition in MEASURED:
            row[f"measured, {definition}"] = beyond(curve.critical_batch_size(definition), largest)
        sweep = predicted.sweeps.get(curve.name) if predicted else None
        if sweep is not None:
            found = sweep.critical_batch_size("2x")
            row["predicted, 2x"] = f"{found:,.0f}" if found == found else f">{largest:,.0f}"
        rows.append(row)
    return rows


def finding_rows(findings: Sequence[Finding]) -> Table:
    return [{"statement": f.says, "measured": f.measured, "verdict": f.verdict.value} for f in findings]


def versions() -> dict[str, str]:
    """Of Python and of what the numbers depend on."""
    found = {"Python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def bands(curves: Sequence[Curve]) -> str:
    """What a point and the band around it are."""
    found = [share for curve in curves for share in curve.coverage if share == share]
    if not found:
        return "Steps of the best trial of each search, which flatter: no setting was tried with fresh seeds."
    if not min(found):
        return "Steps of one fresh seed at the best setting of each batch size; with more seeds there are bands."
    return (
        "Medians over fresh seeds at the best setting of each batch size. Bands hold the median with probability "
        f"{100 * min(found):.3g}% or more, by order statistics."
    )


def _picture(figure: Any, alt: str) -> str:
    data = base64.b64encode(png(figure)).decode()
    return f'<figure><img alt="{escape(alt, quote=True)}" src="data:image/png;base64,{data}"></figure>'


def _pairs(pairs: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(k))}</td><td class='text'>{escape(shown(v))}</td></tr>" for k, v in pairs.items()
    )
    return f"<div class='scroll'><table>{rows}</table></div>"


def _table(rows: Table) -> str:
    if not rows:
        return "<p>Nothing to show.</p>"
    names = header(rows)
    text = {name for name in names if any(isinstance(row.get(name), str) and len(row[name]) > LONG for row in rows)}
    head = "".join(
        f"<th{' class=text' if name in text else ''}>{escape(name.replace('_', ' '))}</th>" for name in names
    )
    body = "".join("<tr>" + "".join(_data(row.get(name)) for name in names) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _data(value: Any) -> str:
    long = isinstance(value, str) and len(value) > LONG
    return f"<td{' class=text' if long else ''}>{escape(shown(value))}</td>"
