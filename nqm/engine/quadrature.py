"""Gauss quadrature rules for sums over modes: of equally spaced indices, and of any block of modes."""

from __future__ import annotations

import numpy as np

from ..types import Array

FEWEST_NODES, MOST_NODES = 4, 96  # bounds on the nodes of a block's rule
TAU = 0.05 * 2.0 ** (np.arange(22) / 2)[:, None]  # times of a rule's test, from a block's first change to long after

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
    """Gauss rules of the measure that puts ``mass`` at h, one after another: more nodes go on from fewer."""

    def __init__(self, h: Array, mass: Array, most: int) -> None:
        self.h, self.total = h, mass.sum()
        self.next = np.sqrt(mass / self.total)
        self.basis = np.empty((most, h.size))  # (degree, mode)
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
        k = len(self.alpha)
        self.basis[k], known = self.next, self.basis[: k + 1]
        q = self.h * self.next
        self.alpha.append(float(self.next @ q))
        q -= self.alpha[k] * self.next
        if k:
            q -= self.beta[k - 1] * self.basis[k - 1]
        q -= (known @ q) @ known  # reorthogonalised fully: the polynomials at the nodes rely on it
        self.beta.append(float(np.linalg.norm(q)))
        self.next = q / (self.beta[-1] or 1.0)


def compress_block(h: Array, signal: Array, noise: Array, count: Array, tol: float, swings: bool = True) -> Block:
    """Gauss nodes of a block's total mass, with weights for signal, noise and count, as few as are good to ``tol``.

    A block that no rule of `MOST_NODES` or of 0.7 of its modes serves is cut in two; down to an octave, which keeps its modes.
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
    """The smallest Gauss rule of a block's total mass that is good to ``tol``, if there is one.

    Signal and noise share the nodes. Their weights are interpolatory, ``w_i sum_j p_j(x_i) int p_j``: for densities
    that are smooth against the total mass these are as good as Gauss rules of their own.
    """
    most = min(int(0.7 * h.size), MOST_NODES)
    if most < FEWEST_NODES:
        return None
    mass = signal / (signal.sum() or 1.0) + noise / (noise.sum() or 1.0)
    lanczos, scale, moments = Lanczos(h, mass, most), h.max(), np.empty((3, most))
    # p_j at a mode is the basis over its first vector, the root of the mode's share of the mass.
    densities = np.stack([signal, noise, count]) / np.sqrt(mass * lanczos.total)
    full = responses(h / scale, swings) @ np.stack([signal, noise], axis=1)
    kinds = full.reshape(4 if swings else 2, -1, 2)  # each is held to its own largest value
    size = np.broadcast_to(kinds.max(1, keepdims=True), kinds.shape).reshape(full.shape)
    # A rough density can get weights below zero by a rounding where it is zero anyway; more is a bad rule.
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
    """What modes can have left of their share of the loss in a run, for z = h over the largest h: (response, mode).

    That is a function of h alone, at worst ``exp(-2 t h)`` (SGD) or ``exp(-t) cos^2(t sqrt h)`` (heavy ball near its best
    damping), with t as `TAU`.
    """
    slow = _squares(np.exp(-2 * TAU[:2] * z), len(TAU))
    if not swings:
        return np.concatenate([slow, slow / z])
    swing = np.real(_squares(np.exp(1j * TAU[:2] * np.sqrt(z)), len(TAU) + 4)) ** 2
    late = np.exp(-TAU) * swing[4:]  # what a tuned run has left of swings four times as fast
    return np.concatenate([slow, swing[:-4], slow / z, late])


def _squares(first: Array, count: int) -> Array:
    """Rows that are each the square of the one two before: exponentials of times that double every other row."""
    rows = np.empty((count, first.shape[1]), dtype=first.dtype)
    rows[:2] = first
    for i in range(2, count, 2):
        np.multiply(rows[i - 2 : i], rows[i - 2 : i], out=rows[i : i + 2])
    return rows
