"""Nesterov momentum."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Array
from .base import Entry, Optimizer, State, System, Tensor
from .kinds import Number, decay, rate


@dataclass(frozen=True)
class Nesterov(Optimizer):
    """SGD with Nesterov momentum; v is the last change of theta.

    ::

        y     <- theta + momentum v
        v     <- momentum v - lr (h y + eps)
        theta <- theta + v

    Stable for lr h < 2 (1 + momentum) / (1 + 2 momentum). The loss reported is theta's; the weights that
    ``torch.optim.SGD(nesterov=True)`` stores are y.

    >>> from nqm import Quadratic, Spectrum
    >>> Quadratic(Spectrum([1.0])).run(Nesterov(0.1, 0.9), batch_size=10, steps=[0, 1, 2]).loss.round(6).tolist()
    [0.5, 0.4055, 0.267683]

    References
    ----------
    Nesterov (1983), A method for solving the convex programming problem with convergence rate O(1/k^2).
    """

    lr: Number = rate()
    momentum: Number = decay()
    buffers = 1

    def system(self, h: Array, t: int) -> System:
        lr, momentum = self.lr, self.momentum
        by_v = momentum * (lr * h)
        # The sum begins with momentum - 1, so that 1 - momentum keeps its last digit.
        return [[-lr * h, momentum - by_v], [-lr * h, (momentum - 1) - by_v]], [-lr, -lr]

    def initial(self) -> list[float]:
        return [1.0, 0.0]

    def readout(self, t: int) -> list[float]:
        return [1.0, 0.0]

    def gradient_point(self, t: int) -> list[Entry]:
        return [1.0, self.momentum]

    def point(self, state: State, t: int) -> Tensor:
        theta, v = state
        return theta + self.momentum * v

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, v = state
        v = self.momentum * v - self.lr * g
        return theta + v, v

    @property
    def effective_lr(self) -> float:
        return self.lr / (1 - self.momentum)

    def edge(self, h: Array) -> Array:
        return 2 * (1 + self.momentum) / (1 + 2 * self.momentum) / h
