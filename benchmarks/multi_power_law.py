"""The Multi-Power Law (Luo et al., ICLR 2025), fitted to the same logs as a forecast.

    L(t) = L0 + A (S1(t) + SW)^-alpha + LD(t),    LD(t) = -B sum_k (lr_{k-1} - lr_k) (1 - (1 + C lr_k^-gamma S_k(t))^-beta)

S1(t) is the sum of the learning rates after the warm-up, SW that of the warm-up, and S_k(t) the sum from step k to step t. As in
the authors' code, the sum over k has the steps of the warm-up, at which the rate rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from nqm.logs import Log
from nqm.types import Array

DELTA = 1e-3  # the authors' width of Huber's loss, in the logarithm of the loss
GROUP = 60  # Steps whose falls of the rate are one fall in the fit. The finished law is evaluated with 1.
STARTS = tuple(product((0.4, 0.8), (150.0, 500.0), (0.4, 0.8)))  # of alpha, B, and of beta and gamma alike


@dataclass(frozen=True, eq=False)
class Falls:
    """The steps of a log at which its rate changes, and the sums of rates that the law asks for."""

    fall: Array  # lr_{k-1} - lr_k, summed over a group
    rate: Array  # lr_k
    since: Array  # S_k(t), a row for each reading; negative before step k
    total: Array  # S1(t) + SW

    @classmethod
    def of(cls, log: Log, group: int) -> Falls:
        rates, total = log.rates, np.cumsum(log.rates)
        k = np.flatnonzero(np.diff(rates)) + 1
        fall = rates[k - 1] - rates[k]
        starts = np.flatnonzero(np.diff(k // group, prepend=-1))
        middle = np.append(starts[1:], k.size) - 1 - np.diff(np.append(starts, k.size)) // 2
        at = k[middle]
        before = total[at] - rates[at]
        read = total[log.step - 1]
        grouped = np.add.reduceat(fall, starts) if k.size else fall
        return cls(grouped, rates[at], read[:, None] - before, read)


def loss(theta: Array, falls: Falls) -> Array:
    """The law's loss at each reading; ``theta`` has L0, A, alpha, B, C, beta and gamma."""
    L0, A, alpha, B, C, beta, gamma = theta
    since = np.maximum(falls.since, 0)
    G = 1 - (1 + C * falls.rate**-gamma * since) ** -beta
    return L0 + A * falls.total**-alpha - B * (G @ falls.fall)


def fit(logs: Sequence[Log]) -> Array:
    """The parameters with the least Huber loss of the logarithm of the loss, the best of several starts."""
    from scipy.optimize import least_squares

    readings = [(Falls.of(log, GROUP), np.log(log.loss)) for log in logs]
    least = min(float(log.loss.min()) for log in logs)

    def residuals(x: Array) -> Array:
        values = [np.log(np.maximum(loss(np.exp(x), falls), 1e-3)) - y for falls, y in readings]
        return np.concatenate(values) / DELTA

    best = None
    for alpha, B, power in STARTS:
        start = np.log([0.95 * least, 0.2 * least, alpha, B, 2.0, power, power])
        found = least_squares(residuals, start, loss="huber", x_scale=0.3, max_nfev=200)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    return np.exp(best.x)


def predicted(theta: Array, log: Log) -> Array:
    """The law's loss at each point of a log, with every single fall of its rate."""
    return loss(theta, Falls.of(log, 1))
