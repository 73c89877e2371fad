"""The inner loops of the engine for numba, for any number of slots; two slots have faster loops of their own (`pairs`).

The innermost index of every loop is the mode, counted from zero, so that every loop vectorises. `_move` works on chunks of
modes that stay in cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...types import Array
from .compiling import loop
from .coupled import scan_coupled as scan_coupled
from .pairs import balance_pair, climb_pairs, end_pairs, hold_pairs, move_pairs, square_pairs, watch_pairs
from .pairs import shear as shear
from .pairs import tilts as tilts
from .plain import CHUNK

compiled = True

# The number of slots is decided on here and not inside a compiled loop, because numba would then compile both branches.


def square(A: Array, d: Array, Q: Array) -> tuple[Array, Array, Array]:
    return square_pairs(A, d, Q) if len(A) == 2 else compose(A, d, Q, A, d, Q)


def move(A: Array, d: Array, Q: Array, X: Array, N: Array, t: int) -> tuple[Array, Array]:
    return (move_pairs if X.shape[:2] == (2, 1) else _move)(A, d, Q, X, N, t)


def end(G: Array, b: Array, x: Array, r: Array, t: int) -> tuple[Array, Array]:
    return (end_pairs if len(G) == 2 else _end)(G, b, x, r, t)


def climb(G: Array, b: Array, x: Array, r: Array, levels: int) -> tuple[Array, Array]:
    return (climb_pairs if len(G) == 2 else _climb)(G, b, x, r, levels)


def watch(
    G: Array, b: Array, x: Array, r: Array, first: int, level: int, count: int, ws: Array, wn: Array
) -> tuple[Array, Array]:  # fmt: skip
    return watch_pairs(G, b, x, r, first, level, count, ws, wn)


def hold(G: Sequence[Array], b: Sequence[Array], q: Array, x: Array, N: Array, t: int) -> tuple[Array, Array]:
    (g00, g01, g10, g11), (b0, b1) = G, b
    return hold_pairs(g00, g01, g10, g11, b0, b1, q, x, N, t)


@loop
def _matmul(out: Array, a: Array, b: Array) -> None:
    """out = a b."""
    rows, inner, width = a.shape
    for i in range(rows):
        for j in range(b.shape[1]):
            for x in range(width):
                out[i, j, x] = a[i, 0, x] * b[0, j, x]
            for k in range(1, inner):
                for x in range(width):
                    out[i, j, x] += a[i, k, x] * b[k, j, x]


@loop
def _sandwich(out: Array, a: Array, m: Array, work: Array) -> None:
    """out += a m a', for symmetric m and out."""
    rows, inner, width = a.shape
    _matmul(work, a, m)
    for i in range(rows):
        for j in range(i, rows):
            for k in range(inner):
                for x in range(width):
                    out[i, j, x] += work[i, k, x] * a[j, k, x]
            if j > i:
                for x in range(width):
                    out[j, i, x] = out[i, j, x]


@loop
def _diagonal(out: Array, d: Array, a2: Array, d2: Array, a1: Array, d1: Array) -> None:
    """d = diag(out) - 1 for out = a2 a1, without cancellation; where d is small, the diagonal of out is set from it."""
    inner, width = a2.shape[1], a2.shape[2]
    for i in range(len(d)):
        if i >= inner:
            for x in range(width):
                d[i, x] = out[i, i, x] - 1.0
            continue
        for x in range(width):
            d[i, x] = d2[i, x] + d1[i, x] + d2[i, x] * d1[i, x]
        for k in range(inner):
            if k != i:
                for x in range(width):
                    d[i, x] += a2[i, k, x] * a1[k, i, x]
        for x in range(width):
            near = abs(d[i, x]) < 0.5  # For a larger d the plain product is more accurate.
            out[i, i, x] = 1.0 + d[i, x] if near else out[i, i, x]
            d[i, x] = d[i, x] if near else out[i, i, x] - 1.0


@loop
def _copy(out: Array, a: Array, to: int = 0, lo: int = 0) -> None:
    """Write the modes of a from lo on into out from ``to`` on, by loops: numba takes seconds to compile each array expression."""
    rows, columns = a.shape[0], a.shape[1]
    for i in range(rows):
        for j in range(columns):
            for x in range(min(out.shape[2] - to, a.shape[2] - lo)):
                out[i, j, to + x] = a[i, j, lo + x]


@loop
def compose(A2: Array, d2: Array, Q2: Array, A1: Array, d1: Array, Q1: Array) -> tuple[Array, Array, Array]:
    rows, inner, n = A2.shape
    columns = A1.shape[1]
    A, d, Q = np.empty((rows, columns, n)), np.empty((min(rows, columns), n)), np.empty((rows, rows, n))
    work = np.empty((rows, inner, n))
    _matmul(A, A2, A1)
    _diagonal(A, d, A2, d2, A1, d1)
    _copy(Q, Q2)
    _sandwich(Q, A2, Q1, work)
    return A, d, Q


