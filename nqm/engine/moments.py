"""Second moments of a linear optimizer: affine maps that compose and have powers.

One step on one mode is ``x <- A x + b eps`` with ``E eps = 0`` and ``E eps^2 = 1``; the read-out multiplies by the
gradient noise c / B of the mode. Signal and noise are uncorrelated, so a map keeps them apart::

    signal   x -> A x
    noise    N -> A N A' + Q,          Q = b b'

``(A2, Q2) @ (A1, Q1) = (A2 A1, A2 Q1 A2' + Q2)`` is again such a map and ``step ** t`` is t steps by repeated squaring,
exact for defective A too. A start is a map with one column, a read-out one with one row, and a whole run is::

    readout @ step ** t @ start        signal = A^2,  noise = Q

Two precautions keep float64 accurate. The slots are balanced (`basis.Basis`). And next to A the map carries ``drift``, the
diagonal of A minus one: ``1 - lr h`` rounds lr h away below 1e-16, and a power t would amplify that error t times.

Arrays are (row, column, mode). The long axis is last and contiguous, and further settings are further modes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from ..types import Array, Wrong
from .kernels import loops


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
    def step(cls, G: ArrayLike, b: ArrayLike) -> MomentMap:
        """One step, from its change ``x <- x + G x + b eps``; G is (k, k, modes) and b is (k, modes)."""
        G, b = np.asarray(G, dtype=float), np.asarray(b, dtype=float)
        eye = np.eye(*G.shape[:2])[..., None]
        return cls(eye + G, np.einsum("iix->ix", G).copy(), b[:, None] * b[None])

    @classmethod
    def matrix(cls, A: ArrayLike, Q: Array | None = None) -> MomentMap:
        """A map from A: a start or a state (one column) or a read-out (one row), without noise unless Q is given."""
        A = np.ascontiguousarray(A, dtype=float)
        rows, columns, modes = A.shape
        m = min(rows, columns)
        diagonal = np.ascontiguousarray(np.einsum("iix->ix", A[:m, :m]) - 1.0)
        return cls(A, diagonal, np.zeros((rows, rows, modes)) if Q is None else Q)

    def __matmul__(self, first: MomentMap) -> MomentMap:
        if first is self:
            return MomentMap(*loops().square(self.A, self.drift, self.Q))
        return MomentMap(*loops().compose(self.A, self.drift, self.Q, first.A, first.drift, first.Q))

    def __pow__(self, t: int) -> MomentMap:
        if t < 0:
            raise Wrong(f"a moment map has no negative powers, got {t}")
        result = None
        for level, square in zip(range(t.bit_length()), squares(self), strict=False):
            if t >> level & 1:
                result = square if result is None else square @ result
        return result or MomentMap.matrix(np.zeros_like(self.A) + np.eye(len(self.A))[..., None])

    def move(self, state: MomentMap, t: int) -> MomentMap:
        """``self ** t @ state`` in one pass over the modes."""
        return MomentMap.matrix(*loops().move(self.A, self.drift, self.Q, state.A, state.Q, t))

    def seen(self, row: Array) -> tuple[Array, Array]:
        """Second moments of a read-out (slots, modes) of this state on each mode: of the signal and of the noise."""
        read = MomentMap.matrix(row[None]) @ self
        with np.errstate(over="ignore"):  # The second moment of an unstable mode is infinite once it overflows.
            return read.A[0, 0] ** 2, read.Q[0, 0]

    def louder(self, factor: float) -> MomentMap:
        """The map with its noise variance multiplied by ``factor``; for a batch m times larger, ``louder(1 / m)``."""
        return MomentMap(self.A, self.drift, self.Q * factor)

    def fixed_point(self) -> Array:
        """The steady state: the N with ``N = A N A' + Q``. It means something only where the map is stable."""
        k = len(self.A)
        D = self.A.transpose(2, 0, 1) * (1 - np.eye(k)) + np.eye(k) * self.drift.T[:, None, :]
        DI = np.einsum("xij,kl->xikjl", D, np.eye(k)).reshape(-1, k * k, k * k)
        ID = np.einsum("kl,xij->xkilj", np.eye(k), D).reshape(-1, k * k, k * k)
        DD = np.einsum("xij,xkl->xikjl", D, D).reshape(-1, k * k, k * k)
        Q = self.Q.transpose(2, 0, 1).reshape(-1, k * k, 1)
        # I - A (x) A = -(D (x) I + I (x) D + D (x) D): no subtraction of nearly equal numbers.
        return np.linalg.solve(-(DI + ID + DD), Q).reshape(-1, k, k).transpose(1, 2, 0)

    def radius(self) -> Array:
        """Spectral radius of A on each mode; a mode is stable if it is below 1."""
        return spectral_radius(self.A.transpose(2, 0, 1))


def spectral_radius(a: Array) -> Array:
    """Spectral radius of small matrices (matrix, row, column), infinite where an entry is not finite."""
    radius = np.full(len(a), np.inf)
    finite = np.isfinite(a).all(axis=(1, 2))
    values = a[finite, 0] if a.shape[-1] == 1 else np.linalg.eigvals(a[finite])
    radius[finite] = np.abs(values).max(axis=1)
    return radius


def squares(step: MomentMap) -> Iterator[MomentMap]:
    """The powers 1, 2, 4, 8, ... of a step, each the square of the one before."""
    while True:
        yield step
        step = step @ step


class Powers:
    """The repeated squares of a step, stored, so that moving a state by t steps costs one product for each bit of t.

    The first move does not store its squares, which is faster. They are stored from the second move on.
    """

    def __init__(self, step: MomentMap) -> None:
        self.step, self.moved = step, False
        self._squares, self._kept = squares(step), list[MomentMap]()

    def __getitem__(self, level: int) -> MomentMap:
        while len(self._kept) <= level:
            self._kept.append(next(self._squares))
        return self._kept[level]

    def map(self, t: int) -> MomentMap:
        """``step ** t`` for t > 0."""
        return reduce(
            lambda part, whole: whole @ part, [self[level] for level in range(t.bit_length()) if t >> level & 1]
        )

    def move(self, state: MomentMap, t: int) -> MomentMap:
        """``step ** t @ state``."""
        if not self.moved and t > 1:
            self.moved = True
            return self.step.move(state, t)
        for level in range(t.bit_length()):
            if t >> level & 1:
                state = self[level] @ state
        return state
