"""Polyak's tail average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .base import Averaging, Entry, State, System, Tensor, follow, with_values
from .kinds import Number, beginning


@dataclass(frozen=True)
class Polyak(Averaging):
    """Uniform average of another optimizer's weights after step ``start``; the loss reported is the average's.

    ::

        average_t = (theta_{start+1} + ... + theta_t) / (t - start)        for t > start, theta_t before

    A whole start is a step. A fraction f below 1 averages the last 1 - f of the run: ``start = floor(f t)`` after t steps.
    The average is kept as a sum, so that its steps are identical and have powers.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> Quadratic(Spectrum([1.0])).run(Polyak(SGD(0.5), 1), batch_size=10, steps=[0, 1, 2, 3]).loss.round(6).tolist()
    [0.5, 0.1375, 0.046875, 0.029492]

    References
    ----------
    Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging; Rakhlin et al. (2012).
    """

    start: Number = beginning()
    sums: ClassVar[bool] = True

    @property
    def first(self) -> int:
        return int(self.start)  # `at_horizon` has turned a fraction into a step.

    def joined(self, G: Sequence[Sequence[Entry]], b: Sequence[Entry], t: int) -> System:
        row, noise = follow(G, b, self.inner.readout(t + 1))
        if t < self.first:
            row, noise = [0.0] * len(row), 0.0
        return [*([*g, 0.0] for g in G), [*row, 0.0]], [*b, noise]

    def readout(self, t: int) -> list[Entry]:
        if t <= self.first:
            return [*self.inner.readout(t), 0.0]
        return [*(0.0 for _ in self.inner.initial()), 1.0 / (t - self.first)]

    def update(self, state: State, g: Tensor, t: int) -> State:
        inner, total = state
        inner = self.inner.update(inner, g, t)
        return inner, total if t < self.first else total + self.inner.report(inner, t + 1)

    def report(self, state: State, t: int) -> Tensor:
        return self.inner.report(state[0], t) if t <= self.first else state[1] / (t - self.first)

    def same_until(self, t: int) -> float:
        ends = min(self.inner.same_until(t), self.first if t < self.first else math.inf)
        return ends if self.inner.steady else t + 1

    @property
    def repeats_from(self) -> int:
        return max(self.inner.repeats_from, self.first)

    def at_horizon(self, t: int) -> Polyak:
        first = math.floor(self.start * t) if self._fraction else int(self.start)
        return with_values(self, inner=self.inner.at_horizon(t), start=first)

    @property
    def depends_on_horizon(self) -> bool:
        return self._fraction or self.inner.depends_on_horizon

    @property
    def _fraction(self) -> bool:
        return 0 < self.start < 1
