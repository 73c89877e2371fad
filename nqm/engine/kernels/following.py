"""The loop of noise that follows the loss: the loss at one step scales the gradient noise of that step.

The sums over modes are expressions of whole arrays, which numba compiles to loops. Without numba the same code runs on NumPy.
"""

from __future__ import annotations

import numpy as np

from ...types import Array
from .compiling import loop


@loop
def bent(q: float, knots: Array, cubics: Array, slope: float, least: float) -> float:
    """phi(q): a cubic between two knots, slope 1 above the last knot, and an exponential that stays positive below the first.

    Row i of ``cubics`` has the coefficients of (q - knots[i])^3, ^2, ^1 and ^0. ``slope`` and ``least`` are the slope and the
    value of phi at the first knot. Without two knots phi is the identity.
    """
    m = len(knots)
    if m < 2:
        return q
    if q < knots[0]:
        return least * np.exp(slope / least * (q - knots[0]))
    i = min(np.searchsorted(knots, q, side="right") - 1, m - 2)
    u = min(q, knots[m - 1]) - knots[i]
    inside = ((cubics[i, 0] * u + cubics[i, 1]) * u + cubics[i, 2]) * u + cubics[i, 3]
    return inside + max(q - knots[m - 1], 0.0)


@loop
def loudness(loss: float, losses: Array, values: Array) -> float:
    """Variance of the gradient noise at a loss, relative to that at the checkpoint, whose loss is the last of ``losses``.

    Logarithms are interpolated between the given ``values``. Above the last loss the variance is constant, and below the first
    it is in proportion to the loss.
    """
    m = len(losses)
    if loss >= losses[m - 1]:
        return values[m - 1]
    if loss <= losses[0]:
        return values[0] * max(loss, 0.0) / losses[0]
    i = np.searchsorted(losses, loss, side="right") - 1
    share = np.log(loss / losses[i]) / np.log(losses[i + 1] / losses[i])
    return values[i] * (values[i + 1] / values[i]) ** share


@loop
def sharpening(loss: float, losses: Array, values: Array) -> float:
    """The largest curvature at a loss, over that at the checkpoint: logarithms are interpolated, and it is constant outside."""
    m = len(losses)
    if loss >= losses[m - 1]:
        return values[m - 1]
    if loss <= losses[0]:
        return values[0]
    i = np.searchsorted(losses, loss, side="right") - 1
    share = np.log(loss / losses[i]) / np.log(losses[i + 1] / losses[i])
    return values[i] * (values[i + 1] / values[i]) ** share


@loop
def kept(clean: float, added: float, losses: Array, values: Array, slowing: float, slowest: float) -> float:
    """The share of its gradient that the signal keeps, at a loss ``clean`` without noise, to which noise has ``added``.

    It is ``1 - slowing gamma added / (clean + added)``, but at least ``slowest``, with gamma = -d ln kappa / d ln L of the
    `sharpening` where curvature rises as the loss falls; 1 where it does not, and outside of the losses.
    """
    m = len(losses)
    if m < 2 or added <= 0.0 or clean >= losses[m - 1] or clean <= losses[0]:
        return 1.0
    i = np.searchsorted(losses, clean, side="right") - 1
    gamma = max(0.0, np.log(values[i] / values[i + 1]) / np.log(losses[i + 1] / losses[i]))
    return max(slowest, 1.0 - slowing * gamma * added / (clean + added))


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
def follow(
    G0: Array, G1: Array, b0: Array, b1: Array, pace: Array, loud: Array, x: Array, N: Array, look: Array, row: Array,
    ws: Array, wn: Array, per_example: float, offset: float, knots: Array, cubics: Array, slope: float, least: float,
    losses: Array, values: Array, h: Array, own: Array, extra: Array, most: Array, sharp_losses: Array, sharp_values: Array,
    slowing: float, slowest: float, pull: float,
) -> tuple[Array, Array]:  # fmt: skip
    """Take steps ``x <- x + G x + b eps`` in place, with eps of variance ``loud[t]`` times the `loudness` at the gradient's point.

    G and b of step t are G0 + pace[t] G1 and b0 + pace[t] b1. x is (slots, modes), and N the covariance that noise has added.
    The loss at that point is phi of the signal, plus the noise. For the noise a mode has the curvature ``kappa own``, with kappa
    the `sharpening` at that loss, but not above ``most[t]``, in place of the h of G: a gradient enters by b, so another curvature
    adds ``extra b look`` to G. extra, kept in place too, goes a share ``pull`` of the way to curvature - h in each step. The gradient
    of the signal is multiplied by `kept`. Returns the quadratic's signal and noise of the read-out ``row`` after each step, as sums
    over modes with weights ws and wn.
    """
    k, steps = len(x), len(pace)
    signal, noise = np.empty(steps), np.empty(steps)
    G, b, dx, GN = G0.copy(), b0.copy(), np.empty_like(x), np.empty_like(N)
    now, changing = wn * (1 + extra / h), len(sharp_losses) > 1
    for t in range(steps):
        clean = bent(offset + _amplitude(look, x, ws), knots, cubics, slope, least)
        added = per_example * _variance(look, N, now)
        loss = clean + added
        variance = loud[t] * loudness(loss, losses, values)
        if pace[t] != 0.0:
            G[:], b[:] = G0 + pace[t] * G1, b0 + pace[t] * b1
        else:
            G[:], b[:] = G0, b0
        for a in range(k):
            dx[a] = G[a, 0] * x[0]
            for i in range(1, k):
                dx[a] += G[a, i] * x[i]
        if changing:
            share = kept(clean, added, sharp_losses, sharp_values, slowing, slowest)
            if share < 1.0:
                seen = look[0] * x[0]
                for i in range(1, k):
                    seen += look[i] * x[i]
                for a in range(k):
                    dx[a] += (share - 1.0) * h * b[a] * seen
        x += dx
        if changing:
            extra += pull * (
                np.minimum(sharpening(loss, sharp_losses, sharp_values) * own, np.maximum(most[t], h)) - h - extra
            )
            now[:] = wn * (1 + extra / h)
            for a in range(k):
                for e in range(k):
                    G[a, e] += extra * b[a] * look[e]
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
        signal[t], noise[t] = _amplitude(row, x, ws), _variance(row, N, now)
    return signal, noise
