"""Connections that send a request too slowly are closed, so that half-open ones cannot pile up."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import SERVER


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that waits `ServerLimits.read` seconds for the head of a request, and then closes the connection.

    uvicorn limits the time between two requests, but neither the time to the first nor the time that a head may take.
    """

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Start the clock while a head is awaited, and stop it while a request is answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._calm()
        elif self._limit is None:
            self._limit = self.loop.call_later(SERVER.read, self.transport.close)

    def _calm(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
