"""The inner loops of the engine, for numba and for plain NumPy: same arguments, same answers.

`compose` is the product of two moment maps; `move` takes a state through t like steps by repeated squaring; `scan` steps
it through time one by one and records signal and noise; `scan_coupled` does that where modes meet in one sum, the noise
of least squares. The compiled versions walk the modes in chunks that stay in
cache, modes innermost and indexed from zero so that every loop vectorises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

CHUNK = 256


@dataclass(frozen=True)
class Kernels:
    """The inner loops in use."""

    compose: Callable[..., tuple[Any, Any, Any]]
    move: Callable[..., tuple[Any, Any]]
    scan: Callable[..., tuple[Any, Any]]
    scan_coupled: Callable[..., tuple[Any, Any]]
    compiled: bool


@cache
def kernels() -> Kernels:
    """Compiled where numba is installed; loaded at first use, so that ``import nqm`` stays light."""
    try:
        import numba
    except ImportError:
        return Kernels(compose_numpy, move_numpy, scan_numpy, scan_coupled_numpy, compiled=False)

    # The loops call these by their global names, compiled or not.
    global _matmul, _sandwich, _diagonal, _axpy, _dot, _seen, _pad, _unpad, _coupled_step
    jit = numba.njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy", nogil=True)
    _matmul, _sandwich, _diagonal, _axpy = jit(_matmul), jit(_sandwich), jit(_diagonal), jit(_axpy)
    _dot = numba.njit(cache=True, fastmath=True, nogil=True)(_dot)  # sums in any order
    _seen, _pad, _unpad = jit(_seen), jit(_pad), jit(_unpad)
    _coupled_step = jit(_coupled_step)
    return Kernels(jit(_compose), jit(_move), jit(_scan), jit(_scan_coupled), compiled=True)


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


def move_numpy(A: Any, d: Any, Q: Any, X: Any, N: Any, t: int) -> tuple[Any, Any]:
    """The state (X, N) after t steps of the map (A, Q)."""
    zero = np.zeros((min(X.shape[:2]), X.shape[2]))  # a state's own diagonal is not needed
    while t:
        if t & 1:
            X, N = np.einsum("ilx,ljx->ijx", A, X), compose_numpy(A, d, Q, X, zero, N)[2]
        t >>= 1
        if t:
            A, d, Q = compose_numpy(A, d, Q, A, d, Q)
    return X, N


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


def scan_coupled_numpy(
    G0: Any, G1: Any, b0: Any, b1: Any, pace: Any, loud: Any, X: Any, N: Any,
    look: Any, row: Any, h: Any, c: Any, s: Any, mass: Any, label_noise: float, per_example: float, nodes: int,
) -> tuple[Any, Any]:  # fmt: skip
    """`scan` with the noise of least squares: of variance ``c (h m + tau + label_noise)`` per example on each mode,
    where c = h, up to the weights of a quadrature rule.

    m is the second moment of ``look . x``, the point of the gradient, and tau its sum with weights ``mass = n h`` over
    the ``nodes`` modes of a setting. X is (k, modes), the start in units of theta_0; N the moments that noise has added,
    times the batch size 1 / ``per_example``. Signal and noise are (setting, step).
    """
    steps, settings = len(pace), X.shape[1] // nodes
    signal, noise = np.empty((settings, steps)), np.empty((settings, steps))
    for t, (p, q) in enumerate(zip(pace, loud, strict=True)):
        G, b = G0 + p * G1, b0 + p * b1
        m = s * (look * X).sum(0) ** 2 + per_example * np.einsum("ix,ijx,jx->x", look, N, look)
        tau = np.repeat((mass * m).reshape(settings, nodes).sum(1), nodes)
        X += np.einsum("ijx,jx->ix", G, X)
        GN = np.einsum("ilx,lmx->imx", G, N)
        jolt = q * c * (h * m + tau + label_noise) * b
        N += GN + GN.transpose(1, 0, 2) + np.einsum("ilx,jlx->ijx", GN, G) + jolt[:, None] * b[None]
        signal[:, t] = (mass * s * (row * X).sum(0) ** 2).reshape(settings, nodes).sum(1) / 2
        noise[:, t] = (mass * np.einsum("ix,ijx,jx->x", row, N, row)).reshape(settings, nodes).sum(1) / 2
    return signal, noise


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


def _compose(A2: Any, d2: Any, Q2: Any, A1: Any, d1: Any, Q1: Any) -> tuple[Any, Any, Any]:
    rows, inner, n = A2.shape
    columns = A1.shape[1]
    A, d, Q = np.empty((rows, columns, n)), np.empty((min(rows, columns), n)), Q2.copy()
    work = np.empty((rows, inner, n))
    _matmul(A, A2, A1)
    _diagonal(A, d, A2, d2, A1, d1)
    _sandwich(Q, A2, Q1, work)
    return A, d, Q


def _move(A: Any, d: Any, Q: Any, X: Any, N: Any, t: int) -> tuple[Any, Any]:
    k, columns, n = X.shape
    X_end, N_end = np.empty((k, columns, n)), np.empty((k, k, n))
    for lo in range(0, n, CHUNK):
        hi = min(lo + CHUNK, n)
        width = hi - lo
        a, dd, q = A[:, :, lo:hi].copy(), d[:, lo:hi].copy(), Q[:, :, lo:hi].copy()
        x, cov = X[:, :, lo:hi].copy(), N[:, :, lo:hi].copy()
        a_next, d_next, q_next = np.empty((k, k, width)), np.empty((k, width)), np.empty((k, k, width))
        x_next, cov_next, work = np.empty((k, columns, width)), np.empty((k, k, width)), np.empty((k, k, width))
        left = t
        while left:
            if left & 1:
                _matmul(x_next, a, x)
                x, x_next = x_next, x
                cov_next[:] = q
                _sandwich(cov_next, a, cov, work)
                cov, cov_next = cov_next, cov
            left >>= 1
            if left:
                _matmul(a_next, a, a)
                _diagonal(a_next, d_next, a, dd, a, dd)
                q_next[:] = q
                _sandwich(q_next, a, q, work)
                a, a_next, dd, d_next, q, q_next = a_next, a, d_next, dd, q_next, q
        X_end[:, :, lo:hi], N_end[:, :, lo:hi] = x, cov
    return X_end, N_end


def _scan(
    G0: Any, G1: Any, b0: Any, b1: Any, pace: Any, loud: Any, X: Any, N: Any, row: Any, ws: Any, wn: Any
) -> tuple[Any, Any]:
    k, columns, n = X.shape
    signal, noise = np.zeros(len(pace)), np.zeros(len(pace))
    for lo in range(0, n, CHUNK):
        hi = min(lo + CHUNK, n)
        w = hi - lo
        g0, g1, c0, c1 = G0[:, :, lo:hi].copy(), G1[:, :, lo:hi].copy(), b0[:, lo:hi].copy(), b1[:, lo:hi].copy()
        x, cov, r = X[:, :, lo:hi].copy(), N[:, :, lo:hi].copy(), np.empty((1, k, w))
        r[0] = row[:, lo:hi]
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
            seen[:] = 0.0
            _sandwich(seen, r, cov, seen_work)
            noise[t] += _dot(wn[lo:hi], seen[0, 0], one)
        X[:, :, lo:hi], N[:, :, lo:hi] = x, cov
    return signal, noise


def _pad(a: Any, lo: int, hi: int, width: int) -> Any:
    """The modes lo .. hi of an array (rows, modes) as (chunk, row, ``width``), zeros after the last."""
    rows, chunks = a.shape[0], -((lo - hi) // width)
    out = np.zeros((chunks, rows, width))
    for c in range(chunks):
        first = lo + c * width
        for i in range(rows):
            for x in range(min(width, hi - first)):
                out[c, i, x] = a[i, first + x]
    return out


def _unpad(out: Any, a: Any, lo: int, hi: int) -> None:
    width = a.shape[2]
    for c in range(a.shape[0]):
        first = lo + c * width
        for i in range(a.shape[1]):
            for x in range(min(width, hi - first)):
                out[i, first + x] = a[c, i, x]


def _seen(y: Any, v: Any, r: Any, live: Any, x: Any, cov: Any) -> None:
    """y = r . x and v = r' cov r, over the slots that are ``live``: most have weight zero on every mode."""
    k, w = r.shape
    y[:] = 0.0
    v[:] = 0.0
    for i in range(k):
        if not live[i]:
            continue
        for z in range(w):
            y[z] += r[i, z] * x[i, z]
            v[z] += r[i, z] * r[i, z] * cov[i * k + i, z]
        for j in range(i + 1, k):
            if live[j]:
                for z in range(w):
                    v[z] += 2.0 * r[i, z] * r[j, z] * cov[i * k + j, z]


