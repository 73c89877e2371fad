"""What the verbs of forecasts have in common: their group, their options, and how they print."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from ..show.tables import Table
from ..types import Wrong
from . import options
from .options import INPUT, NUMBER, Decorator, OptionType, Verbs, flag, option
from .output import readable
from .screen import say

if TYPE_CHECKING:
    from ..engine.schedule import Schedule
    from ..logs import Forecast, Log

LOSSES = frozenset({"loss", "low", "high", "measured", "final_loss", "forecast"})
"""The columns of tables on the screen that hold losses."""

MOST_REMARKS = 12  # nqm forecast fit prints so many different sentences on single logs; nqm forecast show prints all.


@click.group(
    "forecast", cls=Verbs, invoke_without_command=True, short_help="what another schedule would give, from logs"
)
@click.pass_context
def forecast(ctx: click.Context) -> None:
    """From logs of training runs: the loss that another schedule, length or batch size would give, and the best schedule.

    nqm forecast fit reads the logs and writes a forecast; the other verbs ask it. docs/forecast.md has the model.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class ColumnText(OptionType):
    """A role of a column and its name in the files, such as ``loss=val/loss``."""

    name, metavar = "column", "ROLE=NAME"

    def read(self, text: str) -> tuple[str, str]:
        role, equals, name = text.partition("=")
        if not (role and equals and name):
            raise Wrong(f"{text!r:.60} is not ROLE=NAME, such as loss=val/loss")
        return role.strip(), name.strip()


_roles = "step, tokens, examples, loss, lr, batch_size or run"
COLUMNS_OPTION = option(
    "--map columns",
    f"Column of a role ({_roles}), such as loss=val/loss; may be repeated.",
    ColumnText(),
    multiple=True,
)


def _loaded(path: str) -> Forecast:
    from ..logs import Forecast

    return Forecast.load(path)


given = options.bundle("found", _loaded, click.argument("path", metavar="FORECAST", type=INPUT))

PEAK = option(
    "--peak LR", "Learning rate at which the multiplier of --schedule is 1; the largest of the logs if omitted.", NUMBER
)


EXTRAPOLATE = flag("--extrapolate", "Answer beyond the reach of the logs, too, where nothing has checked a forecast.")


class PlannedRun(NamedTuple):
    """A schedule with its peak rate, or neither."""

    schedule: Schedule | None
    peak: float | None


def _planned(schedule: Schedule | None, peak: float | None) -> PlannedRun:
    if peak is not None and schedule is None:
        raise click.UsageError("--peak is for --schedule: give both")
    return PlannedRun(schedule, peak)


def planned(help: str) -> Decorator:
    """--schedule, with its help, and --peak, as one `PlannedRun`."""
    return options.bundle("run", _planned, option("--schedule", help, options.SCHEDULE), PEAK)


def count_remarks(found: Forecast, err: bool = False) -> None:
    """Print how many remarks a forecast has, and the command that shows them; `nqm forecast fit` has printed them before."""
    if count := len(remarks_of(found)):
        file = shlex.quote(click.get_current_context().params["path"])
        say(f"({count} {'remark' if count == 1 else 'remarks'}: nqm forecast show {file})", err)


def remarks_of(found: Forecast, most: float = math.inf) -> list[str]:
    """What was assumed when the logs were read, and what they cannot decide; at most ``most`` sentences are on single logs."""
    about: dict[str, list[str]] = {}
    for log in found.logs:
        for remark in log.remarks:
            about.setdefault(remark, []).append(log.name or "a log")
    lines = [f"{_names(names, len(found.logs))}: {remark}" for remark, names in about.items()]
    if len(lines) > most:
        lines = [*lines[: int(most)], f"nqm forecast show prints {len(lines) - most:,} more sentences on single logs"]
    return [*lines, *found.remarks, *found.undecided]


def _names(names: list[str], logs: int) -> str:
    """The logs that a remark is about."""
    if len(names) == logs > 1:
        return "all logs"
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@contextmanager
def about_option(names: Mapping[str | None, str]) -> Iterator[None]:
    """Errors about an argument of a function are told as errors about the option that gives this argument here."""
    try:
        yield
    except Wrong as error:
        raise Wrong(str(error), names.get(error.argument, error.argument or "")) from None


def one_log(file: str, columns: tuple[tuple[str, str], ...], argument: str, like: Log | None = None) -> Log:
    """The one run that a file holds, with the losses that ``like`` has if the caller names none."""
    from ..logs import read_logs

    with about_option(dict.fromkeys(("paths", "schedule", "tokens_per_step", "batch_size"), argument)):
        logs = read_logs(file, columns=dict(columns), like=like)
    if len(logs) != 1:
        raise Wrong(f"{file!r} holds {len(logs)} runs; give a file that holds one", argument)
    return logs[0]


def spelled(rows: Table) -> Table:
    """Rows for the screen, with five digits of every loss: schedules differ in the fourth."""
    return readable([{name: _shown(name, v) for name, v in row.items()} for row in rows], ())


def _shown(name: str, value: object) -> object:
    """A cell: a loss with its digits; an end of an interval that does not exist is missing."""
    if name not in LOSSES or not isinstance(value, float | int):
        return value
    return None if math.isnan(value) else _loss(value)


def _loss(value: float) -> str:
    return f"{value:#.5g}"


def ending_of(steps: int, loss: float, low: float, high: float) -> str:
    """The last line of an answer: a loss with its interval, or that there is none."""
    if math.isnan(low):
        return f"loss {_loss(loss)} after {steps:,} steps by the law alone: there is no interval"
    between = f"between {_loss(low)} and {_loss(high)}"
    return f"loss {_loss(loss)} after {steps:,} steps; 90% of such runs end {between}"
