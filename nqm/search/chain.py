"""A run in pieces of constant learning rate, the losses on its way, and their exact gradient.

The derivative of a run is a run. With ``x' = A x + b eps``, dx moves as ``dx' = A dx + dA x + db eps``, so (x, dx) is a linear
optimizer with twice the slots, and powers of its `MomentMap` give the derivative of t steps in O(log t). States pass from
piece to piece. For a sum of losses L with weights w, adjoints pass back and gather the derivatives of each::

    lambda <- A' lambda + w dL/dx,    Lambda <- A' Lambda A + w dL/dN,    dL = lambda . dA x + 2 <Lambda, dA N A'> + <Lambda, dQ>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..engine.basis import Basis
from ..engine.kernels import loops
from ..engine.moments import MomentMap, Powers
from ..optimizers.base import Optimizer, Parameter, fill
from ..problems.base import Problem
from ..types import Array

COMPLEX_STEP = 1e-40
"""The derivative of a step is its imaginary part at ``x + i COMPLEX_STEP``. No difference is taken, so any small step is exact."""

LOG_LR = -1  # Direction of the derivative by the log of the learning rates; direction i >= 0 is shared parameter i.

Weigh = Callable[[Array], tuple[float, Array]]
"""A function of the losses that are read, (piece, link): its value, and its derivative by each loss."""


def split(steps: int, pieces: int) -> Array:
    """Lengths of ``pieces`` pieces of ``steps`` steps, as equal as whole numbers allow, longer ones first."""
    lengths = np.full(pieces, steps // pieces)
    lengths[: steps % pieces] += 1
    return lengths


class Chain:
    """A run in pieces, each at its own learning rate, with the derivative of its losses by every rate and shared parameter.

    Losses are read at the end of each piece, and inside of it after each number of steps in ``inside``. The part of a piece from
    one reading to the next is a link. The powers of all links are computed together; only states and adjoints are passed on.
    Arrays have pieces first, or links in the order of time, and u has the coordinates of the shared parameters.
    """

    def __init__(
        self,
        problem: Problem,
        optimizer: Optimizer,
        shared: Sequence[Parameter],
        lengths: Array,
        inside: Sequence[int] = (),
    ) -> None:
        self.h, (self.ws, self.wn) = problem.modes.h, problem.masses
        self.optimizer, self.shared, self.lengths = optimizer, shared, lengths
        self.links = np.diff([0, *inside, int(lengths.min())]).tolist()

    def losses(self, rates: Array, u: Array, batch_size: float) -> Array:
        """The losses that are read, (piece, link)."""
        with np.errstate(all="ignore"):
            basis = self._basis(u)
            _, _, y, noise = self._run(*self._maps(rates, u, basis), basis)
            return (y**2 @ self.ws + noise @ self.wn / batch_size).reshape(len(rates), -1)

    def gradient(self, rates: Array, u: Array, batch_size: float, weigh: Weigh) -> tuple[float, Array]:
        """The value of ``weigh`` at the losses that are read, and its derivatives by the log of each rate and by u."""
        with np.errstate(all="ignore"):
            k, basis = len(self.optimizer.initial()), self._basis(u)
            tangents = [self._maps(rates, u, basis, direction) for direction in (LOG_LR, *range(len(u)))]
            A, Q = (np.ascontiguousarray(a[:, :k, :k]) for a in tangents[0])
            x, N, y, noise = self._run(A, Q, basis)
            value, weights = weigh((y**2 @ self.ws + noise @ self.wn / batch_size).reshape(len(rates), -1))
            w, r = weights.reshape(-1, 1), self._row(basis)
            kick = 2 * (w * self.ws * y)[:, None] * r
            lam, Lam = self._adjoints(A, kick, ((w * self.wn / batch_size)[:, None] * r)[:, :, None] * r)
            NA = np.einsum("pilx,pjlx->pijx", N[:-1], A)
            slopes = []
            for dA, dQ in ((a[:, k:, :k], q[:, k:, :k]) for a, q in tangents):
                change = 2 * (np.einsum("pilx,pljx->pijx", dA, NA) + dQ)
                slopes.append(np.einsum("pix,pilx,plx->p", lam, dA, x[:-1]) + np.einsum("pijx,pijx->p", Lam, change))
            by_rate = slopes[0].reshape(len(rates), -1).sum(axis=1)
            return value, np.append(by_rate, [slope.sum() for slope in slopes[1:]])

    def noise_shares(self, rates: Array, u: Array) -> tuple[float, Array]:
        """The signal at the end, and what the noise of each piece adds to the loss there, per unit of 1 / B."""
        with np.errstate(all="ignore"):
            basis = self._basis(u)
            (A, Q), r = self._maps(rates, u, basis), self._row(basis)
            _, _, y, _ = self._run(A, Q, basis)
            last = np.zeros((len(A), *Q.shape[1:]))
            last[-1] = self.wn * r[:, None] * r
            _, Lam = self._adjoints(A, np.zeros((len(A), *r.shape)), last)
            return float(y[-1] ** 2 @ self.ws), np.einsum("pijx,pijx->p", Lam, Q).reshape(len(rates), -1).sum(axis=1)

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
        """A and Q of the steps of each link, (links, k, k, modes), from G and b of one step of each piece."""
        k, pieces, modes = b.shape
        powers = Powers(MomentMap.step(G.reshape(k, k, -1), b.reshape(k, -1)))
        known = {n: powers.map(n) for n in set(self.links)}
        maps, short = [known[n] for n in self.links], int(self.lengths.min())
        A, Q = [link.A for link in maps], [link.Q for link in maps]
        if self.lengths.max() > short:
            one_more = np.repeat(self.lengths > short, modes)
            longer = powers[0] @ maps[-1]
            A[-1], Q[-1] = np.where(one_more, longer.A, A[-1]), np.where(one_more, longer.Q, Q[-1])
        shape = (len(maps), k, k, pieces, modes)
        A, Q = (np.stack(a).reshape(shape).transpose(3, 0, 1, 2, 4).reshape(-1, k, k, modes) for a in (A, Q))
        return A, Q

    def _run(self, A: Array, Q: Array, basis: Basis) -> tuple[Array, Array, Array, Array]:
        """The states before each link and after the last, and what is read after each link: without noise, and due to noise."""
        first, r = basis.column(np.array(self.optimizer.initial(), dtype=float)[:, None]), self._row(basis)
        x, N = loops().chain(A, Q, np.zeros((len(A), *first.shape[:1], A.shape[-1])), first, np.zeros(Q.shape[1:]))
        return x, N, np.einsum("ix,pix->px", r, x[1:]), np.einsum("ix,pijx,jx->px", r, N[1:], r)

    def _row(self, basis: Basis) -> Array:
        return basis.row(np.array(self.optimizer.readout(int(self.lengths.sum())), dtype=float)[:, None])

    @staticmethod
    def _adjoints(A: Array, lam: Array, Lam: Array) -> tuple[Array, Array]:
        """Derivatives by the state after each link, from those of its own reading: ``A' Lambda A`` composes as moments do."""
        turned = np.ascontiguousarray(A[:0:-1].transpose(0, 2, 1, 3))
        lams, Lams = loops().chain(turned, Lam[-2::-1], lam[-2::-1], lam[-1], Lam[-1])
        return lams[::-1], Lams[::-1]
