"""Verbs of the lab: run studies of real training, and read their store."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ..engine.run import number
from ..show.tables import Row, Table, header, some
from ..types import Wrong, unknown
from . import options
from .errors import Failure
from .options import INPUT, INTEGER, STORE, OutputFile, Verbs, Whole, flag, option, verb
from .output import TABLE_ROWS, Sink, answered, readable, show_pairs, show_table, write
from .screen import remark, say

if TYPE_CHECKING:
    from ..lab.results import Results
    from ..lab.store import Kept


@click.group("lab", cls=Verbs, invoke_without_command=True, short_help="train real networks at every batch size")
@click.pass_context
def lab(ctx: click.Context) -> None:
    """Studies of real training: tuned steps to a target at every batch size, kept in one file.

    A study is a TOML file. nqm lab run works through it; you can interrupt it and call it again at any time.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _results(file: str, study: str | None) -> Results:
    from ..lab.results import Results

    return Results.open(file, study)


_file = click.argument("file", metavar="STUDY.toml|STORE.db", type=INPUT)
_study = option("--study NAME", "Which study of a store to take, by its name or its key; the latest if omitted.")
results = options.bundle("found", _results, _file, _study)


@verb(
    "run a study, or go on with it",
    "nqm lab run digits.toml",
    "nqm lab run digits.toml --dry-run",
    "nqm lab run digits.toml --workers 8",
    "nqm lab run digits.toml --on tcp://scheduler:8786 --store results.db",
)
@click.argument("study", metavar="STUDY.toml", type=INPUT)
@option("--store", "File that keeps the results; beside the study if omitted.", STORE)
@option(
    "--on WHERE", "local (processes), here (this process), dask (a cluster) or a scheduler's address.", default="local"
)
@option("--workers N", "Number of processes of local and dask; one per core if omitted.", Whole(1))
@option("--stacking", "Whether a worker trains many trials at once.", ("auto", "always", "never"))
@flag("--retry-failed", "Run trials again that ended in an exception, or whose rows in the store are damaged.")
@flag("--dry-run", "Train nothing: say what trials, steps, time and memory the study will take.")
@options.sink()
def run(
    study: str, store: str | None, on: str, workers: int | None, stacking: Literal["auto", "always", "never"],
    retry_failed: bool, dry_run: bool, sink: Sink,
) -> None:  # fmt: skip
    """Search the best settings of every optimizer at every batch size, and confirm them with other seeds.

    Results are stored as they come. Ctrl-C stops the command, and the same command continues without repeating anything. It
    may run several times at once.
    """
    from ..lab import LabError
    from ..lab import run as work
    from ..lab.executors import crew
    from ..lab.runner import default_store
    from ..lab.view import view
    from ..text.imports import UserCodeError

    path = Path(store) if store else default_store(study)
    if dry_run:
        _show_costs(study, path, workers, sink)
        return
    again = f"{path} has what had ended, and nqm lab run {study}{f' --store {store}' if store else ''} goes on"
    try:
        with view(sys.stderr) as watch:
            crewed = crew(on, workers)
            found = work(
                study, store=path, executor=crewed, stacking=stacking, retry_failed=retry_failed,
                watch=watch,
            )  # fmt: skip
    except KeyboardInterrupt:
        say(f"stopped; {again}", err=True)
        raise click.Abort from None
    except UserCodeError as error:
        raise UserCodeError(f"{error}; {again}", error.traceback) from error
    except LabError as error:
        raise Failure(f"{error}; {again}" if error.resumable else str(error)) from error
    sink.deliver(found.to_dict, lambda: _show_results(found))
    answered(any(point.steps is not None for point in found.points))


@verb("how far a study is and what it has found", "nqm lab status digits.toml", "nqm lab status digits.db --json")
@results
@options.sink(csv=True)
def status(found: Results, sink: Sink) -> None:
    """Best settings so far for every optimizer and batch size, how many trials they rest on, and which cells are at work."""
    from ..lab.source import changed
    from ..lab.store import Store

    with Store.open(found.path) as store:
        claimed, studies, damaged = store.at_work(found.study.worker), store.studies(), store.damaged()
    cells, uncounted = Counter(found.ahead[key] for key in claimed if key in found.ahead), len(found.uncounted())

    def show() -> None:
        _show_results(found)
        say(f"{len(claimed)} trials are running" if claimed else "nothing is running")
        for cell, trials in cells.items():
            remark([f"at work: {cell}, {trials} trials"])
        for row in damaged:
            remark([f"damaged and not counted: {row}; nqm lab run --retry-failed trains it again"])
        if sentence := changed(found):
            remark([sentence])
        if uncounted:
            why = "a search of another length, or that of another version, asked for them"
            remark([f"{uncounted:,} stored trials are kept and not counted: {why}"])
        if len(studies) > 1:
            names = ", ".join(f"{s.name} ({s.key})" for s in studies)
            say(f"studies in {found.path}: {names}; shown is {found.study.key}")

    told = {"running": len(claimed), "at_work": dict(cells), "damaged": damaged, "uncounted": uncounted}
    sink.deliver(lambda: found.to_dict() | told, show, found.table)


