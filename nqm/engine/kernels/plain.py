"""The inner loops of the engine in plain NumPy, where there is no numba; and what the compiled ones are held against."""

from __future__ import annotations

from typing import Any

import numpy as np


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


def end_numpy(G: Any, b: Any, x: Any, r: Any, t: int) -> tuple[Any, Any]:
    """Second moments of ``r . x`` after t steps of ``x <- x + G x + b eps`` from x: of the signal, and of the noise.

    Slots come as they are and are sheared and balanced here. x and r may have one column, for all modes.
    """
    A, d, Q, x, r = _prepare(G, b, x, r)
    X, N = move_numpy(A, d, Q, x[:, None], np.zeros_like(Q), t)
    return seen_numpy(X, N, np.ones((1, A.shape[2])), r)


def climb_numpy(G: Any, b: Any, x: Any, r: Any, levels: int) -> tuple[Any, Any]:
    """What `end_numpy` gives after 1, 2, 4, ... steps, as (level, mode)."""
    A, d, Q, x, r = _prepare(G, b, x, r)
    signal, noise = np.empty((levels, A.shape[2])), np.empty((levels, A.shape[2]))
    for level in range(levels):
        signal[level], noise[level] = seen_numpy(A, Q, x, r)
        A, d, Q = compose_numpy(A, d, Q, A, d, Q)
    return signal, noise


def _prepare(G: Any, b: Any, x: Any, r: Any) -> tuple[Any, Any, Any, Any, Any]:
    """A step's map, its start and its read-out, slots sheared and scaled."""
    k, _, n = G.shape
    G, b, tilt = G.copy(), b.copy(), np.empty(n)
    x, r = np.repeat(x, n // x.shape[1], axis=1), np.repeat(r, n // r.shape[1], axis=1)
    if k > 1 and tilts_numpy(G, tilt, n):
        shear_numpy(G, tilt, n)
        b[1], x[1], r[0] = b[1] + tilt * b[0], x[1] + tilt * x[0], r[0] - tilt * r[1]
    scale = balance_numpy(G)
    G, b = G * scale[None] / scale[:, None], b / scale
    return G + np.eye(k)[..., None], np.einsum("iix->ix", G), b[:, None] * b[None], x / scale, r * scale


def seen_numpy(A: Any, Q: Any, x: Any, r: Any) -> tuple[Any, Any]:
    """Second moments of ``r . A x``, and of r over the noise Q."""
    return np.einsum("ix,ijx,jx->x", r, A, x) ** 2, np.einsum("ix,ijx,jx->x", r, Q, r)


def chain_numpy(A: Any, Q: Any, x: Any, N: Any) -> tuple[Any, Any]:
    """The state (x, N) before each of a row of maps (A, Q) and after the last."""
    states = [(x, N)]
    for a, q in zip(A, Q, strict=True):
        x, N = np.einsum("ijx,jx->ix", a, x), np.einsum("ilx,lmx,jmx->ijx", a, N, a) + q
        states.append((x, N))
    return np.stack([x for x, _ in states]), np.stack([N for _, N in states])


def balance_numpy(G: Any) -> Any:
    """Slot scales (k, modes) by Osborne's iteration: see `moments.balance`."""
    k = len(G)
    scale, size = np.ones((k, *G.shape[2:])), np.abs(G)
    size[np.arange(k), np.arange(k)] = 0.0
    for _ in range(k - 1):
        for i in range(1, k):  # only ratios matter: slot 0 keeps its unit
            row, column = size[i].sum(0), size[:, i].sum(0)
            f = np.where((row > 0) & (column > 0), np.ldexp(1.0, (_exponent(row) - _exponent(column)) // 2), 1.0)
            size[i] /= f
            size[:, i] *= f
            scale[i] *= f
    return scale


def tilts_numpy(G: Any, tilt: Any, width: int) -> int:
    """By how much to shear slot 1 of the first modes, 0 where that is not needed (`moments.Basis`); on how many it is."""
    (a, b), (c, d) = G[0, :2, :width], G[1, :2, :width]
    half = (a - d) / 2
    far = np.flatnonzero((a + d < -2) & (b != 0) & (b * c < -(half**2) / 2))
    tilt[:width] = 0.0
    tilt[far] = half[far] / b[far]
    return len(far)


def shear_numpy(G: Any, tilt: Any, width: int) -> None:
    """A step's change with slot 1 as ``x1 + tilt x0``, in place, of the first modes.

    Entry (1, 0) is what is left when large terms cancel: products and sums there keep what they round off.
    """
    far = np.flatnonzero(tilt[:width])
    part, s = G[:, :, far], tilt[far]
    (a, b), (c, d) = part[0, :2].copy(), part[1, :2].copy()
    part[1] += s * part[0]
    part[:, 0] -= s * part[:, 1]
    p, p_low = two_product(s, b)
    part[0, 0], part[1, 1] = (a - p) - p_low, (d + p) + p_low
    total, low = c, -s * p_low
    for sign, (high, rest) in ((1, two_product(s, a)), (-1, two_product(s, d)), (-1, two_product(s, p))):
        total, lost = two_sum(total, sign * high)
        low = low + lost + sign * rest
    part[1, 0] = total + low
    G[:, :, far] = part


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """A product, and what rounding took off it: Dekker's, which needs no fused operation."""
    product, x, y = a * b, 134217729.0 * a, 134217729.0 * b  # 2^27 + 1 halves the digits of a number
    a_high, b_high = x - (x - a), y - (y - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """A sum, and what rounding took off it."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


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


def _exponent(x: Any) -> Any:
    """The exponents of positive numbers, from their bits."""
    return (x.view(np.int64) >> 52) - 1023
