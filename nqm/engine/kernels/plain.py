"""The inner loops of the engine in NumPy: they run where numba is missing, and the compiled loops are tested against them.

`kernels.Loops` says what each function does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

import numpy as np

from ...types import Array

CHUNK = 256  # modes that a compiled loop works on at a time, so that all of its arrays stay in cache
compiled = False
end = climb = hold = watch = None
F = TypeVar("F", bound=Callable[..., object])


def quiet(loop: F) -> F:
    """A loop that does not warn where unstable settings overflow, as compiled loops do not."""

    @wraps(loop)
    def silent(*arguments: object) -> object:
        with np.errstate(over="ignore", invalid="ignore"):
            return loop(*arguments)

    return cast(F, silent)


@quiet
def compose(A2: Array, d2: Array, Q2: Array, A1: Array, d1: Array, Q1: Array) -> tuple[Array, Array, Array]:
    A = np.einsum("ilx,ljx->ijx", A2, A1)
    Q = np.einsum("ilx,jlx->ijx", np.einsum("ilx,lmx->imx", A2, Q1), A2) + Q2
    i = np.arange(min(A.shape[0], A.shape[1]))
    if len(i) > A1.shape[0]:
        return A, A[i, i] - 1.0, Q
    off = np.einsum("ilx,lix->ix", A2[i], A1[:, i]) - A2[i, i] * A1[i, i]
    d = d2[i] + d1[i] + d2[i] * d1[i] + off
    A[i, i] = np.where(np.abs(d) < 0.5, 1.0 + d, A[i, i])
    return A, np.where(np.abs(d) < 0.5, d, A[i, i] - 1.0), Q


def square(A: Array, d: Array, Q: Array) -> tuple[Array, Array, Array]:
    return compose(A, d, Q, A, d, Q)


@quiet
def move(A: Array, d: Array, Q: Array, X: Array, N: Array, t: int) -> tuple[Array, Array]:
    zero = np.zeros((min(X.shape[:2]), X.shape[2]))  # The diagonal of a state is not used.
    while t:
        if t & 1:
            X, N = np.einsum("ilx,ljx->ijx", A, X), compose(A, d, Q, X, zero, N)[2]
        t >>= 1
        if t:
            A, d, Q = compose(A, d, Q, A, d, Q)
    return X, N


@quiet
def chain(A: Array, Q: Array, kick: Array, x: Array, N: Array) -> tuple[Array, Array]:
    states = [(x, N)]
    for a, q, c in zip(A, Q, kick, strict=True):
        x, N = np.einsum("ijx,jx->ix", a, x) + c, np.einsum("ilx,lmx,jmx->ijx", a, N, a) + q
        states.append((x, N))
    return np.stack([x for x, _ in states]), np.stack([N for _, N in states])


def balance(G: Array) -> Array:
    k = len(G)
    scale, size = np.ones((k, *G.shape[2:])), np.abs(G)
    size[np.arange(k), np.arange(k)] = 0.0
    for _ in range(k - 1):
        for i in range(1, k):  # Only ratios matter, so slot 0 keeps its unit.
            row, column = size[i].sum(0), size[:, i].sum(0)
            f = np.where((row > 0) & (column > 0), np.ldexp(1.0, (_exponent(row) - _exponent(column)) // 2), 1.0)
            size[i] /= f
            size[:, i] *= f
            scale[i] *= f
    return scale


def tilts(G: Array, tilt: Array, width: int) -> int:
    (a, b), (c, d) = G[0, :2, :width], G[1, :2, :width]
    half = (a - d) / 2
    far = np.flatnonzero((a + d < -2) & (b != 0) & (b * c < -(half**2) / 2))
    tilt[:width] = 0.0
    tilt[far] = half[far] / b[far]
    return len(far)


def shear(G: Array, tilt: Array, width: int) -> None:
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


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """A product and its rounding error, by Dekker's algorithm, which needs no fused multiply-add."""
    product, x, y = a * b, 134217729.0 * a, 134217729.0 * b  # 2^27 + 1 splits a number into two halves of its digits
    a_high, b_high = x - (x - a), y - (y - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """A sum and its rounding error, by Knuth's algorithm."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@quiet
def scan_coupled(
    G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, X: Array, N: Array, row: Array, ws: Array, wn: Array,
    look: Array, h: Array, c: Array, s: Array, mass: Array, label_noise: float, per_example: float, nodes: int,
) -> tuple[Array, Array]:  # fmt: skip
    begins = np.arange(0, len(h), nodes)  # the first mode of each setting
    signal, noise = np.empty((2, len(begins), len(pace)))
    for t, (p, q) in enumerate(zip(pace, loud, strict=True)):
        G, b = G0 + p * G1, b0 + p * b1
        m = s * (look * X[:, 0]).sum(0) ** 2 + per_example * np.einsum("ix,ijx,jx->x", look, N, look)
        tau = np.repeat(np.add.reduceat(mass * m, begins), nodes)[: len(h)]
        X += np.einsum("ilx,ljx->ijx", G, X)
        GN = np.einsum("ilx,lmx->imx", G, N)
        jolt = q * c * (h * m + tau + label_noise) * b
        N += GN + GN.transpose(1, 0, 2) + np.einsum("ilx,jlx->ijx", GN, G) + jolt[:, None] * b[None]
        signal[:, t] = np.add.reduceat((ws * np.einsum("ix,ijx->jx", row, X) ** 2).sum(0), begins)
        noise[:, t] = np.add.reduceat(wn * np.einsum("ix,ijx,jx->x", row, N, row), begins)
    return signal, noise


def _exponent(x: Array) -> Array:
    """The binary exponents of positive numbers, read from their bits."""
    return (x.view(np.int64) >> 52) - 1023
