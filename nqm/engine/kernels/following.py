"""The loop of noise that follows the loss: the loss at one step scales the gradient noise of that step.

The sums over modes are expressions of whole arrays, which numba compiles to loops. Without numba the same code runs on NumPy.
`given` has the named tuples that the loop takes.
"""

from __future__ import annotations

import numpy as np

from ...types import Array
from .compiling import loop
from .given import BendPieces, ByLoss, CurvatureByLoss, Modes, State, Stretch


@loop
def bent(q: float, phi: BendPieces) -> float:
    """phi(q): a cubic between two knots, slope 1 above the last knot, and an exponential that stays positive below the first.

    Without two knots phi is the identity.
    """
    knots, cubics, m = phi.knots, phi.cubics, len(phi.knots)
    if m < 2:
        return q
    if q < knots[0]:
        return phi.least * np.exp(phi.slope / phi.least * (q - knots[0]))
    i = min(np.searchsorted(knots, q, side="right") - 1, m - 2)
    u = min(q, knots[m - 1]) - knots[i]
    inside = ((cubics[i, 0] * u + cubics[i, 1]) * u + cubics[i, 2]) * u + cubics[i, 3]
    return inside + max(q - knots[m - 1], 0.0)


@loop
def interpolated(loss: float, law: ByLoss) -> float:
    """The value of a law at a loss: logarithms are interpolated, and it is constant outside of its losses."""
    losses, values, m = law.losses, law.values, len(law.losses)
    if loss >= losses[m - 1]:
        return values[m - 1]
    if loss <= losses[0]:
        return values[0]
    i = min(np.searchsorted(losses, loss, side="right") - 1, m - 2)  # a loss that is not a number stays one
    share = np.log(loss / losses[i]) / np.log(losses[i + 1] / losses[i])
    return values[i] * (values[i + 1] / values[i]) ** share


@loop
def loudness(loss: float, noise: ByLoss) -> float:
    """Variance of the gradient noise at a loss, relative to that at the checkpoint; below the first loss it is in proportion."""
    value, first = interpolated(loss, noise), noise.losses[0]
    return value * max(loss, 0.0) / first if loss < first else value


@loop
def kept(clean: float, added: float, kappa: ByLoss, slowing: float, least_kept: float) -> float:
    """The share of its gradient that the signal keeps, at a loss ``clean`` without noise, to which noise has ``added``.

    It is ``1 - slowing gamma added / (clean + added)``, but at least ``least_kept``, with gamma = -d ln kappa / d ln L where
    curvature rises as the loss falls; 1 where it does not, and outside of the losses.
    """
    losses, values, m = kappa.losses, kappa.values, len(kappa.losses)
    if m < 2 or added <= 0.0 or clean >= losses[m - 1] or clean <= losses[0]:
        return 1.0
    i = np.searchsorted(losses, clean, side="right") - 1
    gamma = max(0.0, np.log(values[i] / values[i + 1]) / np.log(losses[i + 1] / losses[i]))
    return max(least_kept, 1.0 - slowing * gamma * added / (clean + added))


@loop
def _variance(r: Array, N: Array, weights: Array) -> float:
    """Sum over modes of weights r' N r."""
    total = np.zeros(r.shape[1])
    for a in range(len(r)):
        for e in range(len(r)):
            total += r[a] * r[e] * N[a, e]
    return np.sum(weights * total)


@loop
def _amplitude(r: Array, x: Array, weights: Array) -> float:
    """Sum over modes of weights (r . x)^2."""
    total = np.zeros(r.shape[1])
    for a in range(len(r)):
        total += r[a] * x[a]
    return np.sum(weights * total * total)


@loop
def _step_signal(G: Array, b: Array, look: Array, h: Array, share: float, x: Array, dx: Array) -> None:
    """x <- x + G x in place, with a gradient of which the signal keeps a share."""
    k = len(x)
    for a in range(k):
        dx[a] = G[a, 0] * x[0]
        for i in range(1, k):
            dx[a] += G[a, i] * x[i]
    if share < 1.0:
        seen = look[0] * x[0]
        for i in range(1, k):
            seen += look[i] * x[i]
        for a in range(k):
            dx[a] += (share - 1.0) * h * b[a] * seen
    x += dx


@loop
def _step_noise(G: Array, b: Array, variance: float, N: Array, GN: Array) -> None:
    """N <- N + G N + N G' + G N G' + variance b b' in place."""
    k = len(N)
    for a in range(k):
        for e in range(k):
            GN[a, e] = G[a, 0] * N[0, e]
            for i in range(1, k):
                GN[a, e] += G[a, i] * N[i, e]
    for a in range(k):
        for e in range(a, k):
            change = GN[a, e] + GN[e, a] + variance * b[a] * b[e]
            for i in range(k):
                change += GN[a, i] * G[e, i]
            N[a, e] += change
            if e > a:
                N[e, a] = N[a, e]


@loop
def follow(
    steps: Stretch, modes: Modes, state: State, look: Array, row: Array, phi: BendPieces, noise: ByLoss, curvature: CurvatureByLoss,
    per_example: float,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Take steps ``x <- x + G x + b eps`` in place, with eps of variance ``loud[t]`` times the `loudness` at the gradient's point.

    That point is ``look . x``, and its loss is phi of the signal, plus the noise times ``per_example``. For the noise a mode has
    the curvature ``kappa own``, with kappa at that loss, but not above ``most[t]``, in place of the h of G: a gradient enters by b,
    so another curvature adds ``extra b look`` to G. The gradient of the signal is multiplied by `kept`. Returns the quadratic's
    signal and noise of the read-out ``row`` after each step, without the offset; and, before the first step and after each, the loss
    without noise and what noise adds to it at the point at which the next step takes its gradient.
    """
    G0, G1, b0, b1, pace, loud = steps
    h, ws, wn, offset = modes
    kappa, own, most, slowing, least_kept, pull = curvature
    x, N, extra = state
    k, count, changing = len(x), len(pace), len(kappa.losses) > 1
    signals, noises, now = np.empty(count), np.empty(count), wn * (1 + extra / h)
    cleans, addeds = np.empty(count + 1), np.empty(count + 1)
    G, b, dx, GN = G0.copy(), b0.copy(), np.empty_like(x), np.empty_like(N)
    for t in range(count + 1):
        clean = bent(offset + _amplitude(look, x, ws), phi)
        added = per_example * _variance(look, N, now)
        cleans[t], addeds[t], loss = clean, added, clean + added
        if t == count:
            break
        if pace[t] != 0.0:
            G[:], b[:] = G0 + pace[t] * G1, b0 + pace[t] * b1
        else:
            G[:], b[:] = G0, b0
        share = kept(clean, added, kappa, slowing, least_kept)
        _step_signal(G, b, look, h, share, x, dx)
        if changing:
            extra += pull * (np.minimum(interpolated(loss, kappa) * own, np.maximum(most[t], h)) - h - extra)
            now[:] = wn * (1 + extra / h)
            for a in range(k):
                for e in range(k):
                    G[a, e] += extra * b[a] * look[e]
        _step_noise(G, b, loud[t] * loudness(loss, noise), N, GN)
        signals[t], noises[t] = _amplitude(row, x, ws), _variance(row, N, now)
    return signals, noises, cleans, addeds
