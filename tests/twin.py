"""Second moments of sampled replicas, to be held against the exact ones."""

from __future__ import annotations

from nqm.sampling.means import Mean
from nqm.sampling.replicas import Plan
from nqm.types import Array


def second_moments(plan: Plan) -> tuple[Array, Array]:
    """Mean over replicas of the square of each reported weight, and its standard error; (times, modes)."""
    found = Mean()
    for squares in plan.each(lambda walk: (walk.weights() ** 2).T):
        found.add(squares)
    return found.mean, found.stderr
