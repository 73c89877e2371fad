"""Heavy-ball momentum."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Array
from .base import Optimizer, State, System, Tensor
from .kinds import Number, decay, rate


@dataclass(frozen=True)
class HeavyBall(Optimizer):
    """SGD with heavy-ball momentum, as ``torch.optim.SGD(momentum=...)`` does it.

    ::

        m     <- momentum m + (h theta + eps)
        theta <- theta - lr m

    Stable for lr h < 2 (1 + momentum); effective learning rate lr / (1 - momentum).

    >>> from nqm import Quadratic, Spectrum
    >>> Quadratic(Spectrum([1.0])).run(HeavyBall(0.1, 0.9), batch_size=10, steps=[0, 1, 2]).loss.round(6).tolist()
    [0.5, 0.4055, 0.26132]

    References
    ----------
    Polyak (1964), Some methods of speeding up the convergence of iteration methods.
    """

    lr: Number = rate()
    momentum: Number = decay()
    buffers = 1

    def system(self, h: Array, t: int) -> System:
        lr, momentum = self.lr, self.momentum
        return [[-lr * h, -lr * momentum], [h, momentum - 1]], [-lr, 1.0]

    def initial(self) -> list[float]:
        return [1.0, 0.0]

    def readout(self, t: int) -> list[float]:
        return [1.0, 0.0]

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, m = state
        m = self.momentum * m + g
        return theta - self.lr * m, m

    @property
    def effective_lr(self) -> float:
        return self.lr / (1 - self.momentum)

    def edge(self, h: Array) -> Array:
        return 2 * (1 + self.momentum) / h
