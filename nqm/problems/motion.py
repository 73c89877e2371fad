"""What moves an optimizer over the modes of a problem: `Trajectory`, `MeanField`, `Coupled`."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ..types import Array

Pair = tuple[Array, Array]
"""Signal and noise: the loss (or second moment) is ``signal + noise / batch_size``."""

S = TypeVar("S")


class Motion(Protocol[S]):
    """An optimizer on the modes of a problem; it moves a state to a later one.

    Hyper-parameters may be arrays that broadcast against the modes. Moments have one entry for each setting and mode, in the
    ``units`` of the problem.
    """

    def start(self) -> S: ...  # the state before the first step
    def move(self, state: S, t: int, to: int) -> S: ...  # the state after ``to`` steps, from the state after t steps
    def read(self, state: S, t: int) -> Pair: ...  # second moments of the weights that are reported after t steps
    def end(self, t: int) -> Pair: ...  # what `read` gives after t steps from the start, in the fastest way