@loop
def _move(A: Array, d: Array, Q: Array, X: Array, N: Array, t: int) -> tuple[Array, Array]:
    k, columns, n = X.shape
    X_end, N_end = np.empty((k, columns, n)), np.empty((k, k, n))
    for lo in range(0, n, CHUNK):
        width = min(CHUNK, n - lo)
        a, dd, q = np.empty((k, k, width)), np.empty((k, width)), np.empty((k, k, width))
        x, cov = np.empty((k, columns, width)), np.empty((k, k, width))
        _copy(a, A, 0, lo)
        _copy(q, Q, 0, lo)
        _copy(x, X, 0, lo)
        _copy(cov, N, 0, lo)
        for i in range(k):
            for z in range(width):
                dd[i, z] = d[i, lo + z]
        a_next, d_next, q_next = np.empty((k, k, width)), np.empty((k, width)), np.empty((k, k, width))
        x_next, cov_next, work = np.empty((k, columns, width)), np.empty((k, k, width)), np.empty((k, k, width))
        left = t
        while left:
            if left & 1:
                _matmul(x_next, a, x)
                x, x_next = x_next, x
                _copy(cov_next, q)
                _sandwich(cov_next, a, cov, work)
                cov, cov_next = cov_next, cov
            left >>= 1
            if left:
                _matmul(a_next, a, a)
                _diagonal(a_next, d_next, a, dd, a, dd)
                _copy(q_next, q)
                _sandwich(q_next, a, q, work)
                a, a_next, dd, d_next, q, q_next = a_next, a, d_next, dd, q_next, q
        _copy(X_end, x, lo)
        _copy(N_end, cov, lo)
    return X_end, N_end


@loop
def _prepare(G: Array, b: Array, x: Array, r: Array) -> tuple[Array, Array, Array, Array, Array]:
    """The map of a step, its start and its read-out in the slots of `Basis(G)`: its system(G, b), column(x) and row(r)."""
    k, _, n = G.shape
    g, tilt = np.empty((k, k, n)), np.zeros(n)
    _copy(g, G)
    if k > 1 and tilts(g, tilt, n):
        shear(g, tilt, n)
    scale = balance(g)
    A, d, Q = np.empty((k, k, n)), np.empty((k, n)), np.empty((k, k, n))
    X, row, jolt = np.empty((k, n)), np.empty((k, n)), np.empty((k, n))
    for i in range(k):
        for z in range(n):
            u, v = z if x.shape[1] > 1 else 0, z if r.shape[1] > 1 else 0
            X[i, z] = (x[i, u] + (tilt[z] * x[0, u] if i == 1 else 0.0)) / scale[i, z]
            jolt[i, z] = (b[i, z] + (tilt[z] * b[0, z] if i == 1 else 0.0)) / scale[i, z]
            row[i, z] = (r[i, v] - (tilt[z] * r[1, v] if i == 0 and k > 1 else 0.0)) * scale[i, z]
    for i in range(k):
        for j in range(k):
            for z in range(n):
                A[i, j, z] = g[i, j, z] * scale[j, z] / scale[i, z]
                Q[i, j, z] = jolt[i, z] * jolt[j, z]
        for z in range(n):
            d[i, z] = g[i, i, z]
            A[i, i, z] += 1.0
    return A, d, Q, X, row


@loop
def _end(G: Array, b: Array, x: Array, r: Array, t: int) -> tuple[Array, Array]:
    k, _, n = G.shape
    A, d, Q, X, row = _prepare(G, b, x, r)
    X_end, N_end = _move(A, d, Q, X.reshape(k, 1, n), np.zeros((k, k, n)), t)
    return _seen(X_end, N_end, np.ones((1, n)), row)


@loop
def _climb(G: Array, b: Array, x: Array, r: Array, levels: int) -> tuple[Array, Array]:
    n = G.shape[2]
    signal, noise = np.empty((levels, n)), np.empty((levels, n))
    A, d, Q, X, row = _prepare(G, b, x, r)
    for level in range(levels):
        read = _seen(A, Q, X, row)
        for z in range(n):
            signal[level, z], noise[level, z] = read[0][z], read[1][z]
        A, d, Q = compose(A, d, Q, A, d, Q)
    return signal, noise


@loop
def _seen(A: Array, Q: Array, x: Array, r: Array) -> tuple[Array, Array]:
    """Second moments of ``r . A x``, and of ``r . noise`` for noise of covariance Q."""
    k, columns, n = A.shape
    signal, noise = np.zeros(n), np.zeros(n)
    for i in range(k):
        for j in range(columns):
            for z in range(n):
                signal[z] += r[i, z] * A[i, j, z] * x[j, z]
        for j in range(k):
            for z in range(n):
                noise[z] += r[i, z] * r[j, z] * Q[i, j, z]
    for z in range(n):
        signal[z] = signal[z] * signal[z]
    return signal, noise


@loop
def chain(A: Array, Q: Array, kick: Array, x: Array, N: Array) -> tuple[Array, Array]:
    pieces, k, _, n = A.shape
    X, cov, work = np.empty((pieces + 1, k, 1, n)), np.empty((pieces + 1, k, k, n)), np.empty((k, k, n))
    _copy(cov[0], N)
    for i in range(k):
        for z in range(n):
            X[0, i, 0, z] = x[i, z]
    for p in range(pieces):
        _matmul(X[p + 1], A[p], X[p])
        for i in range(k):
            for z in range(n):
                X[p + 1, i, 0, z] += kick[p, i, z]
        _copy(cov[p + 1], Q[p])
        _sandwich(cov[p + 1], A[p], cov[p], work)
    return X[:, :, 0], cov


@loop
def balance(G: Array) -> Array:
    k, _, n = G.shape
    scale, size, row, column, f = np.ones((k, n)), np.empty((k, k, n)), np.empty(n), np.empty(n), np.empty(n)
    for i in range(k):
        for j in range(k):
            for z in range(n):
                size[i, j, z] = abs(G[i, j, z])
    for _ in range(k - 1):
        for i in range(1, k):
            for z in range(n):
                row[z], column[z] = 0.0, 0.0
            for j in range(k):
                if j != i:
                    for z in range(n):
                        row[z] += size[i, j, z]
                        column[z] += size[j, i, z]
            balance_pair(f, row, column, n)
            for j in range(k):
                if j != i:
                    for z in range(n):
                        size[i, j, z] /= f[z]
                        size[j, i, z] *= f[z]
            for z in range(n):
                scale[i, z] *= f[z]
    return scale
