"""Slots in which squaring a step loses no digits."""

from __future__ import annotations

import numpy as np

from ..types import Array
from .kernels import loops


class Basis:
    """Slots in which squaring loses no digits, chosen on each mode from a step's change G.

    Slots are scaled so that rows and columns of G are of like size (`balance`). At the far edge of stability both
    eigenvalues of A come to -1: it is nearly defective with large entries, and powers in such slots cancel t^2-fold. There
    slot 1 is first sheared, ``x1 + tilt x0``, until the two diagonal entries are equal; scaling then makes A nearly
    normal. The entry that is left of the cancellation is formed in twice the digits (`Loops.shear`).

    G is (k, k, modes). What is then brought into these slots may have more axes before that of the modes.
    """

    def __init__(self, G: Array) -> None:
        self.tilt = np.zeros(G.shape[2])
        self.tilted = len(G) > 1 and loops().tilts(G, self.tilt, len(self.tilt)) > 0
        self.scale = balance(self._sheared(G))  # the unit of each slot, (slots, modes)

    def system(self, G: Array, b: Array) -> tuple[Array, Array]:
        """G and b of a step in these slots."""
        scale = self._units(b.ndim)
        return self._sheared(G) * scale[None] / scale[:, None], self.column(b)

    def column(self, x: Array) -> Array:
        """A vector over the slots, such as the start."""
        x = x / self._units(x.ndim)
        if self.tilted:
            x[1] += self.tilt * x[0] / self.scale[1]  # slot 0 keeps its unit
        return x

    def row(self, r: Array) -> Array:
        """Weights of the slots, such as a read-out."""
        r = r * self._units(r.ndim)
        if self.tilted:
            r[0] -= self.tilt * r[1] / self.scale[1]
        return r

    def _units(self, axes: int) -> Array:
        """The scale, for an array with so many axes."""
        return self.scale.reshape(len(self.scale), *(1,) * (axes - 2), -1)

    def _sheared(self, G: Array) -> Array:
        if not self.tilted:
            return G
        sheared = G.reshape(*G.shape[:2], -1).copy()
        tilt = np.broadcast_to(self.tilt, G.shape[2:]).flatten()
        loops().shear(sheared, tilt, len(tilt))
        return sheared.reshape(G.shape)


def balance(G: Array) -> Array:
    """Slot scales t (k, modes) such that ``G[i, j] t[j] / t[i]`` has rows and columns of like size on each mode.

    Osborne's iteration, with powers of two so that scaling rounds nothing. Heavy ball written in (theta, m) becomes
    (theta, m / sqrt(h / lr)), where squaring a thousand-million-step map loses no digits.
    """
    return loops().balance(G)
