"""The inner loops of the engine, for numba, or in plain NumPy (`_plain_kernels`): same arguments, same answers.

`compose` is the product of two moment maps, `square` a map's with itself; `move` takes a state through t like steps by
repeated squaring, `end` reads the moments after them and `seen` those after a power; `chain` takes a state through a row of
maps; `scan` steps it through time one by one and records signal and noise; `balance` finds slot scales. The compiled
versions walk the modes in chunks that stay in cache, modes innermost and indexed from zero so that every loop vectorises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ._plain_kernels import (
    balance_numpy,
    chain_numpy,
    compose_numpy,
    end_numpy,
    move_numpy,
    scan_numpy,
    seen_numpy,
)

CHUNK = 256
LOOPS = (
    "_copy", "_cut", "_paste", "_matmul", "_sandwich", "_diagonal", "_axpy", "_compose", "_square", "_move", "_seen", "_end",
    "_chain", "_balance", "_scan", "_pair", "_square_pair", "_move_pair", "_walk_pair", "_move_pairs", "_balance_pair",
    "_start_pair", "_end_pairs",
)  # fmt: skip


@dataclass(frozen=True)
class Kernels:
    """The inner loops in use."""

    compose: Callable[..., tuple[Any, Any, Any]]
    square: Callable[..., tuple[Any, Any, Any]]
    move: Callable[..., tuple[Any, Any]]
    seen: Callable[..., tuple[Any, Any]]
    end: Callable[..., tuple[Any, Any]]
    chain: Callable[..., tuple[Any, Any]]
    balance: Callable[[Any], Any]
    scan: Callable[..., tuple[Any, Any]]
    compiled: bool


@cache
def kernels() -> Kernels:
    """Compiled where numba is installed; loaded at first use, so that ``import nqm`` stays light."""
    try:
        import numba
    except ImportError:
        return plain_kernels()

    jit = numba.njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy", nogil=True)
    here = globals()
    for name in LOOPS:  # they call each other by their global names, compiled or not
        here[name] = jit(here[name])
    here["_dot"] = numba.njit(cache=True, fastmath=True, nogil=True)(_dot)  # sums in any order
    return Kernels(_compose, _square, _move, _seen, _end, _chain, _balance, _scan, compiled=True)


def plain_kernels() -> Kernels:
    """The same in NumPy."""
    return Kernels(
        compose_numpy, lambda A, d, Q: compose_numpy(A, d, Q, A, d, Q), move_numpy, seen_numpy, end_numpy, chain_numpy,
        balance_numpy, scan_numpy, compiled=False,
    )  # fmt: skip


def _matmul(out: Any, a: Any, b: Any) -> None:
    """out = a b."""
    rows, inner, width = a.shape
    for i in range(rows):
        for j in range(b.shape[1]):
            for x in range(width):
                out[i, j, x] = a[i, 0, x] * b[0, j, x]
            for k in range(1, inner):
                for x in range(width):
                    out[i, j, x] += a[i, k, x] * b[k, j, x]


def _sandwich(out: Any, a: Any, m: Any, work: Any) -> None:
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


def _diagonal(out: Any, d: Any, a2: Any, d2: Any, a1: Any, d1: Any) -> None:
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


def _axpy(out: Any, a: float, x: Any, y: Any) -> None:
    for i in range(out.size):
        out[i] = y[i] + a * x[i]


def _dot(a: Any, b: Any, c: Any) -> float:
    total = 0.0
    for x in range(a.size):
        total += a[x] * b[x] * c[x]
    return total


def _copy(out: Any, a: Any) -> None:
    """out = a. In loops as all else here: array expressions take numba seconds to compile, each."""
    rows, columns, width = a.shape
    for i in range(rows):
        for j in range(columns):
            for x in range(width):
                out[i, j, x] = a[i, j, x]


def _compose(A2: Any, d2: Any, Q2: Any, A1: Any, d1: Any, Q1: Any) -> tuple[Any, Any, Any]:
    rows, inner, n = A2.shape
    columns = A1.shape[1]
    A, d, Q = np.empty((rows, columns, n)), np.empty((min(rows, columns), n)), np.empty((rows, rows, n))
    work = np.empty((rows, inner, n))
    _matmul(A, A2, A1)
    _diagonal(A, d, A2, d2, A1, d1)
    _copy(Q, Q2)
    _sandwich(Q, A2, Q1, work)
    return A, d, Q


def _square_pair(a: Any, d: Any, q: Any, width: int) -> None:
    """A map of two slots composed with itself, in place; a as (a00, a01, a10, a11), q as (q00, q01, q11).

    The same as `_matmul`, `_diagonal` and `_sandwich`, with every entry of a mode in a register: four times faster.
    """
    A00, A01, A10, A11, D0, D1, Q00, Q01, Q11 = a[0], a[1], a[2], a[3], d[0], d[1], q[0], q[1], q[2]
    for x in range(width):
        a00, a01, a10, a11, d0, d1 = A00[x], A01[x], A10[x], A11[x], D0[x], D1[x]
        loop, trace = a01 * a10, a00 + a11
        e0, e1 = d0 + d0 + d0 * d0 + loop, d1 + d1 + d1 * d1 + loop
        near0, near1 = abs(e0) < 0.5, abs(e1) < 0.5
        b00 = 1.0 + e0 if near0 else a00 * a00 + loop
        b11 = 1.0 + e1 if near1 else a11 * a11 + loop
        A00[x], A01[x], A10[x], A11[x] = b00, a01 * trace, a10 * trace, b11
        D0[x], D1[x] = e0 if near0 else b00 - 1.0, e1 if near1 else b11 - 1.0
        u, v, w = Q00[x], Q01[x], Q11[x]
        p0, p1, r0, r1 = a00 * u + a01 * v, a00 * v + a01 * w, a10 * u + a11 * v, a10 * v + a11 * w
        Q00[x] = u + (p0 * a00 + p1 * a01)
        Q01[x] = v + (p0 * a10 + p1 * a11)
        Q11[x] = w + (r0 * a10 + r1 * a11)


def _move_pair(a: Any, q: Any, x: Any, n: Any, width: int) -> None:
    """A state of one column, x as (x0, x1) and n as (n00, n01, n11), through a map of two slots, in place."""
    A00, A01, A10, A11, Q00, Q01, Q11 = a[0], a[1], a[2], a[3], q[0], q[1], q[2]
    X0, X1, N00, N01, N11 = x[0], x[1], n[0], n[1], n[2]
    for z in range(width):
        a00, a01, a10, a11 = A00[z], A01[z], A10[z], A11[z]
        u, v = X0[z], X1[z]
        X0[z], X1[z] = a00 * u + a01 * v, a10 * u + a11 * v
        u, v, w = N00[z], N01[z], N11[z]
        p0, p1, r0, r1 = a00 * u + a01 * v, a00 * v + a01 * w, a10 * u + a11 * v, a10 * v + a11 * w
        N00[z] = Q00[z] + (p0 * a00 + p1 * a01)
        N01[z] = Q01[z] + (p0 * a10 + p1 * a11)
        N11[z] = Q11[z] + (r0 * a10 + r1 * a11)


def _pair(a: Any, q: Any, A: Any, Q: Any, lo: int, width: int) -> None:
    """A map of two slots by its different entries, of the modes from lo on."""
    for x in range(width):
        i = lo + x
        a[0, x], a[1, x], a[2, x], a[3, x] = A[0, 0, i], A[0, 1, i], A[1, 0, i], A[1, 1, i]
        q[0, x], q[1, x], q[2, x] = Q[0, 0, i], Q[0, 1, i], Q[1, 1, i]


def _square(A: Any, d: Any, Q: Any) -> tuple[Any, Any, Any]:
    if len(A) != 2:
        return _compose(A, d, Q, A, d, Q)
    n = A.shape[2]
    a, drift, q = np.empty((4, n)), np.empty((2, n)), np.empty((3, n))
    _pair(a, q, A, Q, 0, n)
    for x in range(n):
        drift[0, x], drift[1, x] = d[0, x], d[1, x]
    _square_pair(a, drift, q, n)
    A_out, Q_out = np.empty((2, 2, n)), np.empty((2, 2, n))
    for x in range(n):
        A_out[0, 0, x], A_out[0, 1, x], A_out[1, 0, x], A_out[1, 1, x] = a[0, x], a[1, x], a[2, x], a[3, x]
        Q_out[0, 0, x], Q_out[0, 1, x], Q_out[1, 0, x], Q_out[1, 1, x] = q[0, x], q[1, x], q[1, x], q[2, x]
    return A_out, drift, Q_out


def _walk_pair(a: Any, d: Any, q: Any, x: Any, n: Any, width: int, t: int) -> None:
    """A state of one column through t like steps of two slots, in place.

    Whole chunks and how much of them to use, not slices: of a slice numba does not know that its modes are neighbours.
    """
    left = t
    while left:
        if left & 1:
            _move_pair(a, q, x, n, width)
        left >>= 1
        if left:
            _square_pair(a, d, q, width)


def _move_pairs(A: Any, d: Any, Q: Any, X: Any, N: Any, t: int) -> tuple[Any, Any]:
    n = A.shape[2]
    X_end, N_end = np.empty((2, 1, n)), np.empty((2, 2, n))
    a, drift, q = np.empty((4, CHUNK)), np.empty((2, CHUNK)), np.empty((3, CHUNK))
    x, cov = np.empty((2, CHUNK)), np.empty((3, CHUNK))
    for lo in range(0, n, CHUNK):
        w = min(CHUNK, n - lo)
        _pair(a, q, A, Q, lo, w)
        for z in range(w):
            i = lo + z
            drift[0, z], drift[1, z], x[0, z], x[1, z] = d[0, i], d[1, i], X[0, 0, i], X[1, 0, i]
            cov[0, z], cov[1, z], cov[2, z] = N[0, 0, i], N[0, 1, i], N[1, 1, i]
        _walk_pair(a, drift, q, x, cov, w, t)
        for z in range(w):
            i = lo + z
            X_end[0, 0, i], X_end[1, 0, i] = x[0, z], x[1, z]
            N_end[0, 0, i], N_end[0, 1, i], N_end[1, 0, i], N_end[1, 1, i] = cov[0, z], cov[1, z], cov[1, z], cov[2, z]
    return X_end, N_end


def _move(A: Any, d: Any, Q: Any, X: Any, N: Any, t: int) -> tuple[Any, Any]:
    k, columns, n = X.shape
    if k == 2 and columns == 1:
        return _move_pairs(A, d, Q, X, N, t)
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


def _cut(out: Any, a: Any, lo: int) -> None:
    """The modes of a from lo on, as many as out has."""
    rows, columns, width = out.shape
    for i in range(rows):
        for j in range(columns):
            for x in range(width):
                out[i, j, x] = a[i, j, lo + x]


def _paste(out: Any, a: Any, lo: int) -> None:
    """The modes of out from lo on, as many as a has."""
    rows, columns, width = a.shape
    for i in range(rows):
        for j in range(columns):
            for x in range(width):
                out[i, j, lo + x] = a[i, j, x]


def _end(G: Any, b: Any, x: Any, r: Any, t: int) -> tuple[Any, Any]:
    k, _, n = G.shape
    if k == 2:
        return _end_pairs(G, b, x, r, t)
    scale = _balance(G)
    A, d, Q = np.empty((k, k, n)), np.empty((k, n)), np.empty((k, k, n))
    X, row = np.empty((k, 1, n)), np.empty((k, n))
    for i in range(k):
        for j in range(k):
            for z in range(n):
                A[i, j, z] = G[i, j, z] * scale[j, z] / scale[i, z]
                Q[i, j, z] = b[i, z] / scale[i, z] * (b[j, z] / scale[j, z])
        for z in range(n):
            d[i, z], X[i, 0, z], row[i, z] = G[i, i, z], x[i, z] / scale[i, z], r[i, z] * scale[i, z]
            A[i, i, z] += 1.0
    X, N = _move(A, d, Q, X, np.zeros((k, k, n)), t)
    return _seen(X, N, np.ones((1, n)), row)


def _end_pairs(G: Any, b: Any, x: Any, r: Any, t: int) -> tuple[Any, Any]:
    """`_end` for two slots, each chunk of modes from start to finish while it is in cache."""
    n = G.shape[2]
    signal, noise = np.empty(n), np.empty(n)
    a, d, q = np.empty((4, CHUNK)), np.empty((2, CHUNK)), np.empty((3, CHUNK))
    state, cov, scale = np.empty((2, CHUNK)), np.empty((3, CHUNK)), np.empty(CHUNK)
    for lo in range(0, n, CHUNK):
        w = min(CHUNK, n - lo)
        _balance_pair(scale[:w], G[1, 0, lo : lo + w], G[0, 1, lo : lo + w])
        _start_pair(a, d, q, G, b, scale, lo, w)
        for z in range(w):
            state[0, z], state[1, z] = x[0, lo + z], x[1, lo + z] / scale[z]
            cov[0, z], cov[1, z], cov[2, z] = 0.0, 0.0, 0.0
        _walk_pair(a, d, q, state, cov, w, t)
        for z in range(w):
            r0, r1 = r[0, lo + z], r[1, lo + z] * scale[z]
            seen = r0 * state[0, z] + r1 * state[1, z]
            signal[lo + z] = seen * seen
            noise[lo + z] = r0 * r0 * cov[0, z] + 2 * (r0 * r1 * cov[1, z]) + r1 * r1 * cov[2, z]
    return signal, noise


def _seen(A: Any, Q: Any, x: Any, r: Any) -> tuple[Any, Any]:
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


def _chain(A: Any, Q: Any, x: Any, N: Any) -> tuple[Any, Any]:
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


def _balance(G: Any) -> Any:
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
            _balance_pair(f, row, column)
            for j in range(k):
                if j != i:
                    for z in range(n):
                        size[i, j, z] /= f[z]
                        size[j, i, z] *= f[z]
            for z in range(n):
                scale[i, z] *= f[z]
    return scale


def _balance_pair(scale: Any, row: Any, column: Any) -> None:
    """A slot's scale from the size of its row and of its column: the power of two next to the root of their ratio."""
    up, down, bits = row.view(np.int64), column.view(np.int64), scale.view(np.int64)
    for z in range(scale.size):
        half = (((up[z] >> 52) & 2047) - ((down[z] >> 52) & 2047)) >> 1
        bits[z] = (half + 1023 if row[z] != 0 and column[z] != 0 else 1023) << 52


