"""The loop that takes steps one by one, for numba: in least squares all modes are coupled by one sum, tau.

As in `compiled`, the mode is the innermost index. The sum over all modes is needed at every step, so each step goes over
all chunks of modes. Each chunk is contiguous in memory, so that every loop vectorises.
"""

from __future__ import annotations

import numpy as np

from ...types import Array
from .compiling import in_any_order, loop
from .plain import CHUNK


@loop
def _axpy(out: Array, a: float, x: Array, y: Array, i: int) -> None:
    """out = y[i] + a x[i]."""
    for j in range(out.shape[1]):
        for z in range(out.shape[2]):
            out[0, j, z] = y[i, j, z] + a * x[i, j, z]


@in_any_order
def _sum(a: Array, i: int, j: int, b: Array) -> float:
    """a[i, j] . b."""
    total = 0.0
    for z in range(b.size):
        total += a[i, j, z] * b[z]
    return total


@loop
def _any(a: Array, i: int) -> bool:
    """Whether any entry of a[i] is not zero."""
    found = False
    for z in range(a.shape[1]):
        found = found or a[i, z] != 0.0
    return found


@loop
def _pad(a: Array, lo: int, hi: int, width: int) -> Array:
    """The modes lo .. hi of an array (rows, modes) as (chunk, row, ``width``), zeros after the last."""
    rows, chunks = a.shape[0], -((lo - hi) // width)
    out = np.zeros((chunks, rows, width))
    for c in range(chunks):
        first = lo + c * width
        for i in range(rows):
            for x in range(min(width, hi - first)):
                out[c, i, x] = a[i, first + x]
    return out


@loop
def _unpad(out: Array, a: Array, lo: int, hi: int) -> None:
    """Write chunks made by `_pad` back into the modes lo .. hi of out."""
    width = a.shape[2]
    for c in range(a.shape[0]):
        first = lo + c * width
        for i in range(a.shape[1]):
            for x in range(min(width, hi - first)):
                out[i, first + x] = a[c, i, x]


# Arrays below are (chunk, row, mode), and the index i of the chunk is passed along: a slice costs as much as a short loop.


@loop
def _amplitude(y: Array, r: Array, live: Array, x: Array, i: int, column: int) -> None:
    """y = (r . x)^2 for a column of x, summed over the slots that are ``live``; most have weight zero on every mode."""
    k, w = r.shape[1], r.shape[2]
    columns = x.shape[1] // k
    for z in range(w):
        y[z] = 0.0
    for a in range(k):
        if live[a]:
            for z in range(w):
                y[z] += r[i, a, z] * x[i, a * columns + column, z]
    for z in range(w):
        y[z] *= y[z]


@loop
def _variance(v: Array, r: Array, live: Array, cov: Array, i: int) -> None:
    """v = r' cov r, summed over the slots that are ``live``."""
    k, w = r.shape[1], r.shape[2]
    for z in range(w):
        v[z] = 0.0
    for a in range(k):
        for b in range(a, k):
            if live[a] and live[b]:
                twice = 2.0 if b > a else 1.0
                for z in range(w):
                    v[z] += twice * r[i, a, z] * r[i, b, z] * cov[i, a * k + b, z]


@loop
def _step_signal(G: Array, o: int, x: Array, columns: int, i: int, dx: Array) -> None:
    """x <- x + G x, in place, with chunk o of G."""
    rows, w = x.shape[1], x.shape[2]
    k = rows // columns
    for a in range(rows):
        row, column = a // columns * k, a % columns
        for z in range(w):
            dx[a, z] = G[o, row, z] * x[i, column, z]
        for l in range(1, k):
            for z in range(w):
                dx[a, z] += G[o, row + l, z] * x[i, l * columns + column, z]
    for a in range(rows):
        for z in range(w):
            x[i, a, z] += dx[a, z]


@loop
def _step_noise(G: Array, b: Array, o: int, var: Array, cov: Array, i: int, work: Array, dcov: Array) -> None:
    """cov <- cov + G cov + cov G' + G cov G' + var b b', in place, with chunk o of G and b."""
    k, w = b.shape[1], b.shape[2]
    if k == 2:
        _step_pair(G, b, o, var, cov, i)
        return
    for a in range(k):
        for e in range(k):
            for z in range(w):
                work[a * k + e, z] = G[o, a * k, z] * cov[i, e, z]
            for l in range(1, k):
                for z in range(w):
                    work[a * k + e, z] += G[o, a * k + l, z] * cov[i, l * k + e, z]
    for a in range(k):
        for e in range(a, k):
            for z in range(w):
                dcov[z] = var[z] * b[o, a, z] * b[o, e, z] + work[a * k + e, z] + work[e * k + a, z]
            for l in range(k):
                for z in range(w):
                    dcov[z] += work[a * k + l, z] * G[o, e * k + l, z]
            for z in range(w):
                cov[i, a * k + e, z] += dcov[z]
            if e > a:
                for z in range(w):
                    cov[i, e * k + a, z] = cov[i, a * k + e, z]


@loop
def _step_pair(G: Array, b: Array, o: int, var: Array, cov: Array, i: int) -> None:
    """`_step_noise` for two slots, with every entry of a mode in a register."""
    for z in range(b.shape[2]):
        g00, g01, g10, g11 = G[o, 0, z], G[o, 1, z], G[o, 2, z], G[o, 3, z]
        u, v, w = cov[i, 0, z], cov[i, 1, z], cov[i, 3, z]
        p0, p1, r0, r1 = g00 * u + g01 * v, g00 * v + g01 * w, g10 * u + g11 * v, g10 * v + g11 * w
        b0, b1, q = b[o, 0, z], b[o, 1, z], var[z]
        cov[i, 0, z] = u + (q * b0 * b0 + 2.0 * p0 + (p0 * g00 + p1 * g01))
        cov[i, 1, z] = cov[i, 2, z] = v + (q * b0 * b1 + p1 + r0 + (p0 * g10 + p1 * g11))
        cov[i, 3, z] = w + (q * b1 * b1 + 2.0 * r1 + (r0 * g10 + r1 * g11))


@loop
def scan_coupled(
    G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, X: Array, N: Array, row: Array, ws: Array, wn: Array,
    look: Array, h: Array, c: Array, s: Array, mass: Array, label_noise: float, per_example: float, nodes: int,
) -> tuple[Array, Array]:  # fmt: skip
    k, columns, n = X.shape
    settings, steps, w = -(-n // nodes), len(pace), min(CHUNK, nodes)
    signal, noise = np.zeros((settings, steps)), np.zeros((settings, steps))
    flat0, flat1, flatX, flatN = (
        G0.reshape(k * k, n), G1.reshape(k * k, n), X.reshape(k * columns, n), N.reshape(k * k, n),
    )  # fmt: skip
    moving = False
    for a in range(k * k):
        moving = moving or _any(flat1, a) or (a < k and _any(b1, a))
    G, b, var, dcov = np.empty((1, k * k, w)), np.empty((1, k, w)), np.empty(w), np.empty(w)
    dx, work, y, v = np.empty((k * columns, w)), np.empty((k * k, w)), np.empty(w), np.empty(w)
    about = np.empty((6, n))
    for z in range(n):
        about[0, z], about[1, z], about[2, z] = h[z], c[z], s[z]
        about[3, z], about[4, z], about[5, z] = mass[z] * s[z], mass[z], wn[z]
    watched, read, coupled = np.empty(k, dtype=np.bool_), np.empty(k, dtype=np.bool_), False
    for a in range(k):
        watched[a], read[a] = _any(look, a), _any(row, a)
        coupled = coupled or watched[a]
    for setting in range(settings):
        lo, hi = setting * nodes, min(n, setting * nodes + nodes)
        g0, g1, c0, c1 = _pad(flat0, lo, hi, w), _pad(flat1, lo, hi, w), _pad(b0, lo, hi, w), _pad(b1, lo, hi, w)
        x, cov, p, r = _pad(flatX, lo, hi, w), _pad(flatN, lo, hi, w), _pad(look, lo, hi, w), _pad(row, lo, hi, w)
        data, weights = _pad(about, lo, hi, w), _pad(ws, lo, hi, w)
        m, tau = np.zeros((len(x), w)), 0.0
        for t in range(-1, steps):
            total = 0.0
            for i in range(len(x)):
                if t >= 0:
                    for z in range(w):
                        var[z] = loud[t] * data[i, 1, z] * (data[i, 0, z] * m[i, z] + tau + label_noise)
                    if moving:
                        _axpy(G, pace[t], g1, g0, i)
                        _axpy(b, pace[t], c1, c0, i)
                        _step_signal(G, 0, x, columns, i, dx)
                        _step_noise(G, b, 0, var, cov, i, work, dcov)
                    else:
                        _step_signal(g0, i, x, columns, i, dx)
                        _step_noise(g0, c0, i, var, cov, i, work, dcov)
                    for j in range(columns):
                        _amplitude(y, r, read, x, i, j)
                        signal[setting, t] += _sum(weights, i, j, y)
                    _variance(v, r, read, cov, i)
                    noise[setting, t] += _sum(data, i, 5, v)
                if coupled:
                    _amplitude(y, p, watched, x, i, 0)
                    _variance(v, p, watched, cov, i)
                    for z in range(w):
                        m[i, z] = data[i, 2, z] * y[z] + per_example * v[z]
                    total += _sum(data, i, 3, y) + per_example * _sum(data, i, 4, v)
            tau = total
        _unpad(flatX, x, lo, hi)
        _unpad(flatN, cov, lo, hi)
    return signal, noise
