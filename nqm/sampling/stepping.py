"""The stepping loop of the package: an optimizer's own update rule under a schedule, on arrays of any library.

Sampled replicas step NumPy arrays, trainings of a network step torch tensors. They differ in where gradients come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer, State

Weights = TypeVar("Weights")


class Stepper:
    """An optimizer on its way: its settings, what it remembers (`state`), and the steps done (`t`).

    Parameters
    ----------
    optimizer : with every hyper-parameter set.
    state : what ``optimizer.begin`` returned for the weights at step 0.
    batch_size : that of a multiplier of 1.
    schedule : multipliers on learning rate, momentum and batch size, by step.

    >>> import numpy as np
    >>> from nqm import SGD, step
    >>> stepper = Stepper(SGD(0.5), (np.ones(1),), schedule=step(4, 0.5, at=[2]))
    >>> stepper.to(3, lambda w, batch_size: w)              # 1 - lr is 0.5, 0.5 and 0.75
    >>> stepper.t, stepper.weights().tolist()
    (3, [0.1875])
    """

    def __init__(
        self, optimizer: Optimizer, state: State, batch_size: float = math.inf, schedule: Schedule | None = None
    ) -> None:
        self.schedule, self.usual_batch_size, self.t = schedule, batch_size, 0
        self.switch(optimizer, state)

    def switch(self, optimizer: Optimizer, state: State) -> None:
        """Go on from step t with another optimizer, such as some of its settings, and what it remembers."""
        self.optimizer, self.state = optimizer, state
        self.held, self.batch_size, self._until = optimizer, self.usual_batch_size, float(self.t)

    def to(self, end: int, gradient: Callable[[Weights, float], Weights]) -> None:
        """Step until ``end`` steps are done; ``gradient(weights, batch_size)`` is taken on a fresh batch at each step."""
        for t in range(self.t, end):
            if t >= self._until:
                self._follow(t)
            g = gradient(self.held.point(self.state, t), self.batch_size)
            self.state = self.held.update(self.state, g, t)
            self.t = t + 1

    def weights(self) -> Any:
        """The weights that are reported after t steps."""
        return self.optimizer.report(self.state, self.t)

    def _follow(self, t: int) -> None:
        """Take the settings of step t from the schedule, and until which step they hold."""
        self._until = math.inf
        if self.schedule is not None:
            lr, momentum, factor = self.schedule.at(t)
            self.held, self.batch_size = self.optimizer.scaled(lr, momentum), self.usual_batch_size * factor
            self._until = self.schedule.same_until(t)
