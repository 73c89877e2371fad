"""The loops of `compiled` for two slots, which most optimizers have. They keep a mode in registers and are four times faster.

`end_pairs` is ``readout @ step ** t @ start`` of `moments`, in the slots of `basis.Basis`, entry by entry.

The maps and states of a chunk of modes lie in one flat workspace w, in which each distinct entry has a row at a fixed
place. The compiler therefore knows that no two rows overlap. With separate arrays it inserts aliasing checks into every
call, which cost as much as sixty modes.
"""

from __future__ import annotations

import numpy as np

from ...types import Array
from . import plain
from .compiling import exact, in_any_order, loop
from .plain import CHUNK

ROW = CHUNK + 8  # length of a row of the workspace: rows a power of two apart would evict each other from the cache
A00, A01, A10, A11, D0, D1, Q00, Q01, Q11, X0, X1, N00, N01, N11, R0, R1, SCALE, TILT = (ROW * i for i in range(18))
SIZE = 18 * ROW
two_product, two_sum = exact(plain.two_product), exact(plain.two_sum)


@loop
def square_pair(w: Array, width: int) -> None:
    """Compose the map with itself, as `_matmul`, `_diagonal` and `_sandwich` do for any number of slots."""
    for x in range(width):
        a00, a01, a10, a11, d0, d1 = w[A00 + x], w[A01 + x], w[A10 + x], w[A11 + x], w[D0 + x], w[D1 + x]
        loop, trace = a01 * a10, a00 + a11
        e0, e1 = d0 + d0 + d0 * d0 + loop, d1 + d1 + d1 * d1 + loop
        near0, near1 = abs(e0) < 0.5, abs(e1) < 0.5
        b00 = 1.0 + e0 if near0 else a00 * a00 + loop
        b11 = 1.0 + e1 if near1 else a11 * a11 + loop
        w[A00 + x], w[A01 + x], w[A10 + x], w[A11 + x] = b00, a01 * trace, a10 * trace, b11
        w[D0 + x], w[D1 + x] = e0 if near0 else b00 - 1.0, e1 if near1 else b11 - 1.0
        u, v, z = w[Q00 + x], w[Q01 + x], w[Q11 + x]
        p0, p1, r0, r1 = a00 * u + a01 * v, a00 * v + a01 * z, a10 * u + a11 * v, a10 * v + a11 * z
        w[Q00 + x] = u + (p0 * a00 + p1 * a01)
        w[Q01 + x] = v + (p0 * a10 + p1 * a11)
        w[Q11 + x] = z + (r0 * a10 + r1 * a11)


@loop
def move_pair(w: Array, width: int) -> None:
    """Apply the map to the state."""
    for x in range(width):
        a00, a01, a10, a11 = w[A00 + x], w[A01 + x], w[A10 + x], w[A11 + x]
        u, v = w[X0 + x], w[X1 + x]
        w[X0 + x], w[X1 + x] = a00 * u + a01 * v, a10 * u + a11 * v
        u, v, z = w[N00 + x], w[N01 + x], w[N11 + x]
        p0, p1, r0, r1 = a00 * u + a01 * v, a00 * v + a01 * z, a10 * u + a11 * v, a10 * v + a11 * z
        w[N00 + x] = w[Q00 + x] + (p0 * a00 + p1 * a01)
        w[N01 + x] = w[Q01 + x] + (p0 * a10 + p1 * a11)
        w[N11 + x] = w[Q11 + x] + (r0 * a10 + r1 * a11)


@loop
def walk_pair(w: Array, width: int, t: int) -> None:
    """Apply the map t times to the state; the map is overwritten."""
    left = t
    while left:
        if left & 1:
            move_pair(w, width)
        left >>= 1
        if left:
            square_pair(w, width)


@loop
def load_map(w: Array, A: Array, d: Array, Q: Array, lo: int, width: int) -> None:
    """Write a map into w."""
    for x in range(width):
        i = lo + x
        w[A00 + x], w[A01 + x], w[A10 + x], w[A11 + x] = A[0, 0, i], A[0, 1, i], A[1, 0, i], A[1, 1, i]
        w[D0 + x], w[D1 + x], w[Q00 + x], w[Q01 + x], w[Q11 + x] = d[0, i], d[1, i], Q[0, 0, i], Q[0, 1, i], Q[1, 1, i]


