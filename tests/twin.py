"""Second moments of sampled replicas, to be held against the exact ones."""

from __future__ import annotations

import numpy as np

from nqm.sampling.means import Mean
from nqm.sampling.replicas import Plan, Tick
from nqm.sampling.sources import Streams
from nqm.types import Array


def second_moments(plan: Plan) -> tuple[Array, Array]:
    """Mean over replicas of the square of each reported weight, and its standard error; (times, modes)."""
    found = Mean()

    def work(streams: Streams, tick: Tick) -> Array:
        squares = np.empty((len(plan.times), plan.source.modes, streams.replicas))
        for i, walk in plan.walk(streams, tick):
            squares[i] = (walk.weights() ** 2).T
        return squares

    for squares in plan.each(work):
        found.add(squares)
    return found.mean, found.stderr
