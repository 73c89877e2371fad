"""Second moments of a linear optimizer: affine maps that compose and have powers.

One step on one mode is ``x <- A x + b eps`` with ``E eps = 0`` and, here, ``E eps^2 = 1``: the gradient noise c / B
of a mode is a factor that the read-out applies. Signal and noise are uncorrelated, so a map keeps them apart::

    signal   x -> A x
    noise    N -> A N A' + Q,          Q = b b'

``(A2, Q2) @ (A1, Q1) = (A2 A1, A2 Q1 A2' + Q2)`` is again such a map and ``step ** t`` is t steps by repeated squaring,
exact for defective A too. A start is a map with one column, a read-out one with one row, and a whole run is::

    readout @ step ** t @ start        signal = A^2,  noise = Q

Two things keep float64 exact. The basis is balanced (`balance`). And next to A the map carries ``drift``, its diagonal
minus one: ``1 - lr h`` forgets lr h below 1e-16, and t squarings would amplify that loss t times.

Arrays are (row, column, mode): the long axis lies last and contiguous, and settings are simply more modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._kernels import kernels

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class MomentMap:
    """The affine map ``(x, N) -> (A x, A N A' + Q)`` on each mode.

    >>> step = MomentMap.step([[[-0.5]]], [[-1.0]])       # SGD, lr = 1, on one mode of curvature 1/2
    >>> (step ** 3).A.item(), step.fixed_point().item()   # rho^t,  lr / (h (2 - lr h))
    (0.125, 1.3333333333333333)
    """

    A: Array  # (rows, columns, modes)
    drift: Array  # (min(rows, columns), modes): diag(A) - 1, to full relative accuracy
    Q: Array  # (rows, rows, modes)

    @classmethod
    def step(cls, G: Any, b: Any) -> MomentMap:
        """One step, from its change ``x <- x + G x + b eps``; G is (k, k, modes) and b is (k, modes)."""
        G, b = np.asarray(G, dtype=float), np.asarray(b, dtype=float)
        eye = np.eye(*G.shape[:2])[..., None]
        return cls(eye + G, np.einsum("iix->ix", G).copy(), b[:, None] * b[None])

    @classmethod
    def matrix(cls, A: Any) -> MomentMap:
        """A noiseless map: a start (one column), a read-out (one row), a change of slots."""
        A = np.ascontiguousarray(A, dtype=float)
        rows, columns, modes = A.shape
        m = min(rows, columns)
        diagonal = np.einsum("iix->ix", A[:m, :m]) - 1.0
        return cls(A, np.ascontiguousarray(diagonal), np.zeros((rows, rows, modes)))

    def __matmul__(self, first: MomentMap) -> MomentMap:
        if first is self:
            return MomentMap(*kernels().square(self.A, self.drift, self.Q))
        return MomentMap(*kernels().compose(self.A, self.drift, self.Q, first.A, first.drift, first.Q))

    def __pow__(self, t: int) -> MomentMap:
        if t < 0:
            raise ValueError(f"a moment map has no negative powers, got {t}")
        result, square = None, self
        while t:
            if t & 1:
                result = square if result is None else square @ result
            t >>= 1
            if t:
                square = square @ square
        return (
            result if result is not None else MomentMap.matrix(np.zeros_like(self.A) + np.eye(len(self.A))[..., None])
        )

    def move(self, state: MomentMap, t: int) -> MomentMap:
        """``self ** t @ state`` in one pass over the modes."""
        X, N = kernels().move(self.A, self.drift, self.Q, state.A, state.Q, t)
        moved = MomentMap.matrix(X)
        return MomentMap(X, moved.drift, N)

    def louder(self, factor: float) -> MomentMap:
        """The same map with its noise variance multiplied: a batch m times larger is ``louder(1 / m)``."""
        return MomentMap(self.A, self.drift, self.Q * factor)

    def fixed_point(self) -> Array:
        """The N with ``N = A N A' + Q``, the steady state; meaningful where the map is stable."""
        k = len(self.A)
        D = self.A.transpose(2, 0, 1) * (1 - np.eye(k)) + np.eye(k) * self.drift.T[:, None, :]
        DI = np.einsum("xij,kl->xikjl", D, np.eye(k)).reshape(-1, k * k, k * k)
        ID = np.einsum("kl,xij->xkilj", np.eye(k), D).reshape(-1, k * k, k * k)
        DD = np.einsum("xij,xkl->xikjl", D, D).reshape(-1, k * k, k * k)
        Q = self.Q.transpose(2, 0, 1).reshape(-1, k * k, 1)
        # I - A (x) A = -(D (x) I + I (x) D + D (x) D): no subtraction of nearly equal numbers.
        return np.linalg.solve(-(DI + ID + DD), Q).reshape(-1, k, k).transpose(1, 2, 0)

    def radius(self) -> Array:
        """Spectral radius of A on each mode; a mode is stable below 1."""
        A = self.A.transpose(2, 0, 1)
        radius = np.full(len(A), np.inf)
        finite = np.isfinite(A).all(axis=(1, 2))
        radius[finite] = np.abs(np.linalg.eigvals(A[finite])).max(axis=1)
        return radius


class Basis:
    """Slots in which squaring loses no digits, chosen on each mode from a step's change G.

    Slots are scaled so that rows and columns of G are of like size (`balance`). At the far edge of stability both
    eigenvalues of A come to -1: it is nearly defective with large entries, and powers in such slots cancel t^2-fold. There
    slot 1 is first sheared, ``x1 + tilt x0``, until the two diagonal entries are equal; scaling then makes A nearly
    normal. The entry that is left of the cancellation is formed in twice the digits (`_plain_kernels.shear_numpy`).
    """

    def __init__(self, G: Array) -> None:
        self.tilt = np.zeros(G.shape[2])
        self.tilted = len(G) > 1 and kernels().tilts(G, self.tilt, len(self.tilt)) > 0
        self.scale = balance(self._sheared(G))  # the unit of each slot, (slots, modes)

    def system(self, G: Array, b: Array) -> tuple[Array, Array]:
        """G and b of a step in these slots."""
        return self._sheared(G) * self.scale[None] / self.scale[:, None], self.column(b)

    def column(self, x: Array) -> Array:
        """A vector over the slots, such as the start."""
        x = x / self.scale
        if self.tilted:
            x[1] += self.tilt * x[0] / self.scale[1]  # slot 0 keeps its unit
        return x

    def row(self, r: Array) -> Array:
        """Weights of the slots, such as a read-out."""
        r = r * self.scale
        if self.tilted:
            r[0] -= self.tilt * r[1] / self.scale[1]
        return r

    def _sheared(self, G: Array) -> Array:
        if not self.tilted:
            return G
        G = G.copy()
        kernels().shear(G, self.tilt, len(self.tilt))
        return G


def balance(G: Array) -> Array:
    """Slot scales t (k, modes) such that ``G[i, j] t[j] / t[i]`` has rows and columns of like size on each mode.

    Osborne's iteration, with powers of two so that scaling rounds nothing. Heavy ball written in (theta, m) becomes
    (theta, m / sqrt(h / lr)), where squaring a thousand-million-step map loses no digits.
    """
    return kernels().balance(G)
