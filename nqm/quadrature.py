"""Gauss quadrature rules for sums over modes: of equally spaced indices, and of any block of modes."""

from __future__ import annotations

import numpy as np

from .moments import Array

MOST_NODES = 64  # of a block's rule; what needs more keeps its modes

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


def gauss_rule(h: Array, mass: Array, nodes: int) -> tuple[Array, Array, Array, Array]:
    """Gauss rule of the measure that puts ``mass`` at h, by Lanczos.

    Returns nodes, weights, the orthonormal polynomials at the nodes (degree, node), and the Lanczos basis (mode, degree).
    """
    basis = np.zeros((h.size, nodes))
    alpha, beta = np.zeros(nodes), np.zeros(nodes)
    q = np.sqrt(mass / mass.sum())
    for k in range(nodes):
        basis[:, k] = q
        q = h * q
        alpha[k] = basis[:, k] @ q
        for _ in range(2):  # reorthogonalise fully, twice: the polynomials below rely on it
            q = q - basis[:, : k + 1] @ (basis[:, : k + 1].T @ q)
        beta[k] = np.linalg.norm(q)
        if beta[k] <= 1e-14 * h.max() and k + 1 < nodes:
            raise np.linalg.LinAlgError("fewer distinct curvatures than nodes")
        q = q / (beta[k] or 1.0)
    x, V = np.linalg.eigh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
    return x, mass.sum() * V[0] ** 2, V / V[0], basis


def compress_block(h: Array, signal: Array, noise: Array, count: Array, tol: float, swings: bool = True) -> Block:
    """Gauss nodes of a block's total mass, with weights for signal, noise and count; the block itself if that is no larger.

    Signal and noise share the nodes. Their weights are interpolatory, ``w_i sum_j p_j(x_i) int p_j``: for densities
    that are smooth against the total mass these are as good as Gauss rules of their own.
    """
    total = [signal.sum() or 1.0, noise.sum() or 1.0]
    mass = signal / total[0] + noise / total[1]
    live = mass > 0
    h, signal, noise, count, mass = (a[live] for a in (h, signal, noise, count, mass))
    nodes = 4
    while nodes < min(0.7 * h.size, MOST_NODES):
        try:
            x, w, P, basis = gauss_rule(h, mass, nodes)
        except np.linalg.LinAlgError:
            break
        root = np.sqrt(mass / mass.sum())
        shares = []
        for measure in (signal, noise, count):
            moments = basis.T @ (measure / root) * np.sqrt(1 / mass.sum()) / np.sqrt(mass.sum())
            shares.append(w * (moments @ P))
        s, c, n = shares
        # A rough density can get weights below zero by a rounding where it is zero anyway; more is a bad rule.
        small = [-1e-12 * m.sum() for m in (signal, noise)]
        if np.all(s >= small[0]) and np.all(c >= small[1]) and np.all(n > 0):
            s, c = np.maximum(s, 0), np.maximum(c, 0)
            if error((h, signal, noise), (x, s, c), swings) <= tol:
                return x, s, c, n
        nodes += 2
    return h, signal, noise, count


def error(block: tuple[Array, Array, Array], rule: tuple[Array, Array, Array], swings: bool = True) -> float:
    """Largest relative error of a rule, over responses that a run can have.

    A mode's share of the loss is a function of h alone, at worst ``exp(-2 t h)`` (SGD) or ``exp(-t) cos^2(t sqrt h)``
    (heavy ball near its best damping); t runs over every scale from a slow block to one long gone.
    """
    (h, s, c), (x, sx, cx) = block, rule
    scale = h.max()
    tau = np.geomspace(0.05, 20.0, 24)[:, None]

    def responses(at: Array) -> Array:
        z = at / scale
        slow = np.exp(-2 * tau * z)
        if not swings:
            return np.concatenate([slow, slow / z])
        swing = np.cos(tau * np.sqrt(z)) ** 2
        late = np.exp(-4 * tau / 4) * np.cos(4 * tau * np.sqrt(z)) ** 2  # what a tuned run has left of faster swings
        return np.concatenate([slow, swing, slow / z, late])

    F, Fx = responses(h), responses(x)
    worst = 0.0
    for full, short in ((s, sx), (c, cx)):
        if full.sum() > 0:
            worst = max(worst, float(np.abs(F @ full - Fx @ short).max() / (F @ full).max()))
    return worst