@verb(
    "trials in a store",
    "nqm lab list digits.db --optimizer SGD --batch-size 16",
    "nqm lab list digits.db --outcome failed --csv -",
)
@results
@option("--optimizer LABEL", "List only trials of this optimizer of the study.")
@option("--batch-size -b B", "List only trials at this batch size.", INTEGER)
@option("--outcome NAME", "List only trials with this outcome: reached, stopped, diverged, failed, ...")
@options.sink(csv=True)
def list_(found: Results, optimizer: str | None, batch_size: int | None, outcome: str | None, sink: Sink) -> None:
    """Every trial of a study that has ended: its settings, how it ended, and its steps."""
    from ..nets.training.trial import OUTCOMES

    if outcome is not None and outcome not in OUTCOMES:
        raise unknown("outcome", outcome, OUTCOMES, argument="outcome")
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
        say(f"{len(rows)} trials")

    sink.deliver(lambda: rows, show, lambda: rows)


@verb("one trial and its curve", "nqm lab show digits.db 3f2a", "nqm lab show digits.db 3f2a --csv curve.csv")
@results
@click.argument("key")
@options.sink(csv=True)
def show(found: Results, key: str, sink: Sink) -> None:
    """Show the trial whose key begins with KEY: its settings, how it ended, and the metric over its steps."""
    from ..lab.store import Store

    with Store.open(found.path) as store:
        kept = store.find(key, found.study.worker)
        times, curves = store.curve(kept.id)
    rows = [dict(zip(("step", *curves), row, strict=True)) for row in zip(times, *curves.values(), strict=True)]
    about = trial_row(kept) | {"study": kept.study, "runner": kept.runner}

    def display() -> None:
        show_pairs({k: v for k, v in about.items() if not isinstance(v, bool)})
        if rows:
            show_table(some(rows, TABLE_ROWS), kept.trial.metric)

    data = {"trial": kept.trial.to_dict(), "result": kept.result.to_dict() | {"times": times, "curves": curves}}
    sink.deliver(lambda: about | data, display, lambda: rows)


@verb(
    "results as CSV or Parquet",
    "nqm lab export digits.db --out digits.csv",
    "nqm lab export digits.toml --what curves --out curves.parquet",
)
@results
@option("--what", "Best settings, every trial, or every point of every curve.", ("results", "trials", "curves"))
@option("--out", "File to write: .csv or .parquet.", OutputFile(".csv", ".parquet"))
@options.JSON
def export(found: Results, what: str, out: str | None, as_json: bool) -> None:
    """Write tables for other programs. Without --out, CSV is printed on standard output."""
    if out is not None and not Path(out).absolute().parent.is_dir():
        folder = str(Path(out).parent)
        raise Wrong(f"there is no folder {folder!r} to write {Path(out).name} in; make it, or name another", "out")
    rows = found.table() if what == "results" else list(_exported(found, what))
    parquet = out is not None and Path(out).suffix.lower() == ".parquet"
    if parquet:
        write(out, lambda path: _write_parquet(path, rows))
    csv = None if parquet else out or (None if as_json else "-")
    Sink(as_json, csv).deliver(lambda: rows, lambda: None, lambda: rows)


@verb(
    "save what can be read of a damaged store",
    "nqm lab salvage digits.db --out saved.db",
)
@click.argument("store", metavar="STORE.db", type=INPUT)
@option("--out", "File of the new store.", STORE, required=True)
@options.sink()
def salvage(store: str, out: str, sink: Sink) -> None:
    """Copy every sound row of a store whose file is damaged into a new store; the damaged file is not changed.

    nqm lab run STUDY.toml --store NEW.db then goes on with the new store, and trains the trials that are lost.
    """
    from ..lab.salvage import salvage as saved_from

    found = saved_from(store, out)

    def show() -> None:
        lost = f"{found.lost:,} are lost, and nqm lab run trains them again" if found.lost else "none is lost"
        say(f"{out} has {found.saved['trials']:,} trials; {lost}")

    sink.deliver(lambda: {"store": out, "saved": found.saved, "lost": found.lost}, show)


