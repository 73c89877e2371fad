"""The inner loops of the engine: compiled where numba is installed (`compiled`), in NumPy where it is not (`plain`).

Maps are arrays A (row, column, mode) with d, the diagonal of A minus one, and Q (row, row, mode); a state is X (slot,
column, mode) with N (slot, slot, mode). The two modules have the same functions, which give the same numbers to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol

from ...types import Array
from . import plain

Pair = tuple[Array, Array]
Map = tuple[Array, Array, Array]
Ends = Callable[[Array, Array, Array, Array, int], Pair]


class Loops(Protocol):
    """The inner loops in use."""

    @property
    def compiled(self) -> bool: ...

    @property
    def end(self) -> Ends | None:
        """(G, b, x, r, t) -> second moments of ``r . x`` after t steps ``x <- x + G x + b eps``: of signal and of noise.

        Slots come as they are and are prepared as `Basis` does. x and r may have one column, for all modes. There is no
        NumPy version: `Trajectory.end` then composes maps.
        """
        ...

    # What `end` gives after 1, 2, 4, ... steps, as (level, mode), for so many levels.
    @property
    def climb(self) -> Ends | None: ...

    def compose(self, A2: Array, d2: Array, Q2: Array, A1: Array, d1: Array, Q1: Array, /) -> Map:
        """The map of the first after the second one named: (A2 A1, its diagonal minus one, A2 Q1 A2' + Q2)."""
        ...

    def square(self, A: Array, d: Array, Q: Array, /) -> Map: ...  # a map composed with itself

    # The state (X, N) after t steps of a map, by repeated squaring.
    def move(self, A: Array, d: Array, Q: Array, X: Array, N: Array, t: int, /) -> Pair: ...

    # The state (x, N) before each of a row of maps (A, Q) and after the last.
    def chain(self, A: Array, Q: Array, x: Array, N: Array, /) -> Pair: ...

    def balance(self, G: Array, /) -> Array: ...  # slot scales (k, modes) by Osborne's iteration: see `basis.balance`

    def tilts(self, G: Array, tilt: Array, width: int, /) -> int:
        """Write by how much to shear slot 1 of the first modes (`Basis`), 0 where that is not needed; on how many it is."""
        ...

    def shear(self, G: Array, tilt: Array, width: int, /) -> None:
        """Rewrite a step's change, in place, for slot 1 as ``x1 + tilt x0``, on the first modes.

        Entry (1, 0) is what is left when large terms cancel: products and sums there keep what they round off.
        """
        ...

    def scan(
        self, G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, X: Array, N: Array,
        row: Array, ws: Array, wn: Array, /,
    ) -> Pair:  # fmt: skip
        """Step the state (X, N) in place through ``G = G0 + pace G1``; signal and noise after each step.

        ``loud`` multiplies each step's noise variance; ws weights the columns of X (columns, modes), wn the modes of N.
        """
        ...

    def scan_coupled(
        self, G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, X: Array, N: Array, look: Array, row: Array,
        h: Array, c: Array, s: Array, mass: Array, label_noise: float, per_example: float, nodes: int, /,
    ) -> Pair:  # fmt: skip
        """Step a state in place with the noise of least squares: its variance per example is ``c (h m + tau + label_noise)``
        on each mode, where c = h, up to the weights of a quadrature rule.

        m is the second moment of ``look . x``, the point of the gradient, and tau its sum with weights ``mass = n h`` over
        the ``nodes`` modes of a setting. X is (k, modes), the start in units of theta_0; N the moments that noise has
        added, times the batch size 1 / ``per_example``. Signal and noise are (setting, step).
        """
        ...


def loops() -> Loops:
    """The loops in use. The first call loads numba, so that ``import nqm`` stays light."""
    return plain if _plain_only else _fastest()


@contextmanager
def plain_loops() -> Iterator[None]:
    """Use the NumPy loops inside a ``with``, as on a machine without numba; tests hold the compiled ones against them."""
    global _plain_only
    before, _plain_only = _plain_only, True
    try:
        yield
    finally:
        _plain_only = before


_plain_only = False


@cache
def _fastest() -> Loops:
    from . import compiling

    if compiling.numba is None:
        return plain
    from . import compiled

    return compiled
