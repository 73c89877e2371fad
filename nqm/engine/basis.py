"""Slots in which squaring a step loses no digits."""

from __future__ import annotations

import numpy as np

from ..types import Array
from .kernels import loops


class Basis:
    """Slots in which squaring loses no digits, chosen on each mode from the change G of a step.

    Slots are scaled so that rows and columns of G are of like size (`Loops.balance`). At the far edge of stability both
    eigenvalues of A approach -1. There A is nearly defective with large entries, and its powers lose a factor of t^2 to
    cancellation. So slot 1 is first replaced by ``x1 + tilt x0``, with the tilt that makes the two diagonal entries equal;
    scaling then makes A nearly normal. The entry in which large terms cancel is computed in twice the digits
    (`Loops.shear`).

    G is (k, k, modes). Arrays that are converted to these slots may have more axes before the axis of the modes.
    """

    def __init__(self, G: Array) -> None:
        self.tilt = np.zeros(G.shape[2])
        self.tilted = len(G) > 1 and loops().tilts(G, self.tilt, len(self.tilt)) > 0
        self.scale = loops().balance(self._sheared(G))  # the unit of each slot, (slots, modes)

    def system(self, G: Array, b: Array) -> tuple[Array, Array]:
        """G and b of a step, converted to these slots."""
        scale = self._units(b.ndim)
        return self._sheared(G) * scale[None] / scale[:, None], self.column(b)

    def column(self, x: Array) -> Array:
        """A vector over the slots, such as the start, converted to these slots."""
        x = x / self._units(x.ndim)
        if self.tilted:
            x[1] += self.tilt * x[0] / self.scale[1]  # The scale of slot 0 is 1.
        return x

    def row(self, r: Array) -> Array:
        """Weights of the slots, such as a read-out, converted to these slots."""
        r = r * self._units(r.ndim)
        if self.tilted:
            r[0] -= self.tilt * r[1] / self.scale[1]
        return r

    def _units(self, axes: int) -> Array:
        """The scale, shaped to broadcast against an array of ``axes`` axes."""
        return self.scale.reshape(len(self.scale), *(1,) * (axes - 2), -1)

    def _sheared(self, G: Array) -> Array:
        if not self.tilted:
            return G
        sheared = G.reshape(*G.shape[:2], -1).copy()
        tilt = np.broadcast_to(self.tilt, G.shape[2:]).flatten()
        loops().shear(sheared, tilt, len(tilt))
        return sheared.reshape(G.shape)
