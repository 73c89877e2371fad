"""The verb that starts the explorer and opens it in the browser. The server is imported when it is called."""

from __future__ import annotations

import errno
import os
import socket

import click

from ..types import Wrong
from .errors import Failure
from .options import NUMBER, Whole, flag, option, verb
from .screen import say

PORT = 8777


@verb(
    "explore all of this in the browser",
    "nqm serve",
    "nqm serve --port 9000 --no-open",
    "nqm serve --host 0.0.0.0 --time-limit 10",
)
@option("--port", "Port to listen on; 0 takes any free port.", Whole(0, 65535), default=PORT)
@option("--host ADDRESS", "Address to listen on; only loopback keeps other machines out.", default="127.0.0.1")
@flag("--no-open", "Do not open the browser.")
@option("--time-limit SECONDS", "Stop a computation after this many seconds.", NUMBER, default=30)
def serve(port: int, host: str, no_open: bool, time_limit: float) -> None:
    """Open the explorer, a page in the browser on which every control moves exact curves. Ctrl-C ends it.

    Every number comes from JSON endpoints on this machine, which other programs may use too: see docs/web.md.
    """
    if not time_limit > 0:
        raise Wrong(f"it must be a positive number of seconds, got {time_limit:g}", argument="time_limit")
    if not host.strip():  # An empty address would mean all addresses of the machine.
        raise Wrong(f"it must be an address such as 127.0.0.1, got {host!r}", argument="host")
    import uvicorn  # noqa: F401 - if it is missing, say so before listening

    from ..web import guard, server

    try:
        listening = server.listen(host, port)
    except OSError as error:
        why = f"{os.strerror(error.errno or 0)}; try --port 0"
        if error.errno in (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN):
            why = "this machine has no such address; leave --host out, or give one that it has"
        raise Failure(f"cannot listen on {host}, port {port}: {why}") from None
    port = listening.getsockname()[1]
    if host not in guard.LOOPBACK:
        warning = f"Listening on {host}: everyone who can reach port {port} can use this machine; there is no password."
        say(warning, err=True)
    address = server.address(host, port)
    click.echo(f"nqm explorer on {address} (Ctrl-C ends it)")
    if not no_open:
        import webbrowser

        webbrowser.open(address)
    server.run(listening, host, time_limit)
