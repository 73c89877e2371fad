"""A run in pieces of constant learning rate, and the exact gradient of its loss.

The derivative of a run is a run. With ``x' = A x + b eps``, dx moves as ``dx' = A dx + dA x + db eps``, so (x, dx) is a linear
optimizer with twice the slots, and powers of its `MomentMap` give the derivative of t steps in O(log t). States pass from
piece to piece, and adjoints pass back::

    lambda <- A' lambda,    Lambda <- A' Lambda A,    dL = lambda . dA x + 2 <Lambda, dA N A'> + <Lambda, dQ>
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine.basis import Basis
from ..engine.kernels import loops
from ..engine.moments import MomentMap
from ..optimizers.base import Optimizer, Parameter, fill
from ..problems.base import Problem
from ..types import Array

COMPLEX_STEP = 1e-40
"""The derivative of a step is its imaginary part at ``x + i COMPLEX_STEP``. No difference is taken, so any small step is exact."""

LOG_LR = -1  # Direction of the derivative by the log of the learning rates; direction i >= 0 is shared parameter i.


def split(steps: int, pieces: int) -> Array:
    """Lengths of ``pieces`` pieces of ``steps`` steps, as equal as whole numbers allow, longer ones first."""
    lengths = np.full(pieces, steps // pieces)
    lengths[: steps % pieces] += 1
    return lengths


class Chain:
    """A run in pieces, each at its own learning rate, with the derivative of its loss by every rate and shared parameter.

    The powers of all pieces are computed together. Only states and adjoints are passed from piece to piece. Pieces are the
    first axis of an array, and u has the coordinates of the shared parameters.
    """

    def __init__(self, problem: Problem, optimizer: Optimizer, shared: Sequence[Parameter], lengths: Array) -> None:
        self.h, (self.ws, self.wn) = problem.modes.h, problem.masses
        self.optimizer, self.shared, self.lengths = optimizer, shared, lengths

    def gradient(self, rates: Array, u: Array, batch_size: float) -> tuple[float, Array]:
        """The loss at the end, and its derivatives by the log of each rate and by each shared parameter."""
        with np.errstate(all="ignore"):
            k, basis = len(self.optimizer.initial()), self._basis(u)
            tangents = [self._maps(rates, u, basis, direction) for direction in (LOG_LR, *range(len(u)))]
            A, Q = (np.ascontiguousarray(a[:, :k, :k]) for a in tangents[0])
            (x, N), r = self._states(A, Q, basis), self._row(basis)
            y, noise = self._end(x, N, r)
            loss = float(y**2 @ self.ws + noise @ self.wn / batch_size)
            lam, Lam = self._adjoints(A, 2 * self.ws * y * r, self.wn / batch_size * r[:, None] * r[None])
            NA = np.einsum("pilx,pjlx->pijx", N[:-1], A)
            slopes = []
            for dA, dQ in ((a[:, k:, :k], q[:, k:, :k]) for a, q in tangents):
                change = 2 * (np.einsum("pilx,pljx->pijx", dA, NA) + dQ)
                slopes.append(np.einsum("pix,pilx,plx->p", lam, dA, x[:-1]) + np.einsum("pijx,pijx->p", Lam, change))
            return loss, np.append(slopes[0], [slope.sum() for slope in slopes[1:]])

    def noise_shares(self, rates: Array, u: Array) -> tuple[float, Array]:
        """The signal at the end, and what the noise of each piece adds to the loss there, per unit of 1 / B."""
        with np.errstate(all="ignore"):
            basis = self._basis(u)
            (A, Q), r = self._maps(rates, u, basis), self._row(basis)
            y, _ = self._end(*self._states(A, Q, basis), r)
            _, Lam = self._adjoints(A, r, self.wn * r[:, None] * r[None])
            return float(y**2 @ self.ws), np.einsum("pijx,pijx->p", Lam, Q)

    def edge(self, u: Array) -> float:
        """The learning rate at which the first mode loses stability."""
        return float(np.min(self._filled(u, 1.0).edge(self.h)))

    def _filled(self, u: Array, lr: Array | float) -> Optimizer:
        values = {p.name: p.kind.value(x) for p, x in zip(self.shared, u, strict=True)}
        return fill(self.optimizer, {**values, "lr": lr})

    def _system(self, u: Array, lr: Array) -> tuple[Array, Array]:
        """G (k, k, pieces, modes) and b (k, pieces, modes) of a step at each rate, (pieces, 1), in the optimizer's slots."""
        rows, column = self._filled(u, lr).system(self.h, 0)
        shape = len(lr), len(self.h)
        G = np.array([[np.broadcast_to(entry, shape) for entry in row] for row in rows])
        return G, np.array([np.broadcast_to(entry, shape) for entry in column])

    def _basis(self, u: Array) -> Basis:
        """The basis of the slots for all pieces, so that states pass from one to the next: that at the edge of stability."""
        G, _ = self._system(u, np.full((1, 1), self.edge(u)))
        return Basis(G[:, :, 0])

    def _maps(self, rates: Array, u: Array, basis: Basis, direction: int | None = None) -> tuple[Array, Array]:
        """A and Q of each piece; with a direction, A and Q of (x, dx)."""
        lr = rates[:, None]
        if direction is None:
            return self._powers(*basis.system(*self._system(u, lr)))
        lr, nudged = lr.astype(complex), u.astype(complex)
        if direction == LOG_LR:
            lr *= 1 + 1j * COMPLEX_STEP
        else:
            nudged[direction] += 1j * COMPLEX_STEP
        G, b = self._system(nudged, lr)
        dG, db = basis.system(np.imag(G) / COMPLEX_STEP, np.imag(b) / COMPLEX_STEP)
        G, b = basis.system(np.real(G), np.real(b))
        twice = np.concatenate([np.concatenate([G, 0 * G], axis=1), np.concatenate([dG, G], axis=1)])
        return self._powers(twice, np.concatenate([b, db]))

    def _powers(self, G: Array, b: Array) -> tuple[Array, Array]:
        """A and Q of the steps of each piece, (pieces, k, k, modes), from G and b of one step of each."""
        k, pieces, modes = b.shape
        short = int(self.lengths.min())
        step = MomentMap.step(G.reshape(k, k, -1), b.reshape(k, -1))
        power = step**short
        A, Q = power.A, power.Q
        if self.lengths.max() > short:
            one_more = np.repeat(self.lengths > short, modes)
            longer = step @ power
            A, Q = np.where(one_more, longer.A, A), np.where(one_more, longer.Q, Q)
        A, Q = (np.moveaxis(a.reshape(k, k, pieces, modes), 2, 0) for a in (A, Q))
        return np.ascontiguousarray(A), np.ascontiguousarray(Q)

    def _states(self, A: Array, Q: Array, basis: Basis) -> tuple[Array, Array]:
        """The state before each piece and after the last."""
        first = basis.column(np.array(self.optimizer.initial(), dtype=float)[:, None])
        return loops().chain(A, Q, first, np.zeros(Q.shape[1:]))

    def _row(self, basis: Basis) -> Array:
        return basis.row(np.array(self.optimizer.readout(int(self.lengths.sum())), dtype=float)[:, None])

    @staticmethod
    def _end(x: Array, N: Array, r: Array) -> tuple[Array, Array]:
        """The reported weights after the last piece without noise, and their second moment due to noise."""
        seen = MomentMap.matrix(r[None]) @ MomentMap(x[-1][:, None], x[-1][:1] - 1, N[-1])
        return seen.A[0, 0], seen.Q[0, 0]

    @staticmethod
    def _adjoints(A: Array, lam: Array, Lam: Array) -> tuple[Array, Array]:
        """Derivatives of the loss by the state after each piece: ``A' lambda`` and ``A' Lambda A`` compose as moments do."""
        turned = np.ascontiguousarray(A[:0:-1].transpose(0, 2, 1, 3))
        lams, Lams = loops().chain(turned, np.zeros_like(turned), lam, Lam)
        return lams[::-1], Lams[::-1]
