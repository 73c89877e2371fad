"""Verbs of the lab: studies of real training, their store and what is in it. Each parses, calls and prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..show.tables import with_folder
from ..types import Wrong
from . import options
from .options import FAILED, WHOLE, OutputFile, Verbs
from .output import Row, Sink, show_pairs, show_table, wrote

if TYPE_CHECKING:
    from ..lab.results import Results
    from ..lab.store import Kept

TABLES = (".csv", ".parquet")

file = click.argument("file", metavar="STUDY.toml|STORE.db", type=click.Path(exists=True, dir_okay=False))
study_name = click.option(
    "--study", metavar="NAME", help="Which study of a store: its name or its key; else the latest."
)


@click.group("lab", cls=Verbs, invoke_without_command=True, short_help="train real networks at every batch size")
@click.pass_context
def lab(ctx: click.Context) -> None:
    """Studies of real training: steps to a target at every batch size, tuned there, kept in one file.

    A study is a TOML file; nqm lab run works through it and can be interrupted and called again at any time.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@lab.command(
    short_help="run a study, or go on with it",
    examples=[
        "nqm lab run digits.toml",
        "nqm lab run digits.toml --workers 8 --widen",
        "nqm lab run digits.toml --on tcp://scheduler:8786 --store results.db",
    ],
)
@click.argument("study", metavar="STUDY.toml", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--store", type=OutputFile(), metavar="FILE", help="Where results are kept; beside the study if left out."
)
@click.option(
    "--on", metavar="WHERE", default="local", show_default=True,
    help="Where to train: local (processes), here (this process), dask (a local cluster), or a scheduler's address.",
)  # fmt: skip
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processes of local and dask; as many as there are cores if left out.",
)
@click.option(
    "--stacking", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
    help="Whether a worker trains many trials at once.",
)  # fmt: skip
@click.option("--widen", is_flag=True, help="Extend ranges at whose end a best setting lies, and search there.")
@click.option("--retry-failed", is_flag=True, help="Run trials again that an exception ended.")
@options.as_json
def run(
    study: str, store: str | None, on: str, workers: int | None, stacking: str, widen: bool, retry_failed: bool, as_json: bool
) -> None:  # fmt: skip
    """Search the best settings of every optimizer at every batch size, and confirm them with other seeds.

    Results are kept as they come. The same command again goes on where it stopped and repeats nothing; it may run more
    than once at the same time. Ctrl-C stops it.
    """
    from ..lab import LabError, Study
    from ..lab import run as work
    from ..lab.executors import crew
    from ..lab.runner import default_store
    from ..lab.view import view

    if store == "-":
        raise click.UsageError("--store must be a file, such as results.db, got '-'", click.get_current_context())
    made_study, path = Study.load(study), Path(store) if store else default_store(study)
    again = f"nqm lab run {study}" + (f" --store {store}" if store else "")
    try:
        with view(sys.stderr) as watch:
            found = work(
                made_study, store=path, executor=crew(on, workers), stacking=stacking, widen=widen,
                retry_failed=retry_failed, watch=watch,
            )  # fmt: skip
    except KeyboardInterrupt:
        click.echo(f"stopped; {path} has what had ended, and {again} goes on", err=True)
        raise click.Abort from None
    except LabError as error:
        click.echo(f"Error: {error}; {path} has what had ended, and {again} goes on", err=True)
        raise click.exceptions.Exit(FAILED) from None
    Sink(as_json).deliver(found.to_dict, lambda: _show_results(found))
    if not any(point.steps is not None for point in found.points):
        raise click.exceptions.Exit(FAILED)


