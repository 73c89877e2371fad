"""Verbs that set a study beside a prediction: ``nqm lab plot`` and ``nqm lab compare``. Each parses, calls and prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..show.tables import with_folder
from . import options
from .lab import file, lab, study_name
from .options import PICTURE, OutputFile, Verb
from .output import Sink, progress, show_pairs, show_table, wrote

if TYPE_CHECKING:
    from ..lab import Results
    from ..lab.compare import Curve, Predicted
    from ..show.verdict import Finding

SHOWN = ("optimizer", "batch_size", "steps", "low", "high", "predicted", "examples", "effective_lr", "at_edge")


@lab.command(
    "plot", cls=Verb, short_help="draw steps against batch size",
    examples=["nqm lab plot digits.toml --out steps.png", "nqm lab plot digits.db --rates --out rates.pdf"],
)  # fmt: skip
@file
@study_name
@click.option("--out", type=PICTURE, metavar="FILE", required=True, help="Picture to write: .png, .pdf or .svg.")
@click.option("--rates", is_flag=True, help="Draw the best learning rates instead.")
def plot(file: str, study: str | None, out: str, rates: bool) -> None:
    """Draw what a study has measured so far: steps to its target against batch size, with intervals over seeds."""
    from ..lab.compare.plots import plot_rates, plot_steps

    results, curves = _measured(file, study)
    with_folder(out)
    if rates:
        plot_rates(curves, path=out)
    else:
        plot_steps(curves, _target(results), path=out)
    wrote(out)


@lab.command(
    "compare", cls=Verb, short_help="measured beside predicted, and the paper's findings",
    examples=[
        "nqm lab compare digits.toml --fit digits.json",
        "nqm lab compare digits.toml --fit digits.json --report digits.html --plot compare.png",
        "nqm lab compare digits.toml --json",
    ],
)  # fmt: skip
@file
@study_name
@click.option("--fit", "fitted", metavar="FIT", type=click.Path(exists=True, dir_okay=False),
              help="A file of nqm fit for the same workload; without it nothing is predicted.")  # fmt: skip
@click.option("--report", type=OutputFile((".html",)), metavar="FILE", help="Write everything as one HTML file.")
@options.as_json
@options.csv
@options.plot
def compare(
    file: str,
    study: str | None,
    fitted: str | None,
    report: str | None,
    as_json: bool,
    csv: str | None,
    plot: str | None,
) -> None:
    """Set the steps that a study measured beside those that a fit of the same network predicts.

    Critical batch sizes stand side by side with intervals over seeds, and so do the paper's findings: their order over
    optimizers, what momentum does at small and at large batch, where an average helps.
    """
    from ..lab.compare import findings
    from ..lab.compare.plots import plot_steps

    sink = Sink(as_json, csv, plot)
    results, curves = _measured(file, study)
    found = _predicted(results, curves, fitted) if fitted else None
    held = findings(curves)
    if report:
        _write_report(with_folder(report), results, curves, held, found)
        wrote(report)
    if not results.finished:
        click.echo(f"{results.study.name} is not finished; these are its numbers so far", err=True)
    rows = _rows(curves, found)
    sink.deliver(
        lambda: _told(results, curves, held, found), lambda: _show(curves, held, found, rows), lambda: rows,
        lambda path: plot_steps(curves, _target(results), found, path),
    )  # fmt: skip


def _measured(file: str, study: str | None) -> tuple[Results, list[Curve]]:
    from ..lab import Results
    from ..lab.compare import curves_of

    results = Results.open(file, study)
    curves = curves_of(results.points)
    if not any((curve.searched == curve.searched).any() for curve in curves):
        advice = "take an easier target, or more steps" if results.finished else "nqm lab run works on it"
        raise click.ClickException(
            f"no trial of {results.study.name} has come to its target, {results.study.metric} {results.study.target:g}; {advice}"
        )
    return results, curves


def _predicted(results: Results, curves: list[Curve], path: str) -> Predicted:
    from ..lab.compare import predicted
    from ..nets.fitting.model import Fit

    study = results.study
    fixed = {label: entry.fixed for label, entry in study.optimizers.items()}
    with progress("predicting") as report:
        return predicted(
            Fit.load(path), study.target, curves, metric=study.metric, start=int(study.options.get("start", 0)),
            workload=study.workload, fixed=fixed, progress=report,
        )  # fmt: skip


def _target(results: Results) -> str:
    """For an axis: training loss 0.1."""
    names = {"train": "training", "val": "validation"}
    part, _, what = results.study.metric.partition("_")
    return f"{names.get(part, part)} {what} {results.study.target:g}"


def _rows(curves: list[Curve], found: Predicted | None) -> list[dict[str, Any]]:
    rows = []
    for curve in curves:
        sweep = found.sweeps.get(curve.name) if found else None
        for i, row in enumerate(curve.table()):
            steps = None if sweep is None or sweep.steps[i] != sweep.steps[i] else float(sweep.steps[i])
            rows.append({**row, "predicted": steps} if found else row)
    return rows


def _told(results: Results, curves: list[Curve], held: list[Finding], found: Predicted | None) -> dict[str, Any]:
    from ..lab.compare.curves import MEASURED
    from ..lab.compare.report import finding_rows

    return {
        "study": results.study.name, "finished": results.finished, "target": results.study.target, "metric": results.study.metric,
        "table": _rows(curves, found), "findings": finding_rows(held), "notes": list(found.notes) if found else [],
        "critical_batch_size": {
            curve.name: {d: curve.critical_batch_size(d).to_dict() for d in MEASURED} for curve in curves
        },
        "predicted": {name: sweep.to_dict() for name, sweep in found.sweeps.items()} if found else {},
    }  # fmt: skip


def _show(curves: list[Curve], held: list[Finding], found: Predicted | None, rows: list[dict[str, Any]]) -> None:
    from ..lab.compare.report import critical_rows, finding_rows

    show_table([{name: row[name] for name in SHOWN if name in row} for row in rows], "steps to the target")
    show_table(critical_rows(curves, found), "critical batch sizes")
    show_table(finding_rows(held), "what the paper says")
    if found:
        errors = {name: f"{ratio:.2f}" for name, ratio in found.errors(curves).items()}
        if errors:
            click.echo("predicted over measured steps, median over batch sizes")
            show_pairs(errors)
        for note in found.notes:
            click.echo(f"note: {note}")


def _write_report(
    path: str, results: Results, curves: list[Curve], held: list[Finding], found: Predicted | None
) -> None:
    from ..lab.compare.report import Report, toml

    study = results.study
    about = {
        "workload": study.workload, "metric": study.metric, "target": study.target,
        "trials": f"{study.trials} feasible ones for each optimizer and batch size",
        "seeds": study.seeds, "finished": "yes" if results.finished else "no: numbers are those so far",
    }  # fmt: skip
    page = Report(f"Study {study.name}", about, _target(results), curves, held, toml(study.to_dict()), found)
    Path(path).write_text(page.html(), encoding="utf-8")