@loop
def square_pairs(A: Array, d: Array, Q: Array) -> tuple[Array, Array, Array]:
    n = A.shape[2]
    A_out, d_out, Q_out, w = np.empty((2, 2, n)), np.empty((2, n)), np.empty((2, 2, n)), np.empty(SIZE)
    for lo in range(0, n, CHUNK):
        width = min(CHUNK, n - lo)
        load_map(w, A, d, Q, lo, width)
        square_pair(w, width)
        for x in range(width):
            i = lo + x
            A_out[0, 0, i], A_out[0, 1, i] = w[A00 + x], w[A01 + x]
            A_out[1, 0, i], A_out[1, 1, i] = w[A10 + x], w[A11 + x]
            Q_out[0, 0, i], Q_out[0, 1, i] = w[Q00 + x], w[Q01 + x]
            Q_out[1, 0, i], Q_out[1, 1, i] = w[Q01 + x], w[Q11 + x]
            d_out[0, i], d_out[1, i] = w[D0 + x], w[D1 + x]
    return A_out, d_out, Q_out


@loop
def move_pairs(A: Array, d: Array, Q: Array, X: Array, N: Array, t: int) -> tuple[Array, Array]:
    n = A.shape[2]
    X_end, N_end, w = np.empty((2, 1, n)), np.empty((2, 2, n)), np.empty(SIZE)
    for lo in range(0, n, CHUNK):
        width = min(CHUNK, n - lo)
        load_map(w, A, d, Q, lo, width)
        for x in range(width):
            i = lo + x
            w[X0 + x], w[X1 + x] = X[0, 0, i], X[1, 0, i]
            w[N00 + x], w[N01 + x], w[N11 + x] = N[0, 0, i], N[0, 1, i], N[1, 1, i]
        walk_pair(w, width, t)
        for x in range(width):
            i = lo + x
            X_end[0, 0, i], X_end[1, 0, i] = w[X0 + x], w[X1 + x]
            N_end[0, 0, i], N_end[0, 1, i], N_end[1, 0, i] = w[N00 + x], w[N01 + x], w[N01 + x]
            N_end[1, 1, i] = w[N11 + x]
    return X_end, N_end


@loop
def hold_pairs(
    g00: Array, g01: Array, g10: Array, g11: Array, b0: Array, b1: Array, q: Array, X: Array, N: Array, t: int
) -> tuple[Array, Array]:  # fmt: skip
    n = len(g00)
    X_end, N_end, w = np.empty((2, n)), np.empty((2, 2, n)), np.empty(SIZE)
    for lo in range(0, n, CHUNK):
        width = min(CHUNK, n - lo)
        for x in range(width):
            i = lo + x
            w[A00 + x], w[A01 + x], w[A10 + x], w[A11 + x] = 1 + g00[i], g01[i], g10[i], 1 + g11[i]
            u, v = b0[i], b1[i]
            w[D0 + x], w[D1 + x], w[Q00 + x], w[Q01 + x], w[Q11 + x] = (
                g00[i],
                g11[i],
                q[i] * u * u,
                q[i] * u * v,
                q[i] * v * v,
            )
            w[X0 + x], w[X1 + x] = X[0, i], X[1, i]
            w[N00 + x], w[N01 + x], w[N11 + x] = N[0, 0, i], N[0, 1, i], N[1, 1, i]
        walk_pair(w, width, t)
        for x in range(width):
            i = lo + x
            X_end[0, i], X_end[1, i] = w[X0 + x], w[X1 + x]
            N_end[0, 0, i], N_end[0, 1, i], N_end[1, 0, i] = w[N00 + x], w[N01 + x], w[N01 + x]
            N_end[1, 1, i] = w[N11 + x]
    return X_end, N_end


