"""Waiting for what must happen, without a guess of how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 300.0  # seconds after which a thing does not happen any more, on a machine however busy


def eventually(condition: Callable[[], object], what: str, pause: Callable[[float], object] = time.sleep) -> None:
    """Return as soon as the condition holds; fail where it does not hold within the limit.

    ``pause`` lets some seconds pass. In a browser it must let events through, which ``time.sleep`` does not.
    """
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        pause(0.02)
