"""What every room shares: arrays, progress reports, and the error of a wrong call."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of numbers: float64 unless a docstring says otherwise."""

Progress = Callable[[int, int], None]
"""Called with the number of parts that are done and their total."""


def part_of(progress: Progress | None, i: int, parts: int) -> Progress | None:
    """Report the progress of part i of several equal parts as progress of the whole."""
    return progress and (lambda done, total: progress(i * total + done, parts * total))


def is_number(value: object) -> TypeGuard[float]:
    """Whether a caller gave a number, and not a truth value or text."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


class Wrong(ValueError):
    """A wrong call: a sentence for the caller, and the argument that it is about.

    A check raises it at once, before any work. The command line and the page show its sentence and nothing else. Any
    other exception that escapes is a bug, and is reported as one.

    >>> error = Wrong("batch_size must be positive, got -1", argument="batch_size")
    >>> print(error, error.argument)
    batch_size must be positive, got -1 batch_size
    """

    def __init__(self, sentence: str, argument: str | None = None) -> None:
        super().__init__(sentence)
        self.argument = argument

    def __reduce__(self) -> tuple[type[Wrong], tuple[str, str | None]]:
        return Wrong, (str(self), self.argument)


def unknown(what: str, name: str, known: Iterable[str], more: str = "", argument: str | None = None) -> Wrong:
    """The error for a name that does not exist; its sentence offers the nearest name and lists all of them."""
    known = list(known)
    by_lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    guess = f" (did you mean {by_lower[near[0]]}?)" if near else ""
    offer = f"there are {', '.join(known)}{more}" if known else "there are none"
    return Wrong(f"there is no {what} {short(name)!r}{guess}; {offer}", argument)


def short(text: str, length: int = 80) -> str:
    """The text, cut to a length that can be quoted in a sentence."""
    return text if len(text) <= length else text[: length - 3] + "..."
