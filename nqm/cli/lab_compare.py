"""The verbs ``nqm lab plot`` and ``nqm lab compare``, which draw a study and compare it with a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..show.tables import Row, Table
from . import options
from .errors import Failure
from .lab import lab, results
from .options import INPUT, PICTURE, OutputFile, flag, option, verb
from .output import Sink, progress, show_pairs, show_table, write
from .screen import say

if TYPE_CHECKING:
    from ..lab import Results, Study
    from ..lab.compare import Curve, Predicted
    from ..show.verdict import Finding

COLUMNS = (
    "optimizer", "batch_size", "steps", "low", "high", "more_than", "predicted", "examples", "effective_lr", "at_edge", "state",
)  # fmt: skip
"""The columns of the table on the screen; --csv and --json have all columns."""


@verb(
    "draw steps against batch size",
    "nqm lab plot digits.toml --out steps.png",
    "nqm lab plot digits.db --rates --out rates.pdf",
)
@results
@option("--out", "Picture to write: .png, .pdf or .svg.", PICTURE, required=True)
@flag("--rates", "Draw the best learning rates instead.")
def plot(found: Results, out: str, rates: bool) -> None:
    """Draw what a study has measured so far: steps to its target against batch size, with intervals over seeds."""
    from ..lab.compare.plots import plot_rates, plot_steps
    from ..show.chart import save

    curves = _curves(found)
    figure = plot_rates(curves) if rates else plot_steps(curves, _target(found))
    write(out, lambda path: save(figure, path))


@verb(
    "measured beside predicted, and the paper's findings",
    "nqm lab compare digits.toml --fit digits.json",
    "nqm lab compare digits.toml --fit digits.json --report digits.html --plot compare.png",
    "nqm lab compare digits.toml --fit digits.json --fit adam.json",
    "nqm lab compare digits.toml --json",
)
@results
@option("--fit fits FIT", "File of nqm fit for the same workload; may be repeated.", INPUT, multiple=True)
@option("--report", "Write everything as one HTML file.", OutputFile(".html"))
@options.sink(csv=True, plot=True)
def compare(found: Results, fits: tuple[str, ...], report: str | None, sink: Sink) -> None:
    """Compare the steps that a study measured with those that fits of the same network predict.

    Without --fit nothing is predicted. A fit in the metric of Adam or AdamW predicts that optimizer; one without, the others.

    Critical batch sizes are compared too, with 90% intervals over repeated searches. The paper's findings are checked: the order of
    optimizers, what momentum does at small and at large batches, where an average helps, how the best learning rate grows with the
    batch size, and whether preconditioning extends scaling. Each verdict comes with its share of resampled curves.
    """
    from ..lab.compare import findings
    from ..lab.compare.plots import plot_steps

    curves = _curves(found)
    predicted = _predicted(found, curves, fits) if fits else None
    held = findings(curves)
    write(report, lambda path: path.write_text(_report(found, curves, held, predicted), encoding="utf-8"))
    if not found.finished:
        say(f"{found.study.name} is not finished; these are its numbers so far", err=True)
    rows = _rows(curves, predicted)
    sink.deliver(
        lambda: _told(found, curves, held, predicted),
        lambda: _show(curves, held, predicted, rows),
        lambda: rows,
        lambda path: plot_steps(curves, _target(found), predicted, path),
    )


def _curves(results: Results) -> list[Curve]:
    from ..lab.compare import curves_of

    study, curves = results.study, curves_of(results.points)
    if all(point.steps is None for point in results.points):
        advice = "take an easier target, or more steps" if results.finished else "nqm lab run works on it"
        goal = f"{study.metric} {study.target:g}"
        raise Failure(f"no trial of {study.name} has reached its target, {goal}; {advice}")
    return curves


def _predicted(results: Results, curves: list[Curve], paths: tuple[str, ...]) -> Predicted:
    from ..lab.compare import predicted
    from ..nets.fitting.model import Fit

    with progress("predicting") as report:
        return predicted([Fit.load(path) for path in paths], results.study, curves, report)


def _target(results: Results) -> str:
    """The target of a study for the label of an axis, such as "training loss 0.1"."""
    names = {"train": "training", "val": "validation"}
    part, _, what = results.study.metric.partition("_")
    return f"{names.get(part, part)} {what} {results.study.target:g}"


def _rows(curves: list[Curve], found: Predicted | None) -> Table:
    rows = []
    for curve in curves:
        sweep = found.sweeps.get(curve.name) if found else None
        for i, row in enumerate(curve.table()):
            steps = None if sweep is None or sweep.steps[i] != sweep.steps[i] else float(sweep.steps[i])
            rows.append({**row, "predicted": steps} if found else row)
    return rows


def _told(results: Results, curves: list[Curve], held: list[Finding], found: Predicted | None) -> Row:
    from ..engine.run import numbers
    from ..lab.compare.curves import MEASURED
    from ..lab.compare.report import finding_rows

    study = results.study
    return {
        "study": study.name, "finished": results.finished, "target": study.target, "metric": study.metric,
        "table": _rows(curves, found), "findings": finding_rows(held), "notes": list(found.notes) if found else [],
        "critical_batch_size": {
            c.name: {
                d: c.critical_batch_size(d).to_dict()
                | {"certain": c.certain, "at_least": c.bounded(d), "doubts": c.doubts()}
                | {"between": numbers(c.read_between(d))}
                for d in MEASURED
            } for c in curves
        },
        "predicted": {name: sweep.to_dict() for name, sweep in found.sweeps.items()} if found else {},
    }  # fmt: skip


def _show(curves: list[Curve], held: list[Finding], found: Predicted | None, rows: Table) -> None:
    from ..lab.compare.report import critical_rows, finding_rows

    told = [name for name in COLUMNS if any(row.get(name) not in (None, "", "done") for row in rows)]
    show_table([{name: row[name] for name in told} for row in rows], "steps to the target")
    show_table(critical_rows(curves, found), "critical batch sizes")
    show_table(finding_rows(held), "what the paper says")
    if found:
        if errors := {name: f"{ratio:.2f}" for name, ratio in found.errors(curves).items()}:
            say("predicted over measured steps, median over batch sizes")
            show_pairs(errors)
        for note in found.notes:
            say(f"note: {note}")


def _report(results: Results, curves: list[Curve], held: list[Finding], found: Predicted | None) -> str:
    from ..lab.compare.report import html, toml

    study = results.study
    about = {
        "workload": study.workload, "metric": study.metric, "target": study.target,
        "searches": study.searches, "trials": ", ".join(_budget(study, label) for label in study.optimizers),
        "seeds": study.seeds,
        "finished": "yes" if results.finished else "no: numbers are those so far",
    }  # fmt: skip
    return html(f"Study {study.name}", about, _target(results), curves, held, toml(study.to_dict()), found)


def _budget(study: Study, label: str) -> str:
    """The trials of a search in words."""
    return f"{label} {study.first_trials(label)} + {study.refined_trials(label)}"


for command in (plot, compare):
    lab.add_command(command)
