"""Importing this module compiles or loads the inner loops and prepares the paper's problem.

A fork server imports it once, before it forks the first worker, so that every worker has the loops from the start.
"""

from __future__ import annotations

from ..optimizers import EMA, SGD, HeavyBall, Lookahead
from ..search import optimal_schedule, steps_to_target
from ..search.sweeps import sweep
from .api import curve as _curve  # noqa: F401 - this loads everything that an endpoint needs
from .bodies import BODIES


def warm() -> None:
    """Make one small call of everything that uses a compiled loop."""
    problem = BODIES["spectrum"].read({})["problem"].problem
    nodes = problem.nodes.fine
    for optimizer in (SGD(0.1), HeavyBall(0.1, 0.9), EMA(HeavyBall(0.1, 0.9), 0.9), Lookahead(SGD(0.1), 0.5, 5)):
        nodes.run(optimizer, 64, 100, points=4)
        steps_to_target(nodes, optimizer, 1024, 1.0)
    sweep(problem, HeavyBall(), [2**12], target=1.0)
    sweep(problem, SGD(), [2**12], target=1.0)
    optimal_schedule(problem, SGD(), 1024, steps=20, pieces=2)


warm()
