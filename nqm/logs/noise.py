"""The noise of single batches in logged losses: how much neighbouring points differ beside any course of the loss.

Second differences of the logarithm of the loss remove a straight line. Of independent noise with standard deviation s they have
the deviation s sqrt(6), and the median of their sizes is 0.6745 of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..types import Array

FEWEST = 8  # Fewer points do not tell noise from the course of the loss.
DEVIATIONS = 3.0  # A difference that noise alone would give is smaller than this many of its standard deviations.


def noise_of(values: Array) -> float:
    """The standard deviation of the noise of single points, by their differences from their neighbours.

    >>> t = np.arange(1000)
    >>> noise = 0.1 * np.random.default_rng(0).standard_normal(1000)
    >>> round(noise_of(3 - t / 500 + noise), 2), round(noise_of(3 - t / 500), 2), noise_of(noise[:5])
    (0.1, 0.0, 0.0)
    """
    if len(values) < FEWEST:
        return 0.0
    return float(np.median(np.abs(np.diff(values, 2)))) / 0.6745 / math.sqrt(6)


def misfit(residuals: Sequence[Array], scatter: float) -> float:
    """What is left of the root mean square of residuals beside the noise of single points; 0 if that may be all there is.

    The difference of their squares is known to about sqrt(4 / count) of the square of the scatter.
    """
    counts = [len(e) for e in residuals]
    noise = math.sqrt(float(np.mean([noise_of(e) ** 2 for e in residuals])))
    left, spread = scatter**2 - noise**2, scatter**2 * math.sqrt(4 / sum(counts))
    return math.sqrt(left) if left > DEVIATIONS * spread else 0.0
