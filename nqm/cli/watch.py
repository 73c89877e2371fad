"""The verb watch: what the monitor of a training sees, in the terminal. It does not need torch."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from ..show.tables import some
from . import options
from .options import INPUT, NUMBER, flag, option, verb
from .output import TABLE_ROWS, Sink, readable, show_table
from .screen import remark

if TYPE_CHECKING:
    from ..nets.monitoring.watching import Watched


@verb(
    "a running training against its critical batch size",
    "nqm watch run.jsonl",
    "nqm watch run.jsonl --once --json",
)
@click.argument("path", metavar="FILE", type=INPUT)
@flag("--once", "Print the present state and end, instead of following the file.")
@option("--seconds", "Time from one look at the file to the next.", NUMBER, default=2)
@options.sink(csv=True)
def watch(path: str, once: bool, seconds: float, sink: Sink) -> None:
    """Show where the batch of a training stands against the critical size, what doubling it would save, and a ramp.

    FILE is what nqm.nets.Monitor writes from inside the training. In a terminal the picture is renewed whenever the file grows,
    until Ctrl-C; otherwise, and with --once, --json or --csv -, it is printed once.
    """
    from ..nets.monitoring.watching import watch as read

    following = sys.stdout.isatty() and not (once or sink.as_json or sink.csv)
    found = read(path)
    sink.deliver(found.to_dict, lambda: _show(found, clear=following), found.table)
    while following:
        time.sleep(max(seconds, 0.1))
        new = read(path)
        if len(new.columns["step"]) != len(found.columns["step"]):
            found = new
            _show(found, clear=True)


def _show(found: Watched, clear: bool) -> None:
    if clear:
        click.clear()
    show_table(readable(some(found.table(), TABLE_ROWS), ()), "Noise scale over the training")
    remark(found.sentences())
    click.echo()
    if ramp := found.ramp():
        known = {True: "by trend", False: "measured"}
        rows = [
            {"from step": r["step"], "batch size": r["batch_size"], "known": known[bool(r["extrapolated"])]}
            for r in ramp
        ]
        show_table(rows, "Ramp that follows the critical batch size")
