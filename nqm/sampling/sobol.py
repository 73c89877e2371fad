"""Quasi-random points: Sobol sequences, for searches that begin with points all over a box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..types import Array


def sobol(dimension: int, seed: Sequence[int] | None = None) -> Iterator[Array]:
    """The points of a Sobol sequence in the unit cube, one after another; they are drawn in blocks of powers of two.

    With a seed the sequence is scrambled (Matousek's linear scrambling and a shift). Without a seed it begins at the origin,
    and the first 2^k points are the lower corners of 2^k cells of equal size.

    >>> from itertools import islice
    >>> [point.tolist() for point in islice(sobol(2), 4)]
    [[0.0, 0.0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]
    """
    from scipy.stats import qmc

    make: Any = qmc.Sobol  # SciPy renamed the argument seed to rng and accepts both names.
    sampler = make(dimension, scramble=seed is not None, seed=None if seed is None else np.random.default_rng(seed))
    for block in (6, *range(6, 24)):
        yield from sampler.random(2**block)