def _coupled_step(G: Any, b: Any, var: Any, x: Any, cov: Any, dx: Any, work: Any, dcov: Any) -> None:
    """x <- x + G x,  cov <- cov + G cov + cov G' + G cov G' + var b b', in place; matrices have flat rows."""
    k, w = b.shape
    for i in range(k):
        for z in range(w):
            dx[i, z] = G[i * k, z] * x[0, z]
        for l in range(1, k):
            for z in range(w):
                dx[i, z] += G[i * k + l, z] * x[l, z]
        for j in range(k):
            for z in range(w):
                work[i * k + j, z] = G[i * k, z] * cov[j, z]
            for l in range(1, k):
                for z in range(w):
                    work[i * k + j, z] += G[i * k + l, z] * cov[l * k + j, z]
    for i in range(k):
        for z in range(w):
            x[i, z] += dx[i, z]
        for j in range(i, k):
            for z in range(w):
                dcov[z] = var[z] * b[i, z] * b[j, z] + work[i * k + j, z] + work[j * k + i, z]
            for l in range(k):
                for z in range(w):
                    dcov[z] += work[i * k + l, z] * G[j * k + l, z]
            for z in range(w):
                cov[i * k + j, z] += dcov[z]
            if j > i:
                for z in range(w):
                    cov[j * k + i, z] = cov[i * k + j, z]


