"""Noise and signal of a gradient from its parts, and their smoothed ratio with an interval.

A step adds the parts x_i = a_i G_i of microbatches: G_i is the mean gradient of b_i examples, and the a_i are known weights. With
the gradient g of the loss and the covariance C of single-example gradients,

    E sum |x_i|^2 = A2 |g|^2 + D tr C,    E |sum x_i|^2 = A1^2 |g|^2 + D tr C,    A1 = sum a_i, A2 = sum a_i^2, D = sum a_i^2 / b_i,

two equations for |g|^2 and tr C. Any other inner product gives g'Mg and tr MC. In batches that are drawn without replacement from
N examples, p = |g|^2 - c / N takes the place of |g|^2, and c = tr C N / (N - 1) that of tr C.

The estimates of one step scatter widely, and their quotient is biased. So both are averaged over the same last steps before they are
divided. The interval is Fieller's: all ratios r at which the mean noise - r signal is compatible with 0. It has no upper end if the
signal is not distinguishable from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...types import Array, Wrong
from ..estimates import LEVELS, Estimate

DIFFERENCE_FREEDOM = (
    2 / 3
)  # degrees of freedom for each term of a variance that is estimated from successive differences
FEWEST, MOST_ROWS = 4, 256  # A window has at least 4 measurements; more than 256 rows are joined in pairs.
SCALE_DRIFT_POWER = (
    2.0  # A noise scale is taken to change at most as fast as the square of the step, or as its inverse.
)
FLUCTUATION = (
    1.2  # The noise scale of ten steps is taken to be within this factor of its course, because the weights fluctuate.
)
DRIFT_LEVEL = 0.99  # Two halves of a window differ by more than chance beyond this quantile of their difference.
FIRST, LAST, COUNT, STEP, NOISE = range(5)  # columns of the rows that are kept; the sixth is the signal


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


class RecentRatio:
    """Noise and signal over the last steps of a training, and the interval of their ratio at the present step.

    The window is the last ``share`` of the steps of the training so far, and at least four measurements. It is shortened where noise
    or signal drifts: going back from the present, the window is doubled only as long as its older half agrees with its newer half
    within chance. Errors of different steps are independent, so half the squared difference of successive measurements estimates
    their variance, whatever the slow course of noise and signal.

    A window lies behind the present step by its mean age. To cover the drift of that time, both ends of the interval are moved out
    by the factor by which step^``SCALE_DRIFT_POWER`` grows in it, times ``FLUCTUATION``. The constants were chosen on trainings of
    ``benchmarks.monitor``; docs/monitor.md has the coverage on those and on others.

    ``rows`` has the measurements that a window may need: first and last step, number, and means of step, noise and signal. When
    there are more than ``MOST_ROWS``, neighbours are joined, so that the memory does not grow with the training.
    """

    def __init__(self, share: float) -> None:
        self.share, self.joined, self.rows = share, 1, np.zeros((0, 6))

    def add(self, step: int, noise: float, signal: float) -> None:
        """Take the estimates of another step."""
        new = np.array([[step, step, 1, step, noise, signal]], dtype=float)
        if len(self.rows) and self.rows[-1, COUNT] < self.joined:
            self.rows[-1:] = _joined(self.rows[-1:], new)
        else:
            self.rows = np.vstack([self.rows, new])
        outside = int(np.searchsorted(self.rows[:, LAST], step * (1 - self.share), side="right"))
        self.rows = self.rows[max(0, min(outside, len(self.rows) - FEWEST)) :]
        if len(self.rows) > MOST_ROWS:
            even = len(self.rows) // 2 * 2
            self.rows = np.vstack([_joined(self.rows[:even:2], self.rows[1:even:2]), self.rows[even:]])
            self.joined *= 2

    def estimate(self) -> Estimate:
        """The present ratio: infinite where the signal cannot be told from 0. Its interval is NaN before two measurements."""
        if not len(self.rows):
            return Estimate(math.nan, math.nan, math.nan)
        window = self.window()
        steps = int(window[0, FIRST]), int(window[-1, LAST])
        mean = _Mean.of(window)
        noise, signal = (float(value) for value in mean.value)
        value = _ratio(noise, signal)
        if len(window) < 2:
            return Estimate(value, math.nan, math.nan, steps=steps)
        from scipy.special import stdtrit

        low, high = fieller(noise, signal, mean.covariance, float(stdtrit(mean.freedom, LEVELS[1])))
        drift = FLUCTUATION * (steps[1] / mean.step) ** SCALE_DRIFT_POWER
        return Estimate(value, low / drift, high * drift, steps=steps)

    def window(self) -> Array:
        """The rows of the last steps over which neither noise nor signal drifts."""
        size = min(FEWEST, len(self.rows))
        while size < len(self.rows):
            longer = min(2 * size, len(self.rows))
            if longer - size > 1 and _differ(self.rows[-longer:-size], self.rows[-size:]):
                break
            size = longer
        return self.rows[-size:]

    def state_dict(self) -> dict[str, object]:
        """Plain numbers, from which `load_state_dict` continues."""
        return {"rows": self.rows.tolist(), "joined": self.joined}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.rows, self.joined = np.array(state["rows"], dtype=float).reshape(-1, 6), int(state["joined"])


@dataclass(frozen=True)
class _Mean:
    """The mean noise and signal of some rows, with its covariance from successive differences, and its mean step."""

    value: Array
    covariance: Array
    freedom: float
    step: float

    @classmethod
    def of(cls, rows: Array) -> _Mean:
        count, values = rows[:, COUNT], rows[:, NOISE:]
        value, step = (count @ part / count.sum() for part in (values, rows[:, STEP]))
        terms = len(rows) - 1
        if not terms:
            return cls(value, np.full((2, 2), np.inf), 1.0, float(step))
        steps = np.diff(values, axis=0) / np.sqrt(1 / count[1:] + 1 / count[:-1])[:, None]
        covariance = steps.T @ steps / terms / count.sum()
        return cls(value, covariance, max(DIFFERENCE_FREEDOM * terms, 1.0), float(step))


def _differ(older: Array, newer: Array) -> bool:
    """Whether the noise or the signal of two parts differs by more than chance, by Welch's test."""
    from scipy.special import stdtrit

    one, other = _Mean.of(older), _Mean.of(newer)
    squares = np.array([one.covariance.diagonal(), other.covariance.diagonal()])
    variance = squares.sum(0)
    terms = (squares**2 / [[one.freedom], [other.freedom]]).sum(0)
    freedom = np.divide(variance**2, terms, out=np.ones(2), where=terms > 0)
    return bool((np.abs(one.value - other.value) > stdtrit(freedom, DRIFT_LEVEL) * np.sqrt(variance)).any())


def _joined(older: Array, newer: Array) -> Array:
    """Rows that stand for two rows each."""
    count = older[:, COUNT] + newer[:, COUNT]
    means = (older[:, COUNT, None] * older[:, STEP:] + newer[:, COUNT, None] * newer[:, STEP:]) / count[:, None]
    return np.column_stack([older[:, FIRST], newer[:, LAST], count, means])


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
