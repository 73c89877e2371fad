"""How a text is refused: in one sentence, and before anything large is made of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nqm.types import Wrong

MAX_BYTES = 300e6  # memory that no text may take; two schedules of as many pieces as text may have take 200e6


@contextmanager
def little_memory() -> Iterator[None]:
    """What is done inside takes little memory, which does not depend on the machine as its time would."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES, f"{peak / 1e6:.0f} MB were taken"


def refusal(function: Callable[[str], object], text: str) -> str:
    """The one sentence in which a text is refused."""
    with little_memory(), pytest.raises(Wrong) as caught:
        function(text)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 500
    return message
