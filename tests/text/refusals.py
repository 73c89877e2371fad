"""How a text is refused: in one sentence, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from nqm.types import Wrong

QUICK = 2.0  # seconds that no text may take, on a slow machine; it takes milliseconds


def refusal(function: Callable[[str], object], text: str) -> str:
    """The one sentence in which a text is refused."""
    start = time.perf_counter()
    with pytest.raises(Wrong) as caught:
        function(text)
    assert time.perf_counter() - start < QUICK
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 500
    return message
