"""Verbs that plan with a forecast: the best schedule, how long to train, the run to make next, the critical batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click import Choice

from ..show.tables import Row, some
from . import forecast_shared as shared
from . import options
from .forecast import forecast
from .options import INPUT, INTEGER, NUMBER, OptionType, Whole, flag, option, verb
from .output import TABLE_ROWS, Sink, progress, readable, show_table
from .screen import remark, say

if TYPE_CHECKING:
    from ..logs import BestSchedule, Forecast


class LengthList(OptionType):
    """Numbers of steps, separated by commas."""

    name, metavar = "lengths", "N,N,..."

    def read(self, text: str) -> list[int]:
        return [INTEGER.read(part) for part in text.split(",")]


MAX_RATE_HELP = "Largest learning rate; the largest of the logs if omitted."
MIN_RATE_HELP = "Smallest learning rate after the warm-up."


@verb(
    "the schedule that ends with the least loss",
    "nqm forecast best forecast.json --steps 24000",
    "nqm forecast best forecast.json --steps 48000 --max-lr 3e-4 --min-lr 3e-5 --plot best.png",
    "nqm forecast best forecast.json --steps 30000 --trunk run.csv --as torch",
    "nqm forecast best forecast.json --steps 24000 --free --pieces 20 --as text",
)
@shared.given
@option("--steps", "Steps of the whole run, with those of --trunk.", INTEGER, required=True)
@option("--max-lr LR", MAX_RATE_HELP, NUMBER)
@option("--min-lr LR", MIN_RATE_HELP, NUMBER, default=0.0)
@option("--pieces", "Number of straight lines after the warm-up.", Whole(1, 500), default=50)
@flag("--free", "Let the rate rise, too; without this it may only fall.")
@option("--warmup", "Steps of the warm-up; as in the logs if omitted.", INTEGER)
@option("--trunk LOG", "Log of what has been trained already: plan the rest.", INPUT)
@option("--batch-size -b B", "Batch size; that of the logs if omitted.", NUMBER)
@shared.COLUMNS_OPTION
@shared.EXTRAPOLATE
@option("--as form", "Print the schedule alone, in this form.", Choice(("text", "csv", "torch", "megatron")))
@options.sink(csv=True, plot=True)
def best(
    found: Forecast, steps: int, max_lr: float | None, min_lr: float, pieces: int, free: bool, warmup: int | None,
    trunk: str | None, batch_size: float | None, columns: tuple[tuple[str, str], ...], extrapolate: bool, form: str | None,
    sink: Sink,
) -> None:  # fmt: skip
    """Find the learning rates that end with the least expected loss, and compare them with cosine, linear and WSD.

    --as prints the schedule alone: as text for --schedule, as CSV, as a snippet for torch.optim.lr_scheduler.LambdaLR, or as
    the batch sizes of Megatron's --step-batch-size-schedule.
    """
    _only_one(form, sink)
    begun = shared.one_log(trunk, columns, "trunk") if trunk else None
    with progress("searching the best schedule"):
        plan = found.optimal_schedule(
            steps, max_lr, min_lr, pieces=pieces, monotone=not free, warmup=warmup, trunk=begun, batch_size=batch_size,
            extrapolate=extrapolate,
        )  # fmt: skip
    # A form that this schedule does not have is refused before files are written.
    printed = _written(plan)[form]() if form else ""

    def show() -> None:
        if form:
            click.echo(printed.rstrip("\n"))
        else:
            _show_best(plan)
        shared.count_remarks(found, err=bool(form))

    sink.deliver(plan.to_dict, show, plan.table, plan.plot)


@verb(
    "the loss against the length of training",
    "nqm forecast length forecast.json",
    "nqm forecast length forecast.json --steps 12k,24k,48k --min-lr 3e-5 --plot lengths.png",
    "nqm forecast length forecast.json --max-lr 2e-4 --csv lengths.csv",
    "nqm forecast length forecast.json --steps 24k --json",
)
@shared.given
@option(
    "--steps lengths",
    "Lengths, such as 12k,24k,48k; half to four times that of the longest log if omitted.",
    LengthList(),
)
@option("--max-lr LR", MAX_RATE_HELP, NUMBER)
@option("--min-lr LR", MIN_RATE_HELP, NUMBER, default=0.0)
@shared.EXTRAPOLATE
@options.sink(csv=True, plot=True)
def length(
    found: Forecast, lengths: list[int] | None, max_lr: float | None, min_lr: float, extrapolate: bool, sink: Sink
) -> None:
    """Say which loss the best schedule of each length ends with, and what another 10% of its steps would buy."""
    with shared.about_option({"lengths": "lengths", "steps": "lengths"}), progress("searching the best schedules"):
        by_length = found.losses_by_length(lengths, max_lr, min_lr, extrapolate=extrapolate)

    def show() -> None:
        last = f"{by_length.gain[-1]:.4f} lower than after {by_length.steps[-1]:,} steps"
        say(f"with 10% more steps than the longest of these runs, the loss would be {last}")
        remark([f"The longest of these runs: {by_length.sentences[-1]}"])
        show_table(shared.spelled(by_length.table()), "Least loss by the length of training", apart=True)
        shared.count_remarks(found)

    sink.deliver(by_length.to_dict, show, by_length.table, by_length.plot)


@verb(
    "the run to make next",
    "nqm forecast next forecast.json",
    "nqm forecast next forecast.json --steps 48000 --max-lr 6e-4 --json",
)
@shared.given
@option(
    "--steps",
    "Steps of the run, and of the best schedule that it is for; those of the longest log if omitted.",
    INTEGER,
)
@option("--max-lr LR", MAX_RATE_HELP, NUMBER)
@shared.EXTRAPOLATE
@options.sink(csv=True)
def next_(found: Forecast, steps: int | None, max_lr: float | None, extrapolate: bool, sink: Sink) -> None:
    """Say which run would narrow the interval of the best schedule's final loss most."""
    with progress("comparing runs"):
        advice = found.next_run(steps, max_lr, extrapolate=extrapolate)

    def show() -> None:
        say(advice.sentence)
        show_table(advice.table(), f"Half-width of the interval, now {advice.width:.4f}", apart=True)
        shared.count_remarks(found)

    sink.deliver(advice.to_dict, show, advice.table)


