"""Least squares over long horizons: the cost of a run grows with the logarithm of its length.

Stepping is exact but costs T steps. A search asks for the loss after T steps of thousands of settings, and there tau,
the one number through which modes meet, is smooth but for its first steps. So time is cut into blocks of 2^i cycles,
short ones first, and within a block tau at each phase of the cycle is a polynomial of degree 4, found by Galerkin's
condition: its moments over the block are those of the tau it brings about. With L the map of one cycle on the moments M
of a mode, u = s / J the time within a block of J cycles::

    M_J = L^J M_0 + sum_n a_n P_n,     P_n = sum_s L^(J-1-s) Q u^n
    sum_s u^n tau(s) = R_n M_0 + sum_k W_nk a_k,   R_n = sum_s u^n v L^s,   W_nk = sum_{r<s} u_s^n v L^(s-1-r) Q u_r^k

and all four of a block of 2 J follow from those of J by the binomial theorem. Blocks up to 4 cycles are exact, if a cycle
has no more than 12 steps; in longer ones tau is a polynomial over the steps of the cycle too.

Letters of axes: i, j, k, l entries of M (or slots, in a step), n, k, a, b powers of u, p, q shapes of tau over the steps of a
cycle, s settings, x modes of all settings one after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..types import Array
from .coupled import Coupled

DEGREE = 4  # of tau within a block
MAX_PHASES = 12  # of a cycle, up to which each has a tau of its own
SHAPES = 6  # in a longer cycle tau is a combination of so many polynomials
MAX_PERIOD = 1024
RUNAWAY = 1.5  # gain of a block that grows too fast to be followed; a stable setting has less than 1
SHARE = 8  # a block is at most this fraction of the time before it
BINOMIAL = np.array([[math.comb(n, k) for k in range(2 * DEGREE + 1)] for n in range(2 * DEGREE + 1)], dtype=float)
HALF = 0.5 ** np.arange(2 * DEGREE + 1)


@dataclass(frozen=True, eq=False)
class TimeBlock:
    """J cycles as one step, in the letters above.

    D is L^J - I, which keeps slow modes to full relative accuracy.
    """

    D: Array  # (i, j, x)
    P: Array  # (n, p, i, x): what a tau of shape p that goes as u^n adds to M
    R: Array  # (n, p, i, x): the moment u^n, in shape p, of the tau that M brings about
    W: Array  # (s, n, p, k, q): the moment u^n, in shape p, of the tau that a tau of shape q as u^k brings about
    S: Array  # (n), twice as many: the sum of u^n over the cycles
    one: Array  # (p): the shape that is the same throughout the cycle

    @cached_property
    def feedback(self) -> tuple[Array, Array]:
        """(S - W)^-1, which turns the moments of what is felt into the polynomial a; and which settings run away."""
        shapes, q = self.P.shape[1], min(DEGREE, round(self.S[0]) - 1) + 1
        sums = self.S[np.add.outer(np.arange(q), np.arange(q))]
        system = np.einsum("nk,pq->npkq", sums, np.eye(shapes)) - self.W[:, :q, :, :q]
        lost = ~np.isfinite(system).all(axis=(1, 2, 3, 4))
        lost |= self.one @ self.W[:, 0, :, 0] @ self.one > RUNAWAY * self.S[0] * (self.one @ self.one)
        size = q * shapes
        system = system.reshape(-1, size, size)
        system[lost] = np.eye(size)
        return np.linalg.inv(system), lost

    def twice(self, nodes: int) -> TimeBlock:
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
        return TimeBlock(
            2 * D + np.einsum("ijx,jkx->ikx", D, D), P, R, W, HALF * (self.S + BINOMIAL @ self.S), self.one
        )


class Renewal:
    """The losses of settings after any number of steps, for an optimizer whose steps repeat.

    Settings are as in `Coupled`. The approximation is that of tau within a block, parts in a million of the loss.
    """

    def __init__(self, coupled: Coupled) -> None:
        self.coupled, self.blocks = coupled, {}

    @staticmethod
    def fits(coupled: Coupled) -> bool:
        """Whether the steps repeat, and soon enough."""
        return 0 < coupled.trajectory.period <= MAX_PERIOD and coupled.schedule is None

    def losses(self, t: int) -> Array:
        """The loss of each setting after t steps."""
        return self.loss(self.move(self.start(), 0, t), t)

    def start(self) -> Array:
        """The moments M_ij, i <= j, of the start."""
        X = self.coupled.trajectory.start().A[:, 0]
        return self.coupled.s * _pairs(X, X)

    def loss(self, M: Array, t: int) -> Array:
        """The loss of each setting at moments M after t steps; NaN where a setting has blown up."""
        c = self.coupled
        return (c.mass * (_functional(c.trajectory.row(t)) * M).sum(0)).reshape(c.settings, c.nodes).sum(1) / 2

    def move(self, M: Array, t: int, to: int) -> Array:
        """The moments after ``to`` steps from those after t."""
        d = self.coupled.trajectory
        while t < to:
            settled = t >= d.repeats_from
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

    def _block(self, first: int, level: int, period: int) -> TimeBlock:
        """2^level cycles of ``period`` steps that begin as step ``first`` does, kept."""
        d = self.coupled.trajectory
        key = ((first - d.repeats_from) % d.period if first >= d.repeats_from else -1 - first, period)
        ladder = self.blocks.setdefault(key, [])
        if not ladder:
            ladder.append(self._cycle(first, period))
        while len(ladder) <= level:
            ladder.append(ladder[-1].twice(self.coupled.nodes))
        return ladder[level]

    def _cycle(self, first: int, period: int) -> TimeBlock:
        """One cycle: tau at each of its steps, or in a long one as a polynomial over them."""
        c, shapes = self.coupled, _shapes(period)
        step, Q, v = self._step(first)
        D = np.zeros_like(step)
        P, R = np.zeros((2, DEGREE + 1, len(shapes), *Q.shape))
        W = np.zeros((c.settings, DEGREE + 1, len(shapes), DEGREE + 1, len(shapes)))
        until = c.trajectory.same_until(first)
        for i in range(period):
            if first + i >= until:
                (step, Q, v), until = self._step(first + i), c.trajectory.same_until(first + i)
            now = shapes[:, i, None, None]
            R[0] += now * (v + np.einsum("ix,ijx->jx", v, D))
            felt = (v * P[0]).reshape(len(shapes), len(v), c.settings, c.nodes).sum(axis=(1, 3))
            W[:, 0, :, 0] += shapes[:, i, None] * felt.T[:, None]
            P[0] += np.einsum("ijx,pjx->pix", step, P[0]) + now * Q
            D = D + step + np.einsum("ijx,jkx->ikx", step, D)
        return TimeBlock(D, P, R, W, np.eye(2 * DEGREE + 1)[0], shapes.sum(axis=1))

    def _step(self, t: int) -> tuple[Array, Array, Array]:
        """L - I on the moments M_ij, i <= j; the noise Q per unit tau; and tau as a functional of M."""
        c = self.coupled
        G, b, batch = c.trajectory.system(t)
        k = len(b)
        seen = _functional(c.trajectory.gradient_point(t))
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

    def _advance(self, block: TimeBlock, M: Array) -> Array:
        """The moments after a block; NaN where noise feeds back within it faster than a polynomial can follow."""
        c, shapes = self.coupled, block.P.shape[1]
        inverse, lost = block.feedback
        q = inverse.shape[1] // shapes
        split = (len(M), -1, c.nodes)
        felt = np.einsum("npisx,isx->snp", block.R[:q].reshape(q, shapes, *split), M.reshape(split))
        felt += c.label_noise * block.S[:q, None] * block.one
        a = (inverse @ felt.reshape(-1, q * shapes, 1)).reshape(-1, q, shapes)
        total, least = np.einsum("k,skp->sp", block.S[:q], a) @ block.one, felt[:, 0] @ block.one
        a[lost | (total < (1 - 1e-6) * least)] = np.nan  # noise only adds: something ran away
        a = np.repeat(a, c.nodes, axis=0).transpose(1, 2, 0)
        return M + np.einsum("ijx,jx->ix", block.D, M) + np.einsum("npx,npix->ix", a, block.P[:q])


def _shapes(period: int) -> Array:
    """Orthonormal functions over the steps of a cycle: each step by itself, or polynomials if there are too many."""
    if period <= MAX_PHASES:
        return np.eye(period)
    powers = np.linspace(-1.0, 1.0, period)[:, None] ** np.arange(SHAPES)
    return np.linalg.qr(powers)[0].T


def _pairs(a: Array, b: Array) -> Array:
    """The entries i <= j of a b'."""
    i, j = np.triu_indices(len(a))
    return a[i] * b[j]


def _functional(r: Array) -> Array:
    """r' M r as weights of the entries i <= j."""
    i, j = np.triu_indices(len(r))
    return np.where(i == j, 1.0, 2.0)[:, None] * r[i] * r[j]
