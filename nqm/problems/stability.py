"""Where stability ends: the largest learning rate that is stable, by doubling and bisection."""

from __future__ import annotations

import math
from collections.abc import Callable

LIMIT_TOLERANCE = 1e-12  # relative accuracy to which a stability limit is bisected


def bisect(stable: Callable[[float], bool], low: float, high: float, tol: float) -> tuple[float, float]:
    """Shrink an interval, stable at ``low`` and not at ``high``, around the end of stability, to a relative length ``tol``."""
    while high - low > tol * high:
        middle = (low + high) / 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low, high


def largest_stable(stable: Callable[[float], bool], edge: float, careful: float = math.inf) -> tuple[float, float]:
    """The interval of relative length `LIMIT_TOLERANCE` in which the lowest range of stable learning rates ends.

    The search begins at a thousandth of ``edge`` and doubles the rate. Rates above ``careful`` are raised by 2% at a time:
    a cycle can resonate near its edge, and be stable again above.
    """
    low, high = 0.0, 1e-3 * edge
    while not stable(high) and high > 1e-300:
        high /= 4
    while stable(high) and high < 1e300:
        low, high = high, high * (1.02 if high > careful else 2.0)
    return bisect(stable, low, high, LIMIT_TOLERANCE)
