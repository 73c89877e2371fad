"""Gauss quadrature rules for sums over modes: over equally spaced indices, and over any block of modes."""

from __future__ import annotations

import numpy as np

from ..types import Array

FEWEST_NODES, MOST_NODES = 4, 96  # fewest and most nodes of the rule of a block
TAU = (
    0.05 * 2.0 ** (np.arange(22) / 2)[:, None]
)  # times at which a rule is tested, in units of 1 / (largest h of its block)

Block = tuple[Array, ...]
"""h, signal mass, noise mass and count of some modes or nodes."""


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
    """Gauss rules of the measure with ``mass`` at h; a rule of more nodes continues from the rule of fewer."""

    def __init__(self, h: Array, mass: Array, most: int) -> None:
        self.h, self.total = h, mass.sum()
        self.next = np.sqrt(mass / self.total)
        self.basis = np.empty((most, h.size))  # (degree, mode)
        self.alpha: list[float] = []
        self.beta: list[float] = []

    def rule(self, nodes: int) -> tuple[Array, Array, Array]:
        """Nodes, weights, and the values of the orthonormal polynomials at the nodes (degree, node)."""
        while len(self.alpha) < nodes:
            self._extend()
        off = np.array(self.beta[: nodes - 1])
        x, V = np.linalg.eigh(np.diag(self.alpha[:nodes]) + np.diag(off, 1) + np.diag(off, -1))
        return x, self.total * V[0] ** 2, V / V[0]

    def _extend(self) -> None:
        if self.beta and self.beta[-1] <= 1e-14 * self.h.max():
            raise np.linalg.LinAlgError("fewer distinct curvatures than nodes")
        k = len(self.alpha)
        self.basis[k], known = self.next, self.basis[: k + 1]
        q = self.h * self.next
        self.alpha.append(float(self.next @ q))
        q -= self.alpha[k] * self.next
        if k:
            q -= self.beta[k - 1] * self.basis[k - 1]
        q -= (known @ q) @ known  # full reorthogonalisation, which the polynomials at the nodes need
        self.beta.append(float(np.linalg.norm(q)))
        self.next = q / (self.beta[-1] or 1.0)


def compress_block(h: Array, signal: Array, noise: Array, count: Array, tol: float, swings: bool = True) -> Block:
    """The fewest Gauss nodes of the total mass of a block, with weights for signal, noise and count, accurate to ``tol``.

    A rule has at most `MOST_NODES` nodes, and at most 0.7 times as many as the block has modes. A block for which no such
    rule is accurate is cut in two. A block within one octave of curvature is not cut and keeps its modes.
    """
    live = signal + noise > 0
    h, signal, noise, count = (a[live] for a in (h, signal, noise, count))
    found = _rule(h, signal, noise, count, tol, swings)
    if found is not None:
        return found
    if h.size == 0 or h.max() <= 2 * h.min():
        return h, signal, noise, count
    upper = h > np.sqrt(h.max() * h.min())
    halves = [compress_block(h[i], signal[i], noise[i], count[i], tol, swings) for i in (upper, ~upper)]
    return tuple(np.concatenate(columns) for columns in zip(*halves, strict=True))


def _rule(h: Array, signal: Array, noise: Array, count: Array, tol: float, swings: bool) -> Block | None:
    """The smallest Gauss rule of the total mass of a block that is accurate to ``tol``, or None.

    Signal and noise share the nodes. Their weights are interpolatory, ``w_i sum_j p_j(x_i) int p_j``. For densities that
    are smooth relative to the total mass, these are as accurate as Gauss rules of their own.
    """
    most = min(int(0.7 * h.size), MOST_NODES)
    if most < FEWEST_NODES:
        return None
    mass = signal / (signal.sum() or 1.0) + noise / (noise.sum() or 1.0)
    lanczos, scale, moments = Lanczos(h, mass, most), h.max(), np.empty((3, most))
    # The value of p_j at a mode is basis[j] / basis[0], and basis[0] is the square root of the mode's share of the mass.
    densities = np.stack([signal, noise, count]) / np.sqrt(mass * lanczos.total)
    full = responses(h / scale, swings) @ np.stack([signal, noise], axis=1)
    kinds = full.reshape(4 if swings else 2, -1, 2)  # The error of each kind is relative to its own largest value.
    size = np.broadcast_to(kinds.max(1, keepdims=True), kinds.shape).reshape(full.shape)
    # Rounding can make a weight slightly negative where the density is zero. A more negative weight rejects the rule.
    least = np.array([[-1e-12 * signal.sum()], [-1e-12 * noise.sum()]])
    for nodes in range(FEWEST_NODES, most + 1, 2):
        known = len(lanczos.alpha)
        try:
            x, w, P = lanczos.rule(nodes)
        except np.linalg.LinAlgError:
            return None
        moments[:, known:nodes] = densities @ lanczos.basis[known:nodes].T
        s, c, n = w * (moments[:, :nodes] @ P)
        if np.all(np.stack([s, c]) >= least) and np.all(n > 0):
            s, c = np.maximum(s, 0), np.maximum(c, 0)
            off = np.abs(responses(x / scale, swings) @ np.stack([s, c], axis=1) - full)
            if np.all(off <= tol * size):
                return x, s, c, n
    return None


def responses(z: Array, swings: bool = True) -> Array:
    """The share of its initial loss that a mode z = h / (largest h) can have left in a run, (response, mode).

    The share is a function of h alone. The hardest ones to integrate are ``exp(-2 t h)`` (SGD) and ``exp(-t) cos^2(t sqrt h)``
    (heavy ball near its best damping), at the times t of `TAU`.
    """
    slow = _squares(np.exp(-2 * TAU[:2] * z), len(TAU))
    if not swings:
        return np.concatenate([slow, slow / z])
    swing = np.real(_squares(np.exp(1j * TAU[:2] * np.sqrt(z)), len(TAU) + 4)) ** 2
    late = np.exp(-TAU) * swing[4:]  # what a tuned run has left of swings that are four times as fast
    return np.concatenate([slow, swing[:-4], slow / z, late])


def _squares(first: Array, count: int) -> Array:
    """``count`` rows, each the square of the row two before it: exponentials of times that double every other row."""
    rows = np.empty((count, first.shape[1]), dtype=first.dtype)
    rows[:2] = first
    for i in range(2, count, 2):
        np.multiply(rows[i - 2 : i], rows[i - 2 : i], out=rows[i : i + 2])
    return rows