@loop
def load_step(w: Array, G: Array, b: Array, start: Array, g: Array, lo: int, width: int) -> None:
    """Write the map of a step and the state before it, in the slots of `Basis(G)`, into w; g is a workspace for a chunk of G."""
    for x in range(width):
        i = lo + x
        g[0, 0, x], g[0, 1, x], g[1, 0, x], g[1, 1, x] = G[0, 0, i], G[0, 1, i], G[1, 0, i], G[1, 1, i]
    if tilts(g, w[TILT:], width):
        shear(g, w[TILT:], width)
    balance_pair(w[SCALE:], g[1, 0], g[0, 1], width)
    many = start.shape[1] > 1
    for x in range(width):
        i, tilt, scale, up = lo + x, w[TILT + x], w[SCALE + x], 1 / w[SCALE + x]
        w[A00 + x], w[A01 + x] = 1 + g[0, 0, x], g[0, 1, x] * scale
        w[A10 + x], w[A11 + x] = g[1, 0, x] * up, 1 + g[1, 1, x]
        w[D0 + x], w[D1 + x] = g[0, 0, x], g[1, 1, x]
        u, v = b[0, i], (b[1, i] + tilt * b[0, i]) * up
        w[Q00 + x], w[Q01 + x], w[Q11 + x] = u * u, u * v, v * v
        j = i if many else 0
        w[X0 + x], w[X1 + x] = start[0, j], (start[1, j] + tilt * start[0, j]) * up
        w[N00 + x], w[N01 + x], w[N11 + x] = 0.0, 0.0, 0.0


@loop
def load_row(w: Array, r: Array, lo: int, width: int) -> None:
    """Write the read-out into w, in the slots of `load_step`."""
    many = r.shape[1] > 1
    for x in range(width):
        j = lo + x if many else 0
        w[R0 + x], w[R1 + x] = r[0, j] - w[TILT + x] * r[1, j], r[1, j] * w[SCALE + x]


@loop
def end_pairs(G: Array, b: Array, x: Array, r: Array, t: int) -> tuple[Array, Array]:
    """Take each chunk of modes through all steps while it is in cache."""
    n = G.shape[2]
    signal, noise, w, g = np.empty(n), np.empty(n), np.empty(SIZE), np.empty((2, 2, CHUNK))
    for lo in range(0, n, CHUNK):
        width = min(CHUNK, n - lo)
        load_step(w, G, b, x, g, lo, width)
        load_row(w, r, lo, width)
        walk_pair(w, width, t)
        for z in range(width):
            r0, r1 = w[R0 + z], w[R1 + z]
            seen = r0 * w[X0 + z] + r1 * w[X1 + z]
            signal[lo + z] = seen * seen
            noise[lo + z] = r0 * r0 * w[N00 + z] + 2 * (r0 * r1 * w[N01 + z]) + r1 * r1 * w[N11 + z]
    return signal, noise


@in_any_order
def sum_pair(w: Array, width: int, ws: Array, wn: Array, part: int) -> tuple[float, float]:
    """The squared read-out of the signal, and the read-out of the noise, summed over a chunk with weights from ``part`` on."""
    signal = noise = 0.0
    for z in range(width):
        r0, r1 = w[R0 + z], w[R1 + z]
        seen = r0 * w[X0 + z] + r1 * w[X1 + z]
        signal += ws[part + z] * (seen * seen)
        noise += wn[part + z] * (r0 * r0 * w[N00 + z] + 2 * (r0 * r1 * w[N01 + z]) + r1 * r1 * w[N11 + z])
    return signal, noise


