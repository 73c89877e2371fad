"""Least squares over long horizons, at a cost that grows with the logarithm of the number of steps.

Stepping is exact but costs T steps. A search asks for the loss after T steps of thousands of settings. After the first
steps tau, the one number that couples the modes, is smooth. So time is divided into blocks of 2^i cycles, short ones first.
Within a block, tau at each phase of the cycle is a polynomial of degree 4, determined by Galerkin's condition: its moments
over the block are those of the tau that it causes. Let L be the map of one cycle on the moments M of a mode, and u = s / J
the time within a block of J cycles::

    M_J = L^J M_0 + sum_n a_n P_n,     P_n = sum_s L^(J-1-s) Q u^n
    sum_s u^n tau(s) = R_n M_0 + sum_k W_nk a_k,   R_n = sum_s u^n v L^s,   W_nk = sum_{r<s} u_s^n v L^(s-1-r) Q u_r^k

L^J, P, R and W of a block of 2 J cycles follow from those of J by the binomial theorem. Blocks of up to 4 cycles are exact,
if a cycle has no more than 12 steps. In a longer cycle, tau is a polynomial over the steps of the cycle, too.

The letters of axes are: i, j, k, l for entries of M (or slots, in a step); n, k, a, b for powers of u; p, q for shapes of
tau over the steps of a cycle; s for settings; and x for the modes of all settings, one setting after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..types import Array
from .coupled import Coupled

DEGREE = 4  # degree of tau as a polynomial in the time within a block
MAX_PHASES = 12  # steps of the longest cycle in which each step has a tau of its own
SHAPES = 6  # number of polynomials of which tau is a combination in a longer cycle
MAX_PERIOD = 1024  # steps of the longest cycle that `Renewal` takes
RUNAWAY = 1.5  # a block with a larger gain grows too fast to be followed; a stable setting has a gain below 1
SHARE = 8  # a block is not longer than the time before it divided by this
BINOMIAL = np.array([[math.comb(n, k) for k in range(2 * DEGREE + 1)] for n in range(2 * DEGREE + 1)], dtype=float)
HALF = 0.5 ** np.arange(2 * DEGREE + 1)


@dataclass(frozen=True, eq=False)
class TimeBlock:
    """J cycles as one step, in the letters above.

    D is L^J - I, which keeps the full relative accuracy of slow modes.
    """

    D: Array  # (i, j, x)
    P: Array  # (n, p, i, x): what a tau of shape p that grows as u^n adds to M
    R: Array  # (n, p, i, x): the moment u^n, in shape p, of the tau that M causes
    W: Array  # (s, n, p, k, q): the moment u^n, in shape p, of the tau that a tau of shape q growing as u^k causes
    S: Array  # (n), for twice as many powers: the sum of u^n over the cycles
    one: Array  # (p): the coefficients of a tau that is constant throughout the cycle

    @cached_property
    def feedback(self) -> tuple[Array, Array]:
        """(S - W)^-1, which turns moments of tau into the polynomial a; and whether noise runs away, for each setting."""
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
        wide = (P.shape[0] * P.shape[1], P.shape[2], -1, nodes)  # The sum over the moments of a setting is a product.
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

    Settings are as in `Coupled`. Only tau within a block is approximated, with an error of some 1e-6 of the loss.
    """

    def __init__(self, coupled: Coupled) -> None:
        self.coupled, self.blocks = coupled, {}

    @staticmethod
    def fits(coupled: Coupled) -> bool:
        """Whether the steps repeat after at most `MAX_PERIOD` steps, without a schedule."""
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
        """The moments after ``to`` steps, from the moments after t steps."""
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
        """The block of 2^level cycles of ``period`` steps that begins with step ``first``, stored for later calls."""
        d = self.coupled.trajectory
        key = ((first - d.repeats_from) % d.period if first >= d.repeats_from else -1 - first, period)
        ladder = self.blocks.setdefault(key, [])
        if not ladder:
            ladder.append(self._cycle(first, period))
        while len(ladder) <= level:
            ladder.append(ladder[-1].twice(self.coupled.nodes))
        return ladder[level]

    def _cycle(self, first: int, period: int) -> TimeBlock:
        """The block of one cycle, with a tau for each of its steps, or in a long cycle with a polynomial over them."""
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
        """L - I on the moments M_ij, i <= j; the noise Q per unit of tau; and tau as a functional of M."""
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
        """The moments after a block; NaN if noise feeds back within the block faster than a polynomial can follow."""
        c, shapes = self.coupled, block.P.shape[1]
        inverse, lost = block.feedback
        q = inverse.shape[1] // shapes
        split = (len(M), -1, c.nodes)
        felt = np.einsum("npisx,isx->snp", block.R[:q].reshape(q, shapes, *split), M.reshape(split))
        felt += c.label_noise * block.S[:q, None] * block.one
        a = (inverse @ felt.reshape(-1, q * shapes, 1)).reshape(-1, q, shapes)
        total, least = np.einsum("k,skp->sp", block.S[:q], a) @ block.one, felt[:, 0] @ block.one
        a[lost | (total < (1 - 1e-6) * least)] = np.nan  # Noise can only add to tau, so a smaller tau has run away.
        a = np.repeat(a, c.nodes, axis=0).transpose(1, 2, 0)
        return M + np.einsum("ijx,jx->ix", block.D, M) + np.einsum("npx,npix->ix", a, block.P[:q])


def _shapes(period: int) -> Array:
    """Orthonormal functions over the steps of a cycle: one for each step, or polynomials if there are too many steps."""
    if period <= MAX_PHASES:
        return np.eye(period)
    powers = np.linspace(-1.0, 1.0, period)[:, None] ** np.arange(SHAPES)
    return np.linalg.qr(powers)[0].T


def _pairs(a: Array, b: Array) -> Array:
    """The entries i <= j of a b'."""
    i, j = np.triu_indices(len(a))
    return a[i] * b[j]


def _functional(r: Array) -> Array:
    """The weights of the entries M_ij, i <= j, in r' M r."""
    i, j = np.triu_indices(len(r))
    return np.where(i == j, 1.0, 2.0)[:, None] * r[i] * r[j]
