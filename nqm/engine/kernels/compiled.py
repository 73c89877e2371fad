"""The inner loops of the engine for numba, for any number of slots; two slots have loops of their own (`pairs`).

The loops walk the modes in chunks that stay in cache, modes innermost and indexed from zero so that every loop vectorises.
"""

from __future__ import annotations

import numpy as np

from ...types import Array
from .compiling import CHUNK, in_any_order, loop
from .coupled import scan_coupled as scan_coupled
from .pairs import balance_pair, climb_pairs, end_pairs, move_pairs, square_pairs
from .pairs import shear as shear
from .pairs import tilts as tilts

compiled = True

# Two slots are told apart here and not inside the loops, where both kinds would be compiled for either.


def square(A: Array, d: Array, Q: Array) -> tuple[Array, Array, Array]:
    return square_pairs(A, d, Q) if len(A) == 2 else compose(A, d, Q, A, d, Q)


def move(A: Array, d: Array, Q: Array, X: Array, N: Array, t: int) -> tuple[Array, Array]:
    return (move_pairs if X.shape[:2] == (2, 1) else _move)(A, d, Q, X, N, t)


def end(G: Array, b: Array, x: Array, r: Array, t: int) -> tuple[Array, Array]:
    return (end_pairs if len(G) == 2 else _end)(G, b, x, r, t)


def climb(G: Array, b: Array, x: Array, r: Array, levels: int) -> tuple[Array, Array]:
    return (climb_pairs if len(G) == 2 else _climb)(G, b, x, r, levels)


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
    """The diagonal of out = a2 a1 less one, without the cancellation; and out's diagonal from it where that is small."""
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
            near = abs(d[i, x]) < 0.5  # further off the plain product is the accurate one
            out[i, i, x] = 1.0 + d[i, x] if near else out[i, i, x]
            d[i, x] = d[i, x] if near else out[i, i, x] - 1.0


@loop
def _axpy(out: Array, a: float, x: Array, y: Array) -> None:
    for i in range(out.size):
        out[i] = y[i] + a * x[i]


@in_any_order
def _dot(a: Array, b: Array, c: Array) -> float:
    total = 0.0
    for x in range(a.size):
        total += a[x] * b[x] * c[x]
    return total


@loop
def _copy(out: Array, a: Array) -> None:
    """out = a. In loops as all else here: array expressions take numba seconds to compile, each."""
    rows, columns, width = a.shape
    for i in range(rows):
        for j in range(columns):
            for x in range(width):
                out[i, j, x] = a[i, j, x]


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
        _cut(a, A, lo)
        _cut(q, Q, lo)
        _cut(x, X, lo)
        _cut(cov, N, lo)
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
        _paste(X_end, x, lo)
        _paste(N_end, cov, lo)
    return X_end, N_end


@loop
def _cut(out: Array, a: Array, lo: int) -> None:
    """The modes of a from lo on, as many as out has."""
    rows, columns, width = out.shape
    for i in range(rows):
        for j in range(columns):
            for x in range(width):
                out[i, j, x] = a[i, j, lo + x]


@loop
def _paste(out: Array, a: Array, lo: int) -> None:
    """The modes of out from lo on, as many as a has."""
    rows, columns, width = a.shape
    for i in range(rows):
        for j in range(columns):
            for x in range(width):
                out[i, j, lo + x] = a[i, j, x]


@loop
def _prepare(G: Array, b: Array, x: Array, r: Array) -> tuple[Array, Array, Array, Array, Array]:
    """A step's map, its start and its read-out in prepared slots: `Basis(G)` with its system(G, b), column(x) and row(r)."""
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
    signal, noise = np.empty(n), np.empty(n)
    for lo in range(0, n, CHUNK):
        w = min(CHUNK, n - lo)
        g = np.empty((k, k, w))
        _cut(g, G, lo)
        A, d, Q, X, row = _prepare(g, _columns(b, lo, w), _columns(x, lo, w), _columns(r, lo, w))
        start, N, one = np.empty((k, 1, w)), np.zeros((k, k, w)), np.ones((1, w))
        for i in range(k):
            for z in range(w):
                start[i, 0, z] = X[i, z]
        last, N = _move(A, d, Q, start, N, t)
        read = _seen(last, N, one, row)
        for z in range(w):
            signal[lo + z], noise[lo + z] = read[0][z], read[1][z]
    return signal, noise


