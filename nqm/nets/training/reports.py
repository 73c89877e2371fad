"""What a training says while it lasts: how far it has come, for whoever listens in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[int, int], None]
"""A function of the step that was reached and of the last step at which the training may end."""
_LISTENERS: list[Listener] = []


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Let a function hear of the trainings of this process while the context lasts.

    >>> with heard_by(lambda step, most: print(step, most)):
    ...     report(10, 100)
    10 100
    """
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def report(step: int, most: int) -> None:
    """Say how far a training has come."""
    for listener in _LISTENERS:
        listener(step, most)
