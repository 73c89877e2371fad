"""The stepping loop of the package: the update rule of an optimizer under a schedule, on arrays of any library.

Sampled replicas step NumPy arrays, and trainings of a network step torch tensors. They differ in where gradients come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer, State
from ..types import Array, Wrong
from .sources import GradientSource, Streams

TICK_STEPS = 32  # steps between two calls of the tick of a walk, which counts steps and stops after Ctrl-C

MEAN_STEPS = 8  # most steps at which `Walk.mean_to` reads the loss

Weights = TypeVar("Weights")


class Stepper:
    """An optimizer during a run: its settings, its `state`, and the number `t` of steps that are done.

    Parameters
    ----------
    optimizer : the optimizer, with every hyper-parameter set.
    state : what ``optimizer.begin`` returned for the weights at step 0.
    batch_size : the batch size, which the schedule may multiply.
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
        self._checked = False
        self.switch(optimizer, state)

    def switch(self, optimizer: Optimizer, state: State) -> None:
        """Continue from step t with another optimizer and its state, such as some of the settings."""
        self.optimizer, self.state = optimizer, state
        self.held, self.batch_size, self._until = optimizer, self.usual_batch_size, float(self.t)

    def to(self, end: int, gradient: Callable[[Weights, float], Weights]) -> None:
        """Step until ``end`` steps are done; each step calls ``gradient(weights, batch_size)`` for a gradient on a fresh batch."""
        for t in range(self.t, end):
            if t >= self._until:
                self._follow(t)
            g = gradient(self.held.point(self.state, t), self.batch_size)
            state = self.held.update(self.state, g, t)
            if not self._checked:
                require_state(self.held, self.state, state, t)
                self._checked = True
            self.state, self.t = state, t + 1

    def weights(self) -> Any:
        """The weights that are reported after t steps."""
        return self.optimizer.report(self.state, self.t)

    def _follow(self, t: int) -> None:
        """Take the settings of step t from the schedule, and the step until which they hold."""
        self._until = math.inf
        if self.schedule is not None:
            lr, momentum, factor = self.schedule.at(t)
            self.held, self.batch_size = self.optimizer.scaled(lr, momentum), self.usual_batch_size * factor
            self._until = self.schedule.same_until(t)


def require_state(optimizer: Optimizer, before: State, after: Any, t: int) -> None:
    """Refuse what the update rule of step t returned, unless it is a state like the one before."""
    must = f"{type(optimizer).__name__}: update(state, g, t) must return"
    if not isinstance(after, (tuple, list)) or len(after) != len(before):
        got = f"{type(after).__name__} of {len(after)}" if isinstance(after, (tuple, list)) else type(after).__name__
        raise Wrong(f"{must} a tuple of {len(before)}, as its argument state is, got {got}", "optimizer")
    was, now = (tuple(getattr(optimizer.point(s, t), "shape", ())) for s in (before, tuple(after)))
    if was != now:
        raise Wrong(f"{must} weights of the shape that they have in state, {was}, got {now}", "optimizer")


class Walk:
    """A run of an optimizer on a source of gradients; all of its settings see the same random numbers.

    With ``settings``, hyper-parameters may be arrays of shape (settings, 1, 1), and the first axis of weights is the setting.
    """

    def __init__(
        self, source: GradientSource, optimizer: Optimizer, batch_size: float, streams: Streams,
        schedule: Schedule | None = None, settings: int | None = None,
    ) -> None:  # fmt: skip
        self.source, self.streams = source, streams
        geometry = source.geometry.knowing(lambda w: source.gradient(w, streams, 1.0))
        theta = source.begin(streams)
        state = optimizer.begin(theta if settings is None else np.repeat(theta[None], settings, 0), geometry)
        self.stepper = Stepper(optimizer, state, batch_size, schedule)

    @property
    def t(self) -> int:
        """The number of steps that are done."""
        return self.stepper.t

    def to(self, end: int, tick: Callable[[int], None] = lambda steps: None) -> None:
        """Step until ``end`` steps are done; ``tick`` is called after every `TICK_STEPS` of them."""
        while self.t < end:
            self.stepper.to(min(end, self.t - self.t % TICK_STEPS + TICK_STEPS), self._gradient)
            if self.t % TICK_STEPS == 0:
                tick(TICK_STEPS)

    def _gradient(self, w: Array, batch_size: float) -> Array:
        return self.source.gradient(w, self.streams, batch_size)

    def weights(self) -> Array:
        """The weights reported now, in the eigenbasis."""
        return self.source.geometry.back(self.stepper.weights())

    def losses(self) -> Array:
        """The loss of each replica now."""
        return self.source.losses(self.weights())

    def mean_to(self, end: int) -> Array:
        """Step until ``end`` steps are done; return the mean loss of each replica over `MEAN_STEPS` of these steps at most."""
        times = np.unique(np.linspace(end, self.t, min(MEAN_STEPS, end - self.t), endpoint=False).astype(int))
        total = np.zeros(())
        for t in times:
            self.to(int(t))
            total = total + self.losses()
        return total / len(times)