@lab.command(
    short_help="how far a study is and what it has found",
    examples=["nqm lab status digits.toml", "nqm lab status digits.db --json"],
)
@file
@study_name
@options.as_json
@options.csv
def status(file: str, study: str | None, as_json: bool, csv: str | None) -> None:
    """Best settings so far for every optimizer and batch size, and how many trials they rest on."""
    from ..lab.results import Results
    from ..lab.store import Store

    sink, found = Sink(as_json, csv), Results.open(file, study)
    with Store.open(found.path) as store:
        running, studies = store.running(found.study.worker), store.studies()

    def show() -> None:
        _show_results(found)
        click.echo(f"{running} trials are running" if running else "nothing is running")
        if len(studies) > 1:
            names = ", ".join(f"{s.name} ({s.key})" for s in studies)
            click.echo(f"studies in {found.path}: {names}; shown is {found.study.key}")

    sink.deliver(lambda: found.to_dict() | {"running": running}, show, found.table)


@lab.command(
    "list", short_help="trials in a store",
    examples=["nqm lab list digits.db --optimizer SGD --batch-size 16", "nqm lab list digits.db --outcome failed --csv -"],
)  # fmt: skip
@file
@study_name
@click.option("--optimizer", metavar="LABEL", help="Only those of this optimizer of the study.")
@click.option("--batch-size", "-b", type=WHOLE, metavar="B", help="Only those at this batch size.")
@click.option("--outcome", metavar="NAME", help="Only those that ended so: reached, stopped, diverged, failed, ...")
@options.as_json
@options.csv
def listing(
    file: str, study: str | None, optimizer: str | None, batch_size: int | None, outcome: str | None,
    as_json: bool, csv: str | None,
) -> None:  # fmt: skip
    """Every trial of a study that has ended: its settings, how it ended, and its steps."""
    from ..lab.results import Results
    from ..nets.training.trial import OUTCOMES
    from ..types import unknown

    if outcome and outcome not in OUTCOMES:
        raise unknown("outcome", outcome, OUTCOMES)
    sink, found = Sink(as_json, csv), Results.open(file, study)
    trials = found.trials()
    _check_filters(found, trials, optimizer, batch_size)
    rows = [
        trial_row(kept)
        for kept in trials
        if optimizer in (None, kept.label)
        and batch_size in (None, kept.trial.batch_size)
        and outcome in (None, kept.result.outcome)
    ]

    def show() -> None:
        if rows:
            show_table([{k: v for k, v in row.items() if k != "message"} for row in rows], f"{found.path}")
        click.echo(f"{len(rows)} trials")

    sink.deliver(lambda: rows, show, lambda: rows)


@lab.command(
    short_help="one trial and its curve",
    examples=["nqm lab show digits.db 3f2a", "nqm lab show digits.db 3f2a --csv curve.csv"],
)
@file
@click.argument("key")
@study_name
@options.as_json
@options.csv
def show(file: str, key: str, study: str | None, as_json: bool, csv: str | None) -> None:
    """A trial by the beginning of its key: all that decided it, how it ended, and the metric over its steps."""
    from ..lab.results import Results
    from ..lab.store import Store

    sink, found = Sink(as_json, csv), Results.open(file, study)
    with Store.open(found.path) as store:
        kept = store.find(key, found.study.worker)
        times, curves = store.curve(kept.id)
    rows = [dict(zip(("step", *curves), row, strict=True)) for row in zip(times, *curves.values(), strict=True)]
    about = trial_row(kept) | {"study": kept.study, "runner": kept.runner}

    def display() -> None:
        show_pairs({k: v for k, v in about.items() if not isinstance(v, bool)})
        shown = rows if len(rows) <= 16 else [rows[round(i * (len(rows) - 1) / 15)] for i in range(16)]
        if shown:
            show_table(shown, kept.trial.metric)

    data = {"trial": kept.trial.to_dict(), "result": kept.result.to_dict() | {"times": times, "curves": curves}}
    sink.deliver(lambda: about | data, display, lambda: rows)


