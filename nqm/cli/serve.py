"""The verb that opens the explorer in the browser. The server is imported inside it."""

from __future__ import annotations

import errno
import os
import socket

import click

from ..types import Wrong
from .errors import Failure
from .options import NUMBER, Whole, flag, option, verb

PORT = 8777


@verb(
    "explore all of this in the browser",
    "nqm serve",
    "nqm serve --port 9000 --no-open",
    "nqm serve --host 0.0.0.0 --time-limit 10",
)
@option("--port", "Port to listen on; 0 takes any that is free.", Whole(0, 65535), default=PORT)
@option("--host ADDRESS", "Address to listen on; other than loopback, other machines can connect.", default="127.0.0.1")
@flag("--no-open", "Do not open the browser.")
@option("--time-limit SECONDS", "Stop a computation after this many seconds.", NUMBER, default=30)
def serve(port: int, host: str, no_open: bool, time_limit: float) -> None:
    """Open a page in the browser on which every control moves exact curves; Ctrl-C ends it.

    Every number comes from JSON endpoints on this machine, which other programs may use too: see docs/web.md.
    """
    if not time_limit > 0:
        raise Wrong(f"it must be a positive number of seconds, got {time_limit:g}", argument="time_limit")
    if not host.strip():  # The system would take it for every address of the machine.
        raise Wrong(f"it must be an address such as 127.0.0.1, got {host!r}", argument="host")
    import uvicorn  # noqa: F401 - the server needs it later, and a missing one is told now

    from ..web import guard, server

    try:
        listening = server.listen(host, port)
    except OSError as error:
        raise Failure(f"cannot listen on {host}, port {port}: {_why(error)}") from None
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
