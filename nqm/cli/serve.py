"""Verbs for looking around: a map of settings, and the explorer in the browser. The server is imported inside it."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

import click

from . import options, output
from .options import AXIS, FAILED, NUMBER, Verb
from .output import Sink, progress, show_pairs

if TYPE_CHECKING:
    from ..engine.spectrum import Spectrum
    from ..optimizers import Optimizer
    from ..search import Axis, PhaseMap

PORT = 8777


@click.command(
    "map", cls=Verb, short_help="steps to a target over two settings",
    examples=[
        "nqm map HeavyBall -b 1024 --target 0.01 --x lr=0.001..8 --y momentum=0..0.999",
        "nqm map SGD --target 0.01 --x lr=0.001..4..60 --y batch_size=2^2..2^20..10 --csv map.csv",
        "nqm map 'EMA(SGD(0.5))' --target 0.1 --x decay=0..0.9999 --y batch_size=4..4096 --json",
    ],
)  # fmt: skip
@options.optimizer
@click.option(
    "--x", type=AXIS, metavar="AXIS", required=True, help="NAME=LOW..HIGH or NAME=LOW..HIGH..N: lr=0.001..4..40."
)
@click.option(
    "--y", type=AXIS, metavar="AXIS", required=True, help="The other; a hyper-parameter by name, or batch_size."
)
@click.option("--batch-size", "-b", type=NUMBER, metavar="B", help="Batch size, unless it is an axis.")
@options.target
@options.spectrum
@options.as_json
@options.csv
def map_(
    optimizer: Optimizer, x: Axis, y: Axis, batch_size: float | None, target: float, spectrum: Spectrum,
    as_json: bool, csv: str | None,
) -> None:  # fmt: skip
    """Steps to a target over a grid of two settings, the best of them, and where stability ends.

    Axes are spaced as the parameter is searched: learning rates and batch sizes by equal factors, momenta and decays by
    equal factors of 1 - value.
    """
    from ..problems.quadratic import Quadratic
    from ..search import phase_map

    sink = Sink(as_json, csv)
    with progress(f"mapping {optimizer}"):
        found = phase_map(Quadratic(spectrum), optimizer, x, y, batch_size, target=target)
    sink.deliver(found.to_dict, lambda: _show_map(found), found.table)
    if found.best() is None:
        raise click.exceptions.Exit(FAILED)


def _show_map(found: PhaseMap) -> None:
    """A few rows and columns of the map, and its best cell."""
    few = slice(None, None, max(1, len(found.x.values) // 8)), slice(None, None, max(1, len(found.y.values) // 16))
    rows = [
        {found.y.name: float(y), **{f"{found.x.name}={x:.3g}": T for x, T in zip(found.x.values[few[0]], row[few[0]], strict=True)}}
        for y, row in zip(found.y.values[few[1]], found.steps[few[1]], strict=True)
    ]  # fmt: skip
    output.show_table(rows)
    best = found.best()
    if best is None:
        click.echo(f"no cell reaches {found.target:g}")
        return
    show_pairs({"fewest steps": best["steps"], "at": best["optimizer"], "batch size": best["batch_size"]})


@click.command(
    "serve", cls=Verb, short_help="explore all of this in the browser",
    examples=["nqm serve", "nqm serve --port 9000 --no-open", "nqm serve --host 0.0.0.0 --time-limit 10"],
)  # fmt: skip
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Where to listen; 0 for any free one.",
)
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Let others than this machine in."
)
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option(
    "--time-limit", type=NUMBER, metavar="SECONDS", default=30, show_default=True, help="Stop a computation after this."
)
def serve(port: int, host: str, no_open: bool, time_limit: float) -> None:
    """Open a page in the browser on which every control moves exact curves; Ctrl-C ends it.

    Every number comes from JSON endpoints on this machine, which other programs may use too: see docs/web.md.
    """
    if not 0 < time_limit < float("inf"):
        raise click.BadParameter(
            f"it must be a positive number of seconds, got {time_limit:g}", param_hint="--time-limit"
        )
    try:
        import uvicorn  # noqa: F401 - the server needs it later, and is there to say so now

        from ..web import guard, server
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("starlette", "uvicorn"):
            raise click.ClickException(f"nqm serve needs {missing}: pip install 'nqm[web]'") from None
        raise
    try:
        listening = server.listen(host, port)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}, port {port}: {_why(error)}") from None
    port = listening.getsockname()[1]
    if host not in guard.LOOPBACK:
        click.echo(
            f"Listening on {host}: whoever reaches this machine on port {port} can use its processors; there is no password.",
            err=True,
        )
    address = server.address(host, port)
    click.echo(f"nqm explorer on {address} (Ctrl-C ends it)")
    if not no_open:
        import webbrowser

        webbrowser.open(address)
    server.run(listening, host, time_limit)


def _why(error: OSError) -> str:
    """What keeps a server from listening, and what to do."""
    if error.errno in (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN):
        return "this machine has no such address; leave --host out, or give one that it has"
    return f"{os.strerror(error.errno or 0)}; try --port 0"