def _start_pair(a: Any, d: Any, q: Any, G: Any, b: Any, scale: Any, lo: int, width: int) -> None:
    """A step's map of two slots by its different entries, of the modes from lo on, slots scaled."""
    for z in range(width):
        i, g, up = lo + z, scale[z], 1 / scale[z]
        d[0, z], d[1, z] = G[0, 0, i], G[1, 1, i]
        a[0, z], a[1, z], a[2, z], a[3, z] = 1.0 + G[0, 0, i], G[0, 1, i] * g, G[1, 0, i] * up, 1.0 + G[1, 1, i]
        u, v = b[0, i], b[1, i] * up
        q[0, z], q[1, z], q[2, z] = u * u, u * v, v * v


def _scan(
    G0: Any, G1: Any, b0: Any, b1: Any, pace: Any, loud: Any, X: Any, N: Any, row: Any, ws: Any, wn: Any
) -> tuple[Any, Any]:
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
        y, seen, seen_work = np.empty((1, columns, w)), np.empty((1, 1, w)), np.empty((1, k, w))
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
                seen[0, 0, z] = 0.0
            _sandwich(seen, r, cov, seen_work)
            noise[t] += _dot(wn[lo:hi], seen[0, 0], one)
        _paste(X, x, lo)
        _paste(N, cov, lo)
    return signal, noise
