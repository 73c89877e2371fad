"""Gauss quadrature rules for sums over modes: of equally spaced indices, and of any block of modes."""

from __future__ import annotations

import math

import numpy as np

from .moments import Array

FEWEST_NODES, MOST_NODES = 4, 64  # of a block's rule; what needs more keeps its modes
TAU = np.geomspace(0.05, 20.0, 24)[:, None]  # every scale of time from a slow block to one long gone

Block = tuple[Array, Array, Array, Array]


def uniform_rule(first: int, last: int, nodes: int) -> tuple[Array, Array]:
    """Nodes and weights with ``sum w f(x) = sum_{i=first}^{last} f(i)`` for polynomials of degree below 2 ``nodes``.

    The orthogonal polynomials of N equally spaced points are the discrete Chebyshev polynomials, whose recurrence
    coefficients ``k^2 (N^2 - k^2) / (4 (4 k^2 - 1))`` are known for any N, 10^12 included.

    >>> x, w = uniform_rule(1, 10**12, nodes=3)
    >>> bool(abs((w * x**3).sum() / (10**12 * (10**12 + 1) / 2) ** 2 - 1) < 1e-14)
    True
    """
    N = last - first + 1
    if nodes >= N:
        return np.arange(float(first), last + 1), np.ones(N)
    k = np.arange(1.0, nodes)
    off = np.sqrt(k**2 * (float(N) ** 2 - k**2) / (4 * (4 * k**2 - 1)))
    x, V = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return (first + last) / 2 + x, N * V[0] ** 2


class Lanczos:
    """Gauss rules of the measure that puts ``mass`` at h, one after another: more nodes go on from fewer."""

    def __init__(self, h: Array, mass: Array) -> None:
        self.h, self.total = h, mass.sum()
        self.next = np.sqrt(mass / self.total)
        self.basis = np.empty((0, h.size))  # (degree, mode)
        self.alpha: list[float] = []
        self.beta: list[float] = []

    def rule(self, nodes: int) -> tuple[Array, Array, Array]:
        """Nodes, weights, and the orthonormal polynomials at the nodes (degree, node)."""
        while len(self.alpha) < nodes:
            self._extend()
        off = np.array(self.beta[: nodes - 1])
        x, V = np.linalg.eigh(np.diag(self.alpha[:nodes]) + np.diag(off, 1) + np.diag(off, -1))
        return x, self.total * V[0] ** 2, V / V[0]

    def _extend(self) -> None:
        if self.beta and self.beta[-1] <= 1e-14 * self.h.max():
            raise np.linalg.LinAlgError("fewer distinct curvatures than nodes")
        self.basis = np.vstack([self.basis, self.next])
        q = self.h * self.next
        self.alpha.append(float(self.next @ q))
        for _ in range(2):  # reorthogonalise fully, twice: the polynomials at the nodes rely on it
            q = q - (self.basis @ q) @ self.basis
        self.beta.append(float(np.linalg.norm(q)))
        self.next = q / (self.beta[-1] or 1.0)


def compress_block(h: Array, signal: Array, noise: Array, count: Array, tol: float, swings: bool = True) -> Block:
    """Gauss nodes of a block's total mass, with weights for signal, noise and count; the block itself if that is no larger.

    Signal and noise share the nodes. Their weights are interpolatory, ``w_i sum_j p_j(x_i) int p_j``: for densities
    that are smooth against the total mass these are as good as Gauss rules of their own.
    """
    total = [signal.sum() or 1.0, noise.sum() or 1.0]
    mass = signal / total[0] + noise / total[1]
    live = mass > 0
    h, signal, noise, count, mass = (a[live] for a in (h, signal, noise, count, mass))
    most = min(0.7 * h.size, MOST_NODES)
    if not most > FEWEST_NODES:
        return h, signal, noise, count
    lanczos, scale = Lanczos(h, mass), h.max()
    # p_j at a mode is the basis over its first vector, the root of the mode's share of the mass.
    densities = np.stack([signal, noise, count]) / np.sqrt(mass * lanczos.total)
    full = responses(h / scale, swings) @ np.stack([signal, noise], axis=1)
    # A rough density can get weights below zero by a rounding where it is zero anyway; more is a bad rule.
    least = np.array([[-1e-12 * signal.sum()], [-1e-12 * noise.sum()]])
    for nodes in range(FEWEST_NODES, math.ceil(most), 2):
        try:
            x, w, P = lanczos.rule(nodes)
        except np.linalg.LinAlgError:
            break
        s, c, n = w * (densities @ lanczos.basis.T @ P)
        if np.all(np.stack([s, c]) >= least) and np.all(n > 0):
            s, c = np.maximum(s, 0), np.maximum(c, 0)
            off = np.abs(responses(x / scale, swings) @ np.stack([s, c], axis=1) - full)
            if np.all(off.max(0) <= tol * full.max(0)):
                return x, s, c, n
    return h, signal, noise, count


def responses(z: Array, swings: bool = True) -> Array:
    """What modes can have left of their share of the loss in a run, for z = h over the largest h: (response, mode).

    That is a function of h alone, at worst ``exp(-2 t h)`` (SGD) or ``exp(-t) cos^2(t sqrt h)`` (heavy ball near its best
    damping), with t as `TAU`.
    """
    slow = np.exp(-2 * TAU * z)
    if not swings:
        return np.concatenate([slow, slow / z])
    root = np.sqrt(z)
    swing = np.cos(TAU * root) ** 2
    late = np.exp(-TAU) * np.cos(4 * TAU * root) ** 2  # what a tuned run has left of faster swings
    return np.concatenate([slow, swing, slow / z, late])