def _show_costs(study: str, store: Path, workers: int | None, sink: Sink) -> None:
    """What a study will take, in one table and two sentences."""
    from ..lab import Study
    from ..lab.costs import costs
    from ..lab.view import duration

    asked = Study.load(study)
    found = costs(asked, Path(study).absolute().parent, store)
    rows = [cost.row() for cost in found]
    trials, steps = (sum(getattr(cost, name) for cost in found) for name in ("trials", "most_steps"))
    seconds, memory = sum(cost.most_seconds for cost in found), max(cost.memory for cost in found)
    count = workers or os.cpu_count() or 1

    def show() -> None:
        show_table(rows, f"what {study} will take")
        more = "; each range that is widened adds some" if asked.widen else ""
        say(f"{trials:,} trials of {steps:,} steps in all at most; most are stopped far earlier{more}")
        if seconds == seconds:
            each = f"{memory:,.0f} MB for each of {count} workers" if memory == memory else "memory is not known"
            say(f"at most {duration(seconds / count)} on {count} workers; {each}")
        else:
            say("time and memory are not known: the worker's module has no function cost(trial)")

    whole = {"trials": trials, "most_steps": steps, "most_seconds": number(seconds), "memory": number(memory)}
    sink.deliver(lambda: whole | {"workers": count, "table": rows}, show, lambda: rows)


def _check_filters(found: Results, trials: list[Kept], optimizer: str | None, batch_size: int | None) -> None:
    """Refuse an optimizer or a batch size that neither the study nor any of its trials has."""
    labels = dict.fromkeys([*found.study.optimizers, *(kept.label for kept in trials)])
    if optimizer is not None and optimizer not in labels:
        of = next((p.label for p in found.points if p.name == optimizer), None)
        if of is not None:
            raise Wrong(f"{optimizer} is computed from the trials of {of}: --optimizer {of} lists them", "optimizer")
        raise unknown(f"optimizer in {found.study.name} called", optimizer, labels, argument="optimizer")
    sizes = sorted({*found.study.batch_sizes, *(kept.trial.batch_size for kept in trials)})
    if batch_size is not None and batch_size not in sizes:
        known = ", ".join(map(str, sizes))
        raise Wrong(f"there is no batch size {batch_size} in {found.study.name}; there are {known}", "batch_size")


def trial_row(kept: Kept) -> Row:
    """A trial as a row of a table, with a column for each setting and for the steps of each read-out."""
    trial, result = kept.trial, kept.result
    steps = {("steps" if name == "raw" else f"steps {name}"): result.steps.get(name) for name in trial.readouts}
    about = {"key": trial.key[:12], "optimizer": kept.label, "batch_size": trial.batch_size, "kind": kept.kind}
    ended = {"seconds": result.seconds, "how": result.how, "message": result.message}
    return about | {"seed": trial.seed, **trial.settings, "outcome": result.outcome, **steps} | ended


def _exported(found: Results, what: str) -> Iterator[Row]:
    """A row for each trial, or for each point of their curves."""
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


def _write_parquet(path: Path, rows: Table) -> None:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Failure("Parquet needs pyarrow: pip install pyarrow, or write a .csv file") from None
    parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in header(rows)}), path)


def _show_results(found: Results) -> None:
    """One table for each optimizer of the study, and remarks on points that did not arrive or lie at an end of a range."""
    goal = f"{found.study.metric} {found.study.target:g}"
    hidden = {"optimizer", "message", "key", "coverage", "seeds", "arrived"}
    for name in found.names:
        points = found[name]
        empty = {key for key in ("at_edge", "failed", "more_than") if not any(getattr(p, key) for p in points)}
        show_table(readable([p.row() for p in points], hidden | empty), f"{name}, steps to {goal}")
        told = dict.fromkeys(f"batch size {p.batch_size}: {p.message}" for p in points if not p.steps)
        remark(told)
    coverage = {p.confirmed.coverage for p in found.points if p.confirmed}
    if coverage:
        share = f"{100 * min(coverage):.3g}%"
        say(f"confirmed: median over fresh seeds; it lies between low and high with probability {share}")
    remark(found.edges())


for command in (run, status, list_, show, export, salvage):
    lab.add_command(command)
