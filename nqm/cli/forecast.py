"""Verbs on training logs: fit a law to them, and say what other schedules would give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from ..show.tables import Row, Table, some
from ..types import Wrong
from . import options
from .forecast_shared import (
    COLUMNS_OPTION,
    EXTRAPOLATE,
    MOST_REMARKS,
    PEAK,
    PlannedRun,
    about_option,
    count_remarks,
    ending_of,
    forecast,
    given,
    one_log,
    planned,
    remarks_of,
    spelled,
)  # fmt: skip
from .options import INPUT, INTEGER, NUMBER, PICTURE, OptionType, OutputFile, option, verb
from .output import TABLE_ROWS, Sink, progress, show_table, write
from .screen import remark, say

if TYPE_CHECKING:
    from ..engine.schedule import Schedule
    from ..logs import Forecast, Log, Outlook

DEFAULT_FORECAST = "forecast.json"  # nqm forecast fit writes this file if --out is omitted.


class ReadingOptions(TypedDict):
    """What is said of all log files: columns, rates, and the settings of the training."""

    columns: Mapping[str, str]
    schedule: Schedule | None
    peak: float | None
    batch_size: Mapping[str, float] | None
    optimizer: str | None
    weight_decay: float | None
    tokens_per_step: float | None


class FileSizeText(OptionType):
    """A batch size, or one for a run, a file, a folder or a pattern, such as ``run.csv=64``."""

    name, metavar = "batch size", "[FILE=]B"

    def read(self, text: str) -> tuple[str, float]:
        from ..text.values import parse_number

        file, equals, number = text.rpartition("=")
        if equals and not file:
            raise Wrong(f"{text!r:.60} is not FILE=B, such as run.csv=64")
        return file or "*", parse_number(number, finite=True)


def _reading(
    columns: tuple[tuple[str, str], ...], schedule: Schedule | None, peak: float | None,
    batch_sizes: tuple[tuple[str, float], ...],
    optimizer: str | None, weight_decay: float | None, tokens_per_step: float | None,
) -> ReadingOptions:  # fmt: skip
    sizes = dict(batch_sizes)
    if len(sizes) < len(batch_sizes):
        twice = next(name for i, (name, _) in enumerate(batch_sizes) if name in dict(batch_sizes[:i]))
        raise click.UsageError(f"--batch-size is given twice for {'all files' if twice == '*' else repr(twice)}")
    return ReadingOptions(
        columns=dict(columns), schedule=schedule, peak=peak, batch_size=sizes or None, optimizer=optimizer,
        weight_decay=weight_decay, tokens_per_step=tokens_per_step,
    )  # fmt: skip


reading = options.bundle(
    "asked", _reading, COLUMNS_OPTION,
    option("--schedule", "Schedule of the learning rate, if the logs do not have it; needs --peak.", options.SCHEDULE),
    option("--peak LR", "Learning rate at which the multiplier of --schedule is 1.", NUMBER),
    option(
        "--batch-size batch_sizes -b",
        "Examples in a batch, if the logs do not have it; for single files run.csv=64, which may be repeated.",
        FileSizeText(),
        multiple=True,
    ),
    option(
        "--optimizer NAME",
        "Optimizer of the runs, such as AdamW or SGD, or other for one that nqm does not know; AdamW if omitted.",
    ),
    option("--weight-decay", "Weight decay of the runs.", NUMBER),
    option("--tokens-per-step", "Tokens of one step, if the logs count tokens.", NUMBER),
)  # fmt: skip


@verb(
    "fit the law of a forecast to logs",
    "nqm forecast fit example --optimizer AdamW --weight-decay 0.1",
    "nqm forecast fit runs/*.csv --out forecast.json --plot forecast.png",
    "nqm forecast fit runs --map loss=train_loss --optimizer AdamW --weight-decay 0.1 -b 512 --json",
    "nqm forecast fit rateless.csv --schedule 'warmup(100) + cosine(1900)' --peak 3e-4 --out one.json",
)
@click.argument("paths", metavar="LOGS...", type=click.Path(), nargs=-1, required=True)
@reading
@option("--out", f"File for the forecast, .json; {DEFAULT_FORECAST} if omitted.", OutputFile(".json"))
@options.sink(csv=True, plot=True)
def fit(paths: tuple[str, ...], asked: ReadingOptions, out: str | None, sink: Sink) -> None:
    """Fit the law of a forecast to the logs of one model and optimizer, and write the forecast to a file.

    LOGS are files, folders and patterns: CSV and TSV, JSON lines, trainer_state.json of Hugging Face, exports of W&B,
    metrics.csv of Lightning, and event files of TensorBoard, also compressed. A file may hold several runs. LOGS may also be
    the word example: three short logs that come with nqm.

    Below the parameters of the law it prints what was assumed when the logs were read, and what they cannot decide. The other
    verbs only say how many such remarks there are, and nqm forecast show prints them again.
    """
    from ..logs import forecast as fit_logs
    from ..logs import read_logs

    file = out or _default_file()
    with about_option({"logs": "paths", "batch_size": "batch_sizes"}), progress("fitting"):
        found = fit_logs(read_logs(paths, **asked))
    write(file, found.save)

    sink.deliver(found.to_dict, lambda: _show_law(found, MOST_REMARKS), found.table, found.plot)


@verb(
    "the law of a forecast, and all remarks on it",
    "nqm forecast show forecast.json",
    "nqm forecast show forecast.json --json",
)
@given
@options.sink(csv=True)
def show(found: Forecast, sink: Sink) -> None:
    """Print the parameters of the law, how close it comes to the logs, and all remarks.

    Remarks say what was assumed when the logs were read, and what the logs cannot decide.
    """
    sink.deliver(found.to_dict, lambda: _show_law(found), found.table)


@verb(
    "the loss that another schedule would give",
    "nqm forecast predict forecast.json --schedule 'wsd(24000, 2160, 4000, end=0.1)' --peak 3e-4",
    "nqm forecast predict forecast.json --schedule 'warmup(2160) + cosine(69840, end=0.1)' --plot outlook.png",
    "nqm forecast predict forecast.json --schedule 'wsd(24000, 2160, 4000)' --steps 22000 --json",
    "nqm forecast predict forecast.json --log run.csv --csv -",
)
@given
@option("--schedule", "Multipliers on --peak over steps, such as 'warmup(100) + cosine(900)'.", options.SCHEDULE)
@option("--log", "Predict the run of this log, from its learning rates, beside what it measured.", INPUT)
@PEAK
@option("--steps", "Last step; that of the schedule or of the log if omitted.", INTEGER)
@option("--batch-size -b B", "Batch size; that of the logs if omitted.", NUMBER)
@COLUMNS_OPTION
@EXTRAPOLATE
@options.sink(csv=True, plot=True)
def predict(
    found: Forecast, schedule: Schedule | None, log: str | None, peak: float | None, steps: int | None,
    batch_size: float | None, columns: tuple[tuple[str, str], ...], extrapolate: bool, sink: Sink,
) -> None:  # fmt: skip
    """Predict the loss of a run that was not made, with the interval that holds the loss of 90% of such runs.

    Give its schedule with --schedule, or a log of the run with --log: then only the learning rates of the log are used, and its
    losses stand beside the predicted ones.
    """
    if (schedule is None) == (log is None):
        raise click.UsageError("give --schedule or --log, but not both")
    if log is not None and peak is not None:
        raise click.UsageError("--peak is for --schedule; a log has its own learning rates")
    measured = one_log(log, columns, "log", found.logs[0]) if log else None
    with about_option({"lr": "log" if log else "schedule"}):
        outlook = found.predict(
            schedule or measured, steps, peak=peak, batch_size=batch_size, extrapolate=extrapolate  # type: ignore[arg-type]
        )  # fmt: skip
    rows = _beside(outlook, measured)

    def show() -> None:
        say(ending_of(outlook.steps[-1], outlook.loss[-1], outlook.low[-1], outlook.high[-1]))
        remark([outlook.sentence, *_compared(found, measured)])
        show_table(spelled(some(rows, TABLE_ROWS)), "Loss over the steps", apart=True)
        count_remarks(found)

    sink.deliver(lambda: _told(outlook, measured), show, lambda: rows, lambda path: outlook.plot(path, measured))


@verb(
    "leave each log out, and forecast it from the others",
    "nqm forecast check forecast.json",
    "nqm forecast check forecast.json --csv left-out.csv --plot left-out.png",
)
@given
@options.sink(csv=True, plot=True)
def check(found: Forecast, sink: Sink) -> None:
    """Leave each log out in turn, fit the law to the others, and compare the log with its forecast."""
    with about_option({"logs": "path"}), progress("leaving logs out"):
        left = found.check()

    def show() -> None:
        show_table(spelled(left.table()), "Each log forecast from the others")
        count_remarks(found)

    sink.deliver(left.to_dict, show, left.table, left.plot)


@verb(
    "draw logs, their fit, a forecast and the learning rates",
    "nqm forecast plot forecast.json",
    "nqm forecast plot forecast.json --schedule 'wsd(24000, 2160, 4000)' --peak 3e-4 --out wsd.pdf --csv points.csv",
)
@given
@planned("Draw the forecast of this schedule, too, with its interval.")
@EXTRAPOLATE
@option("--out", "Picture to write: .png, .pdf or .svg.", PICTURE, default="forecast.png")
@options.sink(csv=True)
def plot(found: Forecast, run: PlannedRun, extrapolate: bool, out: str, sink: Sink) -> None:
    """Draw the losses of the logs, those of the fitted law, and the forecast of a schedule, with the learning rates below.

    --json and --csv have what is drawn.
    """
    planned_run = run.schedule and found.predict(run.schedule, peak=run.peak, extrapolate=extrapolate)
    outlooks = {"forecast": planned_run} if planned_run else {}
    write(out, lambda path: found.plot(str(path), list(outlooks.values())))
    drawn = [(log.name, found.predict(log), log) for log in found.logs] + [(n, o, None) for n, o in outlooks.items()]

    def show() -> None:
        say(_fitted_to(found))
        if planned_run:
            remark([planned_run.sentence])
        count_remarks(found)

    sink.deliver(
        lambda: {"lines": [{"log": name, **_told(outlook, log)} for name, outlook, log in drawn]},
        show,
        lambda: [{"log": name, **row} for name, outlook, log in drawn for row in _beside(outlook, log)],
    )


for command in (fit, show, predict, check, plot):
    forecast.add_command(command)


def _show_law(found: Forecast, most: float = math.inf) -> None:
    """Print the parameters of the law, and at most ``most`` remarks on single logs."""
    say(_fitted_to(found))
    rows = [{**row, "decided": "yes" if row["decided"] else "no"} for row in found.table()]
    show_table(rows, "Parameters of the law", apart=True)
    remark(remarks_of(found, most))


def _fitted_to(found: Forecast) -> str:
    """The sentence on how close the law comes to the logs."""
    from ..logs.sheets import counted

    logs = counted(len(found.logs), "log")
    them = "them" if len(found.logs) > 1 else "it"
    if found.noisy:
        beside = "nothing" if not found.misfit else f"{100 * found.misfit:.2g}% of the loss"
        scatter = f"the losses scatter by {100 * found.noise:.2g}% as those of single batches do"
        return f"{logs} of {found.optimizer}; {scatter}, and beside that the law misses {them} by {beside}"
    return f"{logs} of {found.optimizer}; the law fits {them} to {100 * found.error:.2g}% of the loss"


def _default_file() -> str:
    """The default file of a forecast. It is refused if it exists and is not a forecast that this version reads."""
    from ..logs import Forecast
    from ..logs.saving import is_forecast

    path = Path(DEFAULT_FORECAST)
    if path.is_file():
        try:
            Forecast.load(path)
        except Wrong:
            kind = "a forecast of another version of nqm, or damaged" if is_forecast(path) else "not a forecast"
            raise Wrong(f"{str(path)!r} exists and is {kind}; name another file with --out", argument="out") from None
    with about_option({None: "out"}):
        options.check_writable(path)
    return str(path)


def _beside(outlook: Outlook, measured: Log | None) -> Table:
    """The predicted losses, beside those of a log at the steps that it has."""
    if measured is None:
        return outlook.table()
    known = dict(zip(measured.step.tolist(), measured.loss.tolist(), strict=True))
    return [{**row, "measured": known.get(row["step"])} for row in outlook.table()]


def _compared(found: Forecast, measured: Log | None) -> list[str]:
    """Which losses of a log stand beside the predicted ones, if the forecast was fitted to those of another column."""
    fitted = found.logs[0].column
    if measured is None or not fitted or not measured.column or measured.column == fitted:
        return []
    return [f"The measured losses are the column {measured.column!r}; the forecast was fitted to {fitted!r}."]


def _told(outlook: Outlook, measured: Log | None) -> Row:
    """A prediction for --json, with the losses of a log at its steps."""
    rows = _beside(outlook, measured)
    return outlook.to_dict() | ({"measured": [row["measured"] for row in rows]} if measured else {})
