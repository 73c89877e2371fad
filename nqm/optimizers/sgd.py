"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Array
from .base import Optimizer, State, System, Tensor
from .kinds import Number, rate


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent.

    ::

        theta <- theta - lr (h theta + eps)

    Stable for lr h < 2; steady-state risk ``lr c / (2 B (2 - lr h))`` on each mode.

    >>> from nqm import Quadratic, Spectrum
    >>> Quadratic(Spectrum([1.0])).run(SGD(0.5), batch_size=10, steps=[0, 1, 2]).loss.tolist()
    [0.5, 0.1375, 0.046875]

    References
    ----------
    Robbins and Monro (1951), A stochastic approximation method.
    """

    lr: Number = rate()

    def system(self, h: Array, t: int) -> System:
        return [[-self.lr * h]], [-self.lr]

    def initial(self) -> list[float]:
        return [1.0]

    def readout(self, t: int) -> list[float]:
        return [1.0]

    def update(self, state: State, g: Tensor, t: int) -> State:
        (theta,) = state
        return (theta - self.lr * g,)