@verb(
    "the critical batch size along a run",
    "nqm forecast batch sizes.json",
    "nqm forecast batch sizes.json --schedule 'cosine(4000)' --peak 0.1 --plot ramp.png",
    "nqm forecast batch sizes.json --as megatron",
)
@shared.given
@shared.planned("Schedule of the run; that of the longest log if omitted.")
@option(
    "--tokens-per-example",
    "Tokens of an example, as in Megatron's --seq-length.",
    NUMBER,
    default=1.0,
)
@shared.EXTRAPOLATE
@option("--as form", "Print the batch sizes alone, for --step-batch-size-schedule.", Choice(("megatron",)))
@options.sink(csv=True, plot=True)
def batch(
    found: Forecast, run: shared.PlannedRun, tokens_per_example: float, extrapolate: bool, form: str | None, sink: Sink
) -> None:
    """Say along a run which batch size makes the noise as large as what is left to learn, with a 90% interval.

    The logs must have two or more batch sizes. The ramp of batch sizes that this suggests doubles whenever the critical batch
    size has doubled; --as megatron prints it for Megatron's --step-batch-size-schedule.
    """
    _only_one(form, sink)
    with shared.about_option({"logs": "path", "steps": "schedule"}):
        ramp = found.critical_batch_size(run.schedule, peak=run.peak, extrapolate=extrapolate)
    ramped = ramp.megatron(tokens_per_example)

    def show() -> None:
        click.echo(ramped if form else f"for --step-batch-size-schedule: {ramped}")
        remark([ramp.sentence] if ramp.sentence else [], err=bool(form))
        if not form:
            show_table(readable(some(ramp.table(), TABLE_ROWS), ()), "Critical batch size", apart=True)
        shared.count_remarks(found, err=bool(form))

    sink.deliver(lambda: ramp.to_dict() | {"megatron": ramped}, show, ramp.table, ramp.plot)


for command in (best, length, next_, batch):
    forecast.add_command(command)


def _only_one(form: str | None, sink: Sink) -> None:
    if form and (sink.as_json or sink.csv == "-"):
        raise click.UsageError("--as, --json and --csv - each write to standard output; give one of them")


def _written(plan: BestSchedule) -> dict[str, Callable[[], str]]:
    """The forms in which --as prints a schedule."""
    return {"text": plan.text, "csv": plan.to_csv, "torch": plan.torch, "megatron": plan.megatron}


def _show_best(plan: BestSchedule) -> None:
    say(shared.ending_of(plan.steps, plan.loss, plan.low, plan.high))
    click.echo(f"peak {plan.peak:.6g}, schedule {plan.text()}")
    remark([plan.outlook.sentence])
    end: Row = {"schedule": "best", "peak": plan.peak, "loss": plan.loss, "above": 0.0}
    show_table(shared.spelled([end, *plan.rivals]), f"Tuned schedules of {plan.steps:,} steps", apart=True)