def _scan_coupled(
    G0: Any, G1: Any, b0: Any, b1: Any, pace: Any, loud: Any, X: Any, N: Any,
    look: Any, row: Any, h: Any, c: Any, s: Any, mass: Any, label_noise: float, per_example: float, nodes: int,
) -> tuple[Any, Any]:  # fmt: skip
    k, n = X.shape
    settings, steps, w = n // nodes, len(pace), min(CHUNK, nodes)
    signal, noise = np.zeros((settings, steps)), np.zeros((settings, steps))
    moving = G1.any() or b1.any()
    G, b, var, dcov = np.empty((k * k, w)), np.empty((k, w)), np.empty(w), np.empty(w)
    dx, work, y, v, one = np.empty((k, w)), np.empty((k * k, w)), np.empty(w), np.empty(w), np.ones(w)
    flat0, flat1, flatN = G0.reshape(k * k, n), G1.reshape(k * k, n), N.reshape(k * k, n)
    about = np.empty((4, n))
    about[0], about[1], about[2], about[3] = h, s, mass, c
    live = np.empty((2, k), dtype=np.bool_)
    for i in range(k):
        live[0, i], live[1, i] = look[i].any(), row[i].any()
    for setting in range(settings):
        lo, hi = setting * nodes, setting * nodes + nodes
        g0, g1, c0, c1 = _pad(flat0, lo, hi, w), _pad(flat1, lo, hi, w), _pad(b0, lo, hi, w), _pad(b1, lo, hi, w)
        x, cov, p, r = _pad(X, lo, hi, w), _pad(flatN, lo, hi, w), _pad(look, lo, hi, w), _pad(row, lo, hi, w)
        data = _pad(about, lo, hi, w)
        m, tau = np.empty((len(x), w)), 0.0
        for t in range(-1, steps):
            total = 0.0
            for i in range(len(x)):
                if t >= 0:
                    for z in range(w):
                        var[z] = loud[t] * data[i, 3, z] * (data[i, 0, z] * m[i, z] + tau + label_noise)
                    if moving:
                        _axpy(G.ravel(), pace[t], g1[i].ravel(), g0[i].ravel())
                        _axpy(b.ravel(), pace[t], c1[i].ravel(), c0[i].ravel())
                        _coupled_step(G, b, var, x[i], cov[i], dx, work, dcov)
                    else:
                        _coupled_step(g0[i], c0[i], var, x[i], cov[i], dx, work, dcov)
                    _seen(y, v, r[i], live[1], x[i], cov[i])
                    for z in range(w):
                        y[z] *= y[z]
                    signal[setting, t] += 0.5 * _dot(data[i, 2], data[i, 1], y)
                    noise[setting, t] += 0.5 * _dot(data[i, 2], v, one)
                _seen(y, v, p[i], live[0], x[i], cov[i])
                for z in range(w):
                    m[i, z] = data[i, 1, z] * y[z] * y[z] + per_example * v[z]
                total += _dot(data[i, 2], m[i], one)
            tau = total
        _unpad(X, x, lo, hi)
        _unpad(flatN, cov, lo, hi)
    return signal, noise