@lab.command(
    short_help="results as CSV or Parquet",
    examples=[
        "nqm lab export digits.db --out digits.csv",
        "nqm lab export digits.toml --what curves --out curves.parquet",
    ],
)
@file
@study_name
@click.option(
    "--what", type=click.Choice(["results", "trials", "curves"]), default="results", show_default=True,
    help="Best settings, every trial, or every point of every curve.",
)  # fmt: skip
@click.option("--out", type=OutputFile(TABLES), metavar="FILE", help="File to write: .csv or .parquet.")
@options.as_json
def export(file: str, study: str | None, what: str, out: str | None, as_json: bool) -> None:
    """Write tables for other programs; without --out, CSV goes to standard output."""
    from ..lab.results import Results

    found = Results.open(file, study)
    rows = found.table() if what == "results" else list(_exported(found, what))
    parquet = out is not None and Path(out).suffix.lower() == ".parquet"
    if out and parquet:
        _write_parquet(with_folder(out), rows)
        wrote(out)
    csv = None if parquet else out or (None if as_json else "-")
    Sink(as_json, csv).deliver(lambda: rows, lambda: None, lambda: rows)


def _check_filters(found: Results, trials: list[Kept], optimizer: str | None, batch_size: int | None) -> None:
    """Refuse a filter that neither the study nor any of its trials can match."""
    from ..types import unknown

    labels = dict.fromkeys([*found.study.optimizers, *(kept.label for kept in trials)])
    if optimizer is not None and optimizer not in labels:
        of = next((p.label for p in found.points if p.name == optimizer), None)
        if of is not None:
            raise Wrong(f"{optimizer} is read out of the trials of {of}: --optimizer {of} lists them")
        raise unknown(f"optimizer in {found.study.name} called", optimizer, labels)
    sizes = sorted({*found.study.batch_sizes, *(kept.trial.batch_size for kept in trials)})
    if batch_size is not None and batch_size not in sizes:
        known = ", ".join(map(str, sizes))
        raise Wrong(f"there is no batch size {batch_size} in {found.study.name}; there are {known}")


def trial_row(kept: Kept) -> Row:
    """A trial in a row; settings and steps of each read-out are columns of their own."""
    trial, result = kept.trial, kept.result
    steps = {("steps" if name == "raw" else f"steps {name}"): result.steps.get(name) for name in trial.readouts}
    return {
        "key": trial.key[:12], "optimizer": kept.label, "batch_size": trial.batch_size, "kind": kept.kind,
        "seed": trial.seed, **trial.settings, "outcome": result.outcome, **steps, "seconds": result.seconds,
        "how": result.how, "message": result.message,
    }  # fmt: skip


def _exported(found: Results, what: str) -> Iterator[Row]:
    """Trials, or every point of their curves."""
    from ..lab.store import Store

    with Store.open(found.path) as store:
        for kept in found.trials():
            row = trial_row(kept) | {"key": kept.trial.key}
            if what == "trials":
                yield row
                continue
            times, curves = store.curve(kept.id)
            lead = {name: row[name] for name in ("key", "optimizer", "batch_size", "kind", "seed")}
            for name, curve in curves.items():
                for step, value in zip(times, curve, strict=True):
                    yield lead | {"readout": name, "step": step, kept.trial.metric: value}


def _write_parquet(path: str, rows: list[Row]) -> None:
    from ..show.tables import header

    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise click.ClickException("Parquet needs pyarrow: pip install pyarrow, or write a .csv file") from None
    parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in header(rows)}), path)


def _show_results(found: Results) -> None:
    """One table for each row of the study, and what to look out for."""
    hidden = {"optimizer", "message", "key", "coverage", "seeds", "arrived"}
    for name in found.names:
        points = found[name]
        drop = hidden | ({"at_edge"} if not any(p.at_edge for p in points) else set())
        drop |= {"failed"} if not any(p.failed for p in points) else set()
        rows = [{k.replace("_", " "): v for k, v in point.row().items() if k not in drop} for point in points]
        show_table(rows, f"{name}, steps to {found.study.metric} {found.study.target:g}")
        told = dict.fromkeys(f"batch size {p.batch_size}: {p.message}" for p in points if not p.steps)
        click.echo("".join(f"- {line}\n" for line in told), nl=bool(told))
    coverage = {p.confirmed.coverage for p in found.points if p.confirmed}
    if coverage:
        share = f"{100 * min(coverage):.3g}%"
        click.echo(f"confirmed: median over fresh seeds; it lies between low and high with probability {share}")
    for sentence in found.edges():
        click.echo(f"- {sentence}")