@loop
def _columns(a: Array, lo: int, width: int) -> Array:
    """The modes of a from lo on, or its one column if that is for all of them."""
    if a.shape[1] == 1:
        return a
    part = np.empty((a.shape[0], width))
    for i in range(a.shape[0]):
        for z in range(width):
            part[i, z] = a[i, lo + z]
    return part


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
    """Second moments of ``r . A x``, and of r over the noise Q."""
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
def chain(A: Array, Q: Array, x: Array, N: Array) -> tuple[Array, Array]:
    pieces, k, _, n = A.shape
    X, cov, work = np.empty((pieces + 1, k, 1, n)), np.empty((pieces + 1, k, k, n)), np.empty((k, k, n))
    _copy(cov[0], N)
    for i in range(k):
        for z in range(n):
            X[0, i, 0, z] = x[i, z]
    for p in range(pieces):
        _matmul(X[p + 1], A[p], X[p])
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


@loop
def scan(
    G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, X: Array, N: Array, row: Array, ws: Array, wn: Array
) -> tuple[Array, Array]:  # fmt: skip
    k, columns, n = X.shape
    signal, noise = np.zeros(len(pace)), np.zeros(len(pace))
    for lo in range(0, n, CHUNK):
        hi = min(lo + CHUNK, n)
        w = hi - lo
        g0, g1, c0, c1 = np.empty((k, k, w)), np.empty((k, k, w)), np.empty((k, w)), np.empty((k, w))
        x, cov, r = np.empty((k, columns, w)), np.empty((k, k, w)), np.empty((1, k, w))
        _cut(g0, G0, lo)
        _cut(g1, G1, lo)
        _cut(x, X, lo)
        _cut(cov, N, lo)
        for i in range(k):
            for z in range(w):
                c0[i, z], c1[i, z], r[0, i, z] = b0[i, lo + z], b1[i, lo + z], row[i, lo + z]
        G, b, one = np.empty((k, k, w)), np.empty((k, w)), np.ones(w)
        dx, dcov, work = np.empty((k, columns, w)), np.empty((k, k, w)), np.empty((k, k, w))
        y, read, read_work = np.empty((1, columns, w)), np.empty((1, 1, w)), np.empty((1, k, w))
        for t in range(len(pace)):
            _axpy(G.ravel(), pace[t], g1.ravel(), g0.ravel())
            _axpy(b.ravel(), pace[t], c1.ravel(), c0.ravel())
            _matmul(dx, G, x)
            _axpy(x.ravel(), 1.0, dx.ravel(), x.ravel())
            # N <- N + G N + N G' + G N G' + q b b'
            for i in range(k):
                for j in range(k):
                    for z in range(w):
                        dcov[i, j, z] = loud[t] * b[i, z] * b[j, z]
            _sandwich(dcov, G, cov, work)
            for i in range(k):
                for j in range(k):
                    for z in range(w):
                        dcov[i, j, z] += work[i, j, z] + work[j, i, z]
            _axpy(cov.ravel(), 1.0, dcov.ravel(), cov.ravel())
            _matmul(y, r, x)
            for j in range(columns):
                signal[t] += _dot(ws[j, lo:hi], y[0, j], y[0, j])
            for z in range(w):
                read[0, 0, z] = 0.0
            _sandwich(read, r, cov, read_work)
            noise[t] += _dot(wn[lo:hi], read[0, 0], one)
        _paste(X, x, lo)
        _paste(N, cov, lo)
    return signal, noise
