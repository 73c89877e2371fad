"""The two inner loops of the engine, for numba and for plain NumPy: same arguments, same answers.

`compose` is the product of two moment maps; `scan` steps a state through time and records signal and noise. The
compiled versions walk the modes in chunks that stay in cache, modes innermost so that every loop vectorises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

CHUNK = 512


@dataclass(frozen=True)
class Kernels:
    """The inner loops in use."""

    compose: Callable[..., tuple[Any, Any, Any]]
    scan: Callable[..., tuple[Any, Any]]
    compiled: bool


@cache
def kernels() -> Kernels:
    """Compiled where numba is installed; loaded at first use, so that ``import nqm`` stays light."""
    try:
        import numba
    except ImportError:
        return Kernels(compose_numpy, scan_numpy, compiled=False)

    global _mul, _fma, _axpy, _dot  # the loops below call these by their global names, compiled or not
    jit = numba.njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy", nogil=True)
    _mul, _fma, _axpy = jit(_mul), jit(_fma), jit(_axpy)
    _dot = numba.njit(cache=True, fastmath=True, nogil=True)(_dot)
    return Kernels(jit(_compose), jit(_scan), compiled=True)


def compose_numpy(A2: Any, d2: Any, Q2: Any, A1: Any, d1: Any, Q1: Any) -> tuple[Any, Any, Any]:
    """(A2 A1, its diagonal minus one, A2 Q1 A2' + Q2)."""
    A = np.einsum("ilx,ljx->ijx", A2, A1)
    Q = np.einsum("ilx,jlx->ijx", np.einsum("ilx,lmx->imx", A2, Q1), A2) + Q2
    i = np.arange(min(A.shape[0], A.shape[1]))
    if len(i) > A1.shape[0]:
        return A, A[i, i] - 1.0, Q
    off = np.einsum("ilx,lix->ix", A2[i], A1[:, i]) - A2[i, i] * A1[i, i]
    d = d2[i] + d1[i] + d2[i] * d1[i] + off
    A[i, i] = np.where(np.abs(d) < 0.5, 1.0 + d, A[i, i])
    return A, np.where(np.abs(d) < 0.5, d, A[i, i] - 1.0), Q


def scan_numpy(
    G0: Any, G1: Any, b0: Any, b1: Any, pace: Any, loud: Any, X: Any, N: Any, row: Any, ws: Any, wn: Any
) -> tuple[Any, Any]:
    """Step the state (X, N) in place through ``G = G0 + pace G1``; signal and noise after each step.

    ``loud`` multiplies each step's noise variance. X is (k, columns, modes); ws weights its columns (columns, modes).
    """
    signal, noise = np.empty(len(pace)), np.empty(len(pace))
    for t, (p, q) in enumerate(zip(pace, loud, strict=True)):
        G, b = G0 + p * G1, b0 + p * b1
        X += np.einsum("ilx,ljx->ijx", G, X)
        GN = np.einsum("ilx,lmx->imx", G, N)
        N += GN + GN.transpose(1, 0, 2) + np.einsum("ilx,jlx->ijx", GN, G) + q * b[:, None] * b[None]
        signal[t] = (ws * np.einsum("ix,ijx->jx", row, X) ** 2).sum()
        noise[t] = (wn * np.einsum("ix,ijx,jx->x", row, N, row)).sum()
    return signal, noise


def _mul(out: Any, a: Any, b: Any) -> None:
    for x in range(out.size):
        out[x] = a[x] * b[x]


def _fma(out: Any, a: Any, b: Any) -> None:
    for x in range(out.size):
        out[x] += a[x] * b[x]


def _axpy(out: Any, a: float, x: Any, y: Any) -> None:
    for i in range(out.size):
        out[i] = y[i] + a * x[i]


def _dot(a: Any, b: Any, c: Any) -> float:
    total = 0.0
    for x in range(a.size):
        total += a[x] * b[x] * c[x]
    return total


def _compose(A2: Any, d2: Any, Q2: Any, A1: Any, d1: Any, Q1: Any) -> tuple[Any, Any, Any]:
    rows, inner, n = A2.shape
    columns = A1.shape[1]
    m = min(rows, columns)
    A, d, Q = np.empty((rows, columns, n)), np.empty((m, n)), np.empty((rows, rows, n))
    W = np.empty((inner, min(n, CHUNK)))
    for lo in range(0, n, CHUNK):
        hi = min(lo + CHUNK, n)
        for i in range(rows):
            for j in range(columns):
                _mul(A[i, j, lo:hi], A2[i, 0, lo:hi], A1[0, j, lo:hi])
                for k in range(1, inner):
                    _fma(A[i, j, lo:hi], A2[i, k, lo:hi], A1[k, j, lo:hi])
        for i in range(m):
            out, Aii = d[i, lo:hi], A[i, i, lo:hi]
            if m > inner:
                for x in range(out.size):
                    out[x] = Aii[x] - 1.0
                continue
            a, b = d2[i, lo:hi], d1[i, lo:hi]
            for x in range(out.size):
                out[x] = a[x] + b[x] + a[x] * b[x]
            for k in range(inner):
                if k != i:
                    _fma(out, A2[i, k, lo:hi], A1[k, i, lo:hi])
            for x in range(out.size):  # far from one the drift follows A: on its own its error would double at each square
                if abs(out[x]) < 0.5:
                    Aii[x] = 1.0 + out[x]
                else:
                    out[x] = Aii[x] - 1.0
        for i in range(rows):
            for k in range(inner):
                w = W[k, : hi - lo]
                _mul(w, A2[i, 0, lo:hi], Q1[0, k, lo:hi])
                for r in range(1, inner):
                    _fma(w, A2[i, r, lo:hi], Q1[r, k, lo:hi])
            for j in range(i, rows):  # Q is symmetric
                Q[i, j, lo:hi] = Q2[i, j, lo:hi]
                for k in range(inner):
                    _fma(Q[i, j, lo:hi], W[k, : hi - lo], A2[j, k, lo:hi])
                if j > i:
                    Q[j, i, lo:hi] = Q[i, j, lo:hi]
    return A, d, Q


def _scan(
    G0: Any, G1: Any, b0: Any, b1: Any, pace: Any, loud: Any, X: Any, N: Any, row: Any, ws: Any, wn: Any
) -> tuple[Any, Any]:
    k, columns, n = X.shape
    steps = len(pace)
    signal, noise = np.zeros(steps), np.zeros(steps)
    width = min(n, CHUNK // 2)  # a chunk's whole state stays in cache through all the steps
    G, b, qb = np.empty((k, k, width)), np.empty((k, width)), np.empty(width)
    x, GN, y = np.empty((k, columns, width)), np.empty((k, k, width)), np.empty(width)
    one = np.ones(width)
    for lo in range(0, n, width):
        hi = min(lo + width, n)
        w = hi - lo
        for t in range(steps):
            for i in range(k):
                _axpy(b[i, :w], pace[t], b1[i, lo:hi], b0[i, lo:hi])
                for j in range(k):
                    _axpy(G[i, j, :w], pace[t], G1[i, j, lo:hi], G0[i, j, lo:hi])
            for i in range(k):
                for j in range(columns):
                    _mul(x[i, j, :w], G[i, 0, :w], X[0, j, lo:hi])
                    for m in range(1, k):
                        _fma(x[i, j, :w], G[i, m, :w], X[m, j, lo:hi])
                for j in range(k):
                    _mul(GN[i, j, :w], G[i, 0, :w], N[0, j, lo:hi])
                    for m in range(1, k):
                        _fma(GN[i, j, :w], G[i, m, :w], N[m, j, lo:hi])
            for i in range(k):
                for j in range(columns):
                    _axpy(X[i, j, lo:hi], 1.0, x[i, j, :w], X[i, j, lo:hi])
                _mul(qb[:w], one[:w] * loud[t], b[i, :w])
                for j in range(i, k):
                    out = N[i, j, lo:hi]
                    _axpy(out, 1.0, GN[i, j, :w], out)
                    _axpy(out, 1.0, GN[j, i, :w], out)
                    _fma(out, qb[:w], b[j, :w])
                    for m in range(k):
                        _fma(out, GN[i, m, :w], G[j, m, :w])
                    if j > i:
                        N[j, i, lo:hi] = out
            for j in range(columns):
                _mul(y[:w], row[0, lo:hi], X[0, j, lo:hi])
                for i in range(1, k):
                    _fma(y[:w], row[i, lo:hi], X[i, j, lo:hi])
                signal[t] += _dot(ws[j, lo:hi], y[:w], y[:w])
            for i in range(k):
                _mul(y[:w], row[0, lo:hi], N[0, i, lo:hi])
                for j in range(1, k):
                    _fma(y[:w], row[j, lo:hi], N[j, i, lo:hi])
                _mul(y[:w], y[:w], row[i, lo:hi])
                noise[t] += _dot(wn[lo:hi], y[:w], one[:w])
    return signal, noise