@loop
def watch_pairs(
    G: Array, b: Array, x: Array, r: Array, first: int, level: int, count: int, ws: Array, wn: Array
) -> tuple[Array, Array]:  # fmt: skip
    """Jump to the first time, and then move on by 2^level steps at a time while a chunk of modes is in cache."""
    nodes = len(ws)
    settings = G.shape[2] // nodes
    signal, noise, w, g = (
        np.zeros((count, settings)),
        np.zeros((count, settings)),
        np.empty(SIZE),
        np.empty((2, 2, CHUNK)),
    )
    state = np.empty((5, CHUNK))
    for setting in range(settings):
        for part in range(0, nodes, CHUNK):
            lo, width = setting * nodes + part, min(CHUNK, nodes - part)
            load_step(w, G, b, x, g, lo, width)
            walk_pair(w, width, first)
            for z in range(width):
                state[0, z], state[1, z] = w[X0 + z], w[X1 + z]
                state[2, z], state[3, z], state[4, z] = w[N00 + z], w[N01 + z], w[N11 + z]
            load_step(w, G, b, x, g, lo, width)  # the walk has overwritten the map
            load_row(w, r, lo, width)
            for _ in range(level):
                square_pair(w, width)
            for z in range(width):
                w[X0 + z], w[X1 + z] = state[0, z], state[1, z]
                w[N00 + z], w[N01 + z], w[N11 + z] = state[2, z], state[3, z], state[4, z]
            for i in range(count):
                if i:
                    move_pair(w, width)
                seen, spread = sum_pair(w, width, ws, wn, part)
                signal[i, setting] += seen
                noise[i, setting] += spread
    return signal, noise


@loop
def climb_pairs(G: Array, b: Array, x: Array, r: Array, levels: int) -> tuple[Array, Array]:
    n = G.shape[2]
    signal, noise, w, g = np.empty((levels, n)), np.empty((levels, n)), np.empty(SIZE), np.empty((2, 2, CHUNK))
    for lo in range(0, n, CHUNK):
        width = min(CHUNK, n - lo)
        load_step(w, G, b, x, g, lo, width)
        load_row(w, r, lo, width)
        for level in range(levels):
            for z in range(width):
                r0, r1 = w[R0 + z], w[R1 + z]
                to0, to1 = r0 * w[A00 + z] + r1 * w[A10 + z], r0 * w[A01 + z] + r1 * w[A11 + z]
                seen = to0 * w[X0 + z] + to1 * w[X1 + z]
                signal[level, lo + z] = seen * seen
                noise[level, lo + z] = r0 * r0 * w[Q00 + z] + 2 * (r0 * r1 * w[Q01 + z]) + r1 * r1 * w[Q11 + z]
            square_pair(w, width)
    return signal, noise


@loop
def balance_pair(scale: Array, row: Array, column: Array, width: int) -> None:
    """Write the scale of a slot: the power of two nearest to sqrt(row / column), the sizes of its row and of its column."""
    up, down, bits = row.view(np.int64), column.view(np.int64), scale.view(np.int64)
    for z in range(width):
        half = (((up[z] >> 52) & 2047) - ((down[z] >> 52) & 2047)) >> 1
        bits[z] = (half + 1023 if row[z] != 0 and column[z] != 0 else 1023) << 52


@exact
def tilts(G: Array, tilt: Array, width: int) -> int:
    far = 0
    for z in range(width):
        half, loop = (G[0, 0, z] - G[1, 1, z]) / 2, G[0, 1, z] * G[1, 0, z]
        tilt[z] = 0.0
        if G[0, 0, z] + G[1, 1, z] < -2.0 and G[0, 1, z] != 0 and loop < -(half * half) / 2:
            tilt[z] = half / G[0, 1, z]
            far += 1
    return far


@exact
def shear(G: Array, tilt: Array, width: int) -> None:
    for z in range(width):
        s = tilt[z]
        if s == 0.0:
            continue
        a, b, c, d = G[0, 0, z], G[0, 1, z], G[1, 0, z], G[1, 1, z]
        p, p_low = two_product(s, b)
        G[0, 0, z], G[1, 1, z] = (a - p) - p_low, (d + p) + p_low
        u, u_low = two_product(s, a)
        v, v_low = two_product(s, d)
        w, w_low = two_product(s, p)
        e, e_low = two_sum(c, u)
        f, f_low = two_sum(e, -v)
        g, g_low = two_sum(f, -w)
        G[1, 0, z] = g + ((e_low + f_low + g_low) + (u_low - v_low - w_low - s * p_low))
        for j in range(2, len(G)):
            G[1, j, z] += s * G[0, j, z]
            G[j, 0, z] -= s * G[j, 1, z]
