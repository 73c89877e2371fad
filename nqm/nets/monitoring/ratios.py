"""Noise and signal of a gradient from its parts, and their smoothed ratio with an interval.

A step adds the parts x_i = a_i G_i of microbatches: G_i is the mean gradient of b_i examples, and the a_i are known weights. With
the gradient g of the loss and the covariance C of single-example gradients,

    E sum |x_i|^2 = A2 |g|^2 + D tr C,    E |sum x_i|^2 = A1^2 |g|^2 + D tr C,    A1 = sum a_i, A2 = sum a_i^2, D = sum a_i^2 / b_i,

two equations for |g|^2 and tr C. Any other inner product gives g'Mg and tr MC. In batches that are drawn without replacement from
N examples, p = |g|^2 - c / N takes the place of |g|^2, and c = tr C N / (N - 1) that of tr C.

The estimates of one step scatter widely, and their quotient is biased. So both are smoothed with the same weights before they are
divided. The interval is Fieller's: all ratios r at which the smoothed noise - r signal is compatible with 0. It has no upper end if
the signal is not distinguishable from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...types import Array, Wrong
from ..estimates import LEVELS, Estimate

DIFFERENCE_FREEDOM = (
    2 / 3
)  # degrees of freedom for each term of a variance that is estimated from successive differences


@dataclass(frozen=True)
class GradientParts:
    """The sums over the parts of one step: ``squares`` is sum |x_i|^2, ``whole`` is |sum x_i|^2, and a1, a2, d as above."""

    squares: float
    whole: float
    a1: float
    a2: float
    d: float

    def estimates(self, examples: int | None = None) -> tuple[float, float]:
        """Unbiased estimates (tr C, |g|^2), in units in which the a_i sum to 1; ``examples`` is N, if it is finite.

        >>> GradientParts(squares=1.0, whole=1.25, a1=1.0, a2=0.5, d=0.25).estimates()
        (3.0, 0.5)
        """
        share = self.a2 / self.a1**2
        if not share < 1:
            raise Wrong("one part alone does not tell noise from signal", argument="parts")
        signal = (self.whole - self.squares) / (1 - share)
        noise = (self.whole - signal) / (self.d / self.a1**2)
        if examples is None:
            return noise, signal
        return noise * (examples - 1) / examples, signal + noise / examples


class SmoothedRatio:
    """Exponential averages of noise and signal with the same weights, and the interval of their ratio.

    The weights fall by a factor e in ``memory`` measurements. Errors of different steps are independent, so that half the squared
    difference of successive measurements estimates their variance, whatever the slow course of noise and signal.
    """

    def __init__(self, memory: float) -> None:
        self.decay = math.exp(-1 / memory)
        self.count, self.weight, self.squared, self.paired = 0, 0.0, 0.0, 0.0
        self.sums, self.spread, self.last = np.zeros(2), np.zeros((2, 2)), np.zeros(2)

    def add(self, noise: float, signal: float) -> None:
        """Take the estimates of another step."""
        new, decay = np.array([noise, signal]), self.decay
        self.sums = decay * self.sums + new
        self.weight, self.squared = decay * self.weight + 1, decay**2 * self.squared + 1
        self.spread, self.paired = decay**2 * self.spread, decay**2 * self.paired
        if self.count:
            self.spread += np.outer(new - self.last, new - self.last) / 2
            self.paired += 1
        self.count, self.last = self.count + 1, new

    @property
    def noise(self) -> float:
        """The smoothed noise."""
        return float(self.sums[0] / self.weight) if self.count else math.nan

    @property
    def signal(self) -> float:
        """The smoothed signal."""
        return float(self.sums[1] / self.weight) if self.count else math.nan

    def estimate(self) -> Estimate:
        """The ratio with its 90% interval: infinite where the signal cannot be told from 0, NaN before two measurements."""
        if self.count < 2:
            return Estimate(_ratio(self.noise, self.signal), math.nan, math.nan)
        from scipy.special import stdtrit

        terms = self.weight**2 / self.squared
        quantile = float(stdtrit(max(DIFFERENCE_FREEDOM * (terms - 1), 1.0), LEVELS[1]))
        covariance = self.spread / self.paired * self.squared / self.weight**2
        low, high = fieller(self.noise, self.signal, covariance, quantile)
        return Estimate(_ratio(self.noise, self.signal), low, high)

    def state_dict(self) -> dict[str, object]:
        """Plain numbers, from which `load_state_dict` continues."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue from a `state_dict`."""
        for name, value in vars(self).items():
            setattr(self, name, np.array(state[name]) if isinstance(value, np.ndarray) else state[name])


def fieller(noise: float, signal: float, covariance: Array, quantile: float) -> tuple[float, float]:
    """The ratios r >= 0 with (noise - r signal)^2 <= quantile^2 times its variance.

    >>> low, high = fieller(8.0, 2.0, np.diag([0.04, 0.0]), 1.0)
    >>> round(low, 3), round(high, 3)
    (3.9, 4.1)
    >>> low, high = fieller(8.0, 0.1, np.diag([0.0, 1.0]), 2.0)
    >>> round(low, 3), high
    (3.81, inf)
    """
    q2 = quantile**2
    a, b = signal**2 - q2 * covariance[1, 1], noise * signal - q2 * covariance[0, 1]
    c = noise**2 - q2 * covariance[0, 0]
    inside = b * b - a * c
    if a > 0 and signal > 0:
        root = math.sqrt(max(inside, 0.0))
        return max(float((b - root) / a), 0.0), float((b + root) / a)
    if inside < 0 or a == 0:
        return 0.0, math.inf
    return max(float((b - math.sqrt(inside)) / a), 0.0), math.inf


def _ratio(noise: float, signal: float) -> float:
    return math.inf if signal <= 0 else noise / signal
