"""What every room shares: arrays, progress reports, and the error of a wrong call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of numbers: float64 unless a docstring says otherwise."""

Progress = Callable[[int, int], None]
"""Called with the number of parts that are done and their total."""


class Wrong(ValueError):
    """A wrong call: a sentence for the caller, and the argument that it is about.

    A check raises it at once, before any work. The command line and the page show its sentence and nothing else; any
    other exception that escapes is a bug, and is told as one.

    >>> error = Wrong("batch_size must be positive, got -1", argument="batch_size")
    >>> print(error, error.argument)
    batch_size must be positive, got -1 batch_size
    """

    def __init__(self, sentence: str, argument: str | None = None) -> None:
        super().__init__(sentence)
        self.argument = argument

    def __reduce__(self) -> tuple[type[Wrong], tuple[str, str | None]]:
        return Wrong, (str(self), self.argument)
