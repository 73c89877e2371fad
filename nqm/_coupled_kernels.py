"""The inner loop of least squares, for numba and for plain NumPy: a scan in which modes meet in one sum.

As in `_kernels`, modes lie innermost. The sum over all of them is needed at every step, so chunks of modes take turns
within a step, and each is laid out on its own so that every loop vectorises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

CHUNK = 256


@cache
def scan_coupled() -> Callable[..., tuple[Any, Any]]:
    """Compiled where numba is installed, at first use."""
    try:
        import numba
    except ImportError:
        return scan_coupled_numpy

    # The loops call these by their global names, compiled or not.
    global _seen, _pad, _unpad, _step, _axpy, _dot
    jit = numba.njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy", nogil=True)
    _seen, _pad, _unpad, _step, _axpy = jit(_seen), jit(_pad), jit(_unpad), jit(_step), jit(_axpy)
    _dot = numba.njit(cache=True, fastmath=True, nogil=True)(_dot)  # sums in any order
    return jit(_scan_coupled)


def scan_coupled_numpy(
    G0: Any, G1: Any, b0: Any, b1: Any, pace: Any, loud: Any, X: Any, N: Any,
    look: Any, row: Any, h: Any, c: Any, s: Any, mass: Any, label_noise: float, per_example: float, nodes: int,
) -> tuple[Any, Any]:  # fmt: skip
    """Step a state in place, with the noise of least squares: of variance ``c (h m + tau + label_noise)`` per example on each mode,
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


def _axpy(out: Any, a: float, x: Any, y: Any) -> None:
    for i in range(out.size):
        out[i] = y[i] + a * x[i]


def _dot(a: Any, b: Any, c: Any) -> float:
    total = 0.0
    for x in range(a.size):
        total += a[x] * b[x] * c[x]
    return total


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


def _step(G: Any, b: Any, var: Any, x: Any, cov: Any, dx: Any, work: Any, dcov: Any) -> None:
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
                        _step(G, b, var, x[i], cov[i], dx, work, dcov)
                    else:
                        _step(g0[i], c0[i], var, x[i], cov[i], dx, work, dcov)
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
