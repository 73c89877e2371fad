"""Least squares over long horizons: the cost of a run grows with the logarithm of its length.

Stepping is exact but costs T steps. A search asks for the loss after T steps of thousands of settings, and there tau,
the one number through which modes meet, is smooth but for its first steps. So time is cut into blocks of 2^i cycles,
short ones first, and within a block tau at each phase of the cycle is a polynomial of degree 4, found by Galerkin's
condition: its moments over the block are those of the tau it brings about. With L the map of one cycle on the moments M
of a mode, u = s / J the time within a block of J cycles::

    M_J = L^J M_0 + sum_n a_n P_n,     P_n = sum_s L^(J-1-s) Q u^n
    sum_s u^n tau(s) = R_n M_0 + sum_k W_nk a_k,   R_n = sum_s u^n v L^s,   W_nk = sum_{r<s} u_s^n v L^(s-1-r) Q u_r^k

and all four of a block of 2 J follow from those of J by the binomial theorem. Blocks up to 4 cycles are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .coupled import Coupled
from .moments import Array

DEGREE = 4  # of tau within a block
MAX_PHASES = 12  # of a cycle: each has a tau of its own
RUNAWAY = 1.5  # gain of a block that grows too fast to be followed; a stable setting has less than 1
SHARE = 8  # a block is at most this fraction of the time before it
BINOMIAL = np.array([[math.comb(n, k) for k in range(2 * DEGREE + 1)] for n in range(2 * DEGREE + 1)], dtype=float)
HALF = 0.5 ** np.arange(2 * DEGREE + 1)


@dataclass(frozen=True, eq=False)
class Block:
    """J cycles as one step; D is L^J - I, which keeps slow modes to full relative accuracy."""

    D: Array  # (m, m, modes)
    P: Array  # (degree, phase, m, modes)
    R: Array  # (degree, phase, m, modes)
    W: Array  # (setting, degree, phase, degree, phase)
    S: Array  # (2 degrees): sum of u^n

    @cached_property
    def feedback(self) -> tuple[Array, Array]:
        """(S - W)^-1, which turns the moments of what is felt into the polynomial a; and which settings run away."""
        phases, q = self.P.shape[1], min(DEGREE, round(self.S[0]) - 1) + 1
        sums = self.S[np.add.outer(np.arange(q), np.arange(q))]
        system = np.einsum("nk,pq->npkq", sums, np.eye(phases)) - self.W[:, :q, :, :q]
        lost = ~np.isfinite(system).all(axis=(1, 2, 3, 4))
        lost |= self.W[:, 0, :, 0].sum(axis=2).min(axis=1) > RUNAWAY * self.S[0]
        size = q * phases
        system = system.reshape(-1, size, size)
        system[lost] = np.eye(size)
        return np.linalg.inv(system), lost

    def twice(self, nodes: int) -> Block:
        """The block of 2 J cycles."""
        C, half, D = BINOMIAL[: DEGREE + 1, : DEGREE + 1], HALF[: DEGREE + 1], self.D
        shape = (-1, 1, 1, 1)
        P_late = np.tensordot(C, self.P, 1)
        P = half.reshape(shape) * (self.P + np.einsum("ijx,npjx->npix", D, self.P) + P_late)
        R_late = np.tensordot(C, self.R, 1)
        R = half.reshape(shape) * (self.R + R_late + np.einsum("npix,ijx->npjx", R_late, D))
        wide = (P.shape[0] * P.shape[1], P.shape[2], -1, nodes)  # the sum over a setting's moments, as a product
        late, early = (
            a.reshape(wide).transpose(2, 0, 1, 3).reshape(-1, wide[0], wide[1] * nodes) for a in (R_late, self.P)
        )
        across = (late @ early.transpose(0, 2, 1)).reshape(self.W.shape)
        W = self.W + across + np.einsum("kb,snpbq->snpkq", C, np.einsum("na,sapbq->snpbq", C, self.W))
        W *= half[:, None, None, None] * half[:, None]
        return Block(2 * D + np.einsum("ijx,jkx->ikx", D, D), P, R, W, HALF * (self.S + BINOMIAL @ self.S))


class Renewal:
    """The losses of settings after any number of steps, for an optimizer whose steps repeat.

    Settings are as in `Coupled`. The approximation is that of tau within a block, parts in a million of the loss.
    """

    def __init__(self, coupled: Coupled) -> None:
        self.coupled, self.blocks = coupled, {}

    @staticmethod
    def fits(coupled: Coupled) -> bool:
        """Whether the steps repeat, and soon."""
        return 0 < coupled.dynamics.period <= MAX_PHASES and coupled.schedule is None

    def losses(self, t: int) -> Array:
        """The loss of each setting after t steps."""
        return self.loss(self.move(self.start(), 0, t), t)

    def start(self) -> Array:
        """The moments M_ij, i <= j, of the start."""
        X = self.coupled.dynamics.start().A[:, 0]
        return self.coupled.s * _pairs(X, X)

    def loss(self, M: Array, t: int) -> Array:
        """The loss of each setting at moments M after t steps; NaN where a setting has blown up."""
        c = self.coupled
        return (c.mass * (_functional(c.dynamics.row(t)) * M).sum(0)).reshape(c.settings, c.nodes).sum(1) / 2

    def move(self, M: Array, t: int, to: int) -> Array:
        """The moments after ``to`` steps from those after t."""
        d = self.coupled.dynamics
        while t < to:
            settled = t >= d.settled
            end = to if settled else int(min(d.same_until(t), to))
            period = d.period if settled else 1
            if end - t < period:
                M = self._advance(self._block(t, 0, end - t), M)
                t = end
            first, cycles = t, (end - t) // period
            while cycles:
                level = min(max(t // (SHARE * period), 1), cycles).bit_length() - 1
                M = self._advance(self._block(first, level, period), M)
                t, cycles = t + period * 2**level, cycles - 2**level
        return M

    def _block(self, first: int, level: int, period: int) -> Block:
        """2^level cycles of ``period`` steps that begin as step ``first`` does, kept."""
        d = self.coupled.dynamics
        key = ((first - d.settled) % d.period if first >= d.settled else -1 - first, period)
        ladder = self.blocks.setdefault(key, [])
        if not ladder:
            ladder.append(self._cycle(first, period))
        while len(ladder) <= level:
            ladder.append(ladder[-1].twice(self.coupled.nodes))
        return ladder[level]

    def _cycle(self, first: int, period: int) -> Block:
        """One cycle: every step's noise has its own tau."""
        c = self.coupled
        steps = [self._step(t) for t in range(first, first + period)]
        D = np.zeros_like(steps[0][0])
        m, modes = D.shape[1:]
        P, R = np.zeros((DEGREE + 1, period, m, modes)), np.zeros((DEGREE + 1, period, m, modes))
        W = np.zeros((c.settings, DEGREE + 1, period, DEGREE + 1, period))
        for i, (step, Q, v) in enumerate(steps):
            R[0, i] = v + np.einsum("ix,ijx->jx", v, D)
            for j in range(i):
                W[:, 0, i, 0, j] = (v * P[0, j]).reshape(m, c.settings, c.nodes).sum(axis=(0, 2))
            P[0, :i] += np.einsum("ijx,pjx->pix", step, P[0, :i])
            P[0, i] = Q
            D = D + step + np.einsum("ijx,jkx->ikx", step, D)
        return Block(D, P, R, W, np.eye(2 * DEGREE + 1)[0])

    def _step(self, t: int) -> tuple[Array, Array, Array]:
        """L - I on the moments M_ij, i <= j; the noise Q per unit tau; and tau as a functional of M."""
        c = self.coupled
        G, b, batch = c.dynamics.system(t)
        k = len(b)
        seen = _functional(c.dynamics.look(t))
        Q = c.c * c.per_example / batch * _pairs(b, b)
        D = np.empty((len(Q), *Q.shape))
        i, j = np.triu_indices(k)
        for column, (a, e) in enumerate(zip(i, j, strict=True)):
            unit = np.zeros((k, k, 1))
            unit[a, e] = unit[e, a] = 1.0
            GM = np.einsum("ilx,ljx->ijx", G, unit)
            moved = GM + GM.transpose(1, 0, 2) + np.einsum("ilx,jlx->ijx", GM, G)
            D[:, column] = moved[i, j] + c.h * Q * seen[column]
        return D, Q, c.mass * seen

    def _advance(self, block: Block, M: Array) -> Array:
        """The moments after a block; NaN where noise feeds back within it faster than a polynomial can follow."""
        c, phases = self.coupled, block.P.shape[1]
        inverse, lost = block.feedback
        q = inverse.shape[1] // phases
        split = (len(M), -1, c.nodes)
        felt = np.einsum("npisx,isx->snp", block.R[:q].reshape(q, phases, *split), M.reshape(split))
        felt += c.label_noise * block.S[:q, None]
        a = (inverse @ felt.reshape(-1, q * phases, 1)).reshape(-1, q, phases)
        shrunk = np.einsum("k,skp->sp", block.S[:q], a) < (1 - 1e-6) * felt[:, 0]  # but noise only adds
        a[lost | shrunk.any(axis=1)] = np.nan
        a = np.repeat(a, c.nodes, axis=0).transpose(1, 2, 0)
        return M + np.einsum("ijx,jx->ix", block.D, M) + np.einsum("npx,npix->ix", a, block.P[:q])


def _pairs(a: Array, b: Array) -> Array:
    """The entries i <= j of a b'."""
    i, j = np.triu_indices(len(a))
    return a[i] * b[j]


def _functional(r: Array) -> Array:
    """r' M r as weights of the entries i <= j."""
    i, j = np.triu_indices(len(r))
    return np.where(i == j, 1.0, 2.0)[:, None] * r[i] * r[j]
