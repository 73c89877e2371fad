"""The inner loops of the engine: compiled where numba is installed (`compiled`), in NumPy where it is not (`plain`).

A map is A (row, column, mode) with its diagonal minus one, d, and its noise Q (row, row, mode). A state is X (slot,
column, mode) with its noise N (slot, slot, mode). Both modules have the functions of `Loops`, and these give the same
numbers to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Protocol

import numpy as np

from ...types import Array
from . import plain
from .plain import CHUNK

Pair = tuple[Array, Array]
Map = tuple[Array, Array, Array]
Ends = Callable[[Array, Array, Array, Array, int], Pair]
Watches = Callable[[Array, Array, Array, Array, int, int, int, Array, Array], Pair]
Holds = Callable[[Sequence[Array], Sequence[Array], Array, Array, Array, int], Pair]


class Loops(Protocol):
    """The inner loops in use."""

    @property
    def compiled(self) -> bool: ...

    @property
    def end(self) -> Ends | None:
        """(G, b, x, r, t) -> second moments of ``r . x`` after t steps ``x <- x + G x + b eps``: of signal and of noise.

        Slots are given as the optimizer has them; the loop prepares them as `Basis` does. A single column of x or r
        serves all modes. There is no NumPy version: without numba, `Trajectory.end` composes maps.
        """
        ...

    @property
    def climb(self) -> Ends | None:
        """(G, b, x, r, levels) -> what `end` gives after 1, 2, 4, ... steps, as (level, mode)."""
        ...

    @property
    def watch(self) -> Watches | None:
        """(G, b, x, r, first, level, count, ws, wn) -> signal and noise after first, first + 2^level, ... steps of two slots.

        Both are (count, setting): what `end` gives, summed over the modes of each setting with weights ws and wn.
        """
        ...

    @property
    def hold(self) -> Holds | None:
        """(G, b, q, x, N, t) -> the state (x, N) of two slots after t steps ``x <- x + G x + b eps``.

        The entries of G are given row by row, each with one number for every mode, and eps has variance q. There is no NumPy
        version: without numba, `MeanField` builds the map and moves the state with it.
        """
        ...

    def compose(self, A2: Array, d2: Array, Q2: Array, A1: Array, d1: Array, Q1: Array, /) -> Map:
        """The map 1 followed by the map 2: (A2 A1, its diagonal minus one, A2 Q1 A2' + Q2)."""
        ...

    def square(self, A: Array, d: Array, Q: Array, /) -> Map:
        """A map composed with itself."""
        ...

    def move(self, A: Array, d: Array, Q: Array, X: Array, N: Array, t: int, /) -> Pair:
        """The state (X, N) after t steps of a map, by repeated squaring."""
        ...

    def chain(self, A: Array, Q: Array, kick: Array, x: Array, N: Array, /) -> Pair:
        """The state (x, N) before each map ``x <- A x + kick``, ``N <- A N A' + Q`` of a sequence, and after the last."""
        ...

    def balance(self, G: Array, /) -> Array:
        """Slot scales t (k, modes) such that ``G[i, j] t[j] / t[i]`` has rows and columns of like size on each mode.

        Osborne's iteration, with powers of two so that scaling rounds nothing. Heavy ball written in (theta, m) becomes
        (theta, m / sqrt(h / lr)), where squaring a map of 10^9 steps loses no digits.
        """
        ...

    def tilts(self, G: Array, tilt: Array, width: int, /) -> int:
        """Write the tilt of slot 1 (`Basis`) on the first ``width`` modes, 0 where none is needed; return how many need one."""
        ...

    def shear(self, G: Array, tilt: Array, width: int, /) -> None:
        """Rewrite a step's change in place for the slot ``x1 + tilt x0`` instead of x1, on the first ``width`` modes.

        Large terms cancel in entry (1, 0), so its products and sums keep what they would round off.
        """
        ...

    def scan_coupled(
        self, G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, X: Array, N: Array, row: Array, ws: Array,
        wn: Array, look: Array, h: Array, c: Array, s: Array, mass: Array, label_noise: float, per_example: float, nodes: int, /,
    ) -> Pair:  # fmt: skip
        """Step the state (X, N) in place with ``G = G0 + pace G1`` and the noise of least squares.

        The noise of a step has variance ``loud c (h m + tau + label_noise)``. Here c = h, up to the weights of a quadrature
        rule; m is the second moment of ``look . x``, the point at which the gradient is taken; and tau is the sum of m with
        weights ``mass = n h`` over the ``nodes`` modes of a setting. The first column of X is the start in units of theta_0.
        N holds the moments that noise has added, times the batch size 1 / ``per_example``.

        Returns signal and noise after each step, (setting, step): the squared read-outs of the columns of X, summed with
        weights ws (columns, modes), and the read-out of N, summed with weights wn (modes).
        """
        ...


def scan(
    G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, X: Array, N: Array, row: Array, ws: Array, wn: Array
) -> Pair:  # fmt: skip
    """`Loops.scan_coupled` with noise of variance ``loud``, whatever the state; signal and noise after each step.

    Modes are then independent, and every chunk of them goes through all steps while it is in cache.
    """
    zero, one, nowhere = np.zeros(X.shape[2]), np.ones(X.shape[2]), np.zeros_like(row)
    uncoupled = (nowhere, zero, one, zero, zero, 1.0, 0.0, CHUNK)
    signal, noise = loops().scan_coupled(G0, G1, b0, b1, pace, loud, X, N, row, ws, wn, *uncoupled)
    return signal.sum(axis=0), noise.sum(axis=0)


def loops() -> Loops:
    """The loops in use. Numba is loaded by the first call, so that ``import nqm`` stays fast."""
    return plain if _plain_only else _fastest()


@contextmanager
def plain_loops() -> Iterator[None]:
    """Use the NumPy loops inside a ``with``, as on a machine without numba. Tests compare the compiled ones with them."""
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
