"""Which requests are answered, by their Host and Origin, and the headers that every response has."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .fields import told

LOOPBACK = ("localhost", "127.0.0.1", "::1")
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # The files of the page change with the version.
}


class Guard:
    """Middleware that refuses a Host or an Origin other than this server, and adds `HEADERS` to every response.

    A foreign page whose domain name resolves to this machine (DNS rebinding) sends that name as Host; a form on a foreign
    page sends its Origin. A page cannot forge either.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, app = headers.get("host", ""), self.app
        if not allowed_host(host, self.host):
            app = refusal(403, f"this server does not answer to the host {host!r:.60}")
        elif scope["method"] not in ("GET", "HEAD") and not same_origin(headers, host):
            app = refusal(403, "this server answers to its own page only, and to programs that send no Origin")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = ((name.encode(), value.encode()) for name, value in HEADERS.items())
                message["headers"] = [*message["headers"], *ours]
            await send(message)

        await app(scope, receive, guarded)


def allowed_host(given: str, host: str) -> bool:
    """Whether a Host header names this server: the loopback names, or the address it was told to listen on.

    A server on all interfaces accepts any numeric address, because such an address cannot be rebound to another machine.

    >>> [allowed_host(name, "127.0.0.1") for name in ("localhost:8777", "[::1]:8777", "evil.example:8777", "10.0.0.7")]
    [True, True, False, False]
    >>> [allowed_host(name, "0.0.0.0") for name in ("10.0.0.7:8777", "evil.example")]
    [True, False]
    """
    name = given.rsplit("]", 1)[0].lstrip("[") if given.startswith("[") else given.rsplit(":", 1)[0]
    if name.lower() in (*LOOPBACK, host.lower()):
        return True
    with suppress(ValueError):
        return host in ("0.0.0.0", "::") and bool(ipaddress.ip_address(name))
    return False


def same_origin(headers: dict[str, str], host: str) -> bool:
    """Whether a request comes from this server's own page, or from no page at all."""
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site", "none")
    return (origin is None or origin in (f"http://{host}", f"https://{host}")) and site in ("none", "same-origin")


def refusal(status: int, sentence: str, **headers: str) -> Response:
    return Response(told(sentence), status, media_type="application/json", headers=headers)
