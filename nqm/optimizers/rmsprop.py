"""RMSProp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import Array
from .base import Entry, Linearised, Seen, State, Tensor
from .kinds import Number, decay, positive, stride
from .nonlinear import Strided


@dataclass(frozen=True)
class RMSProp(Strided):
    """RMSProp, as ``torch.optim.RMSprop`` does it.

    ::

        v     <- alpha v + (1 - alpha) g^2,        v_0 = 0
        b     <- momentum b + g / (sqrt(v) + eps)
        theta <- theta - lr b

    The average v starts at zero without a correction, so the first steps have a size of about lr / sqrt(1 - alpha). In its
    mean field v averages E g^2, and a step is linear.

    >>> from nqm import Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> run = pair.sample(RMSProp(0.05), batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.12625, 0.038328]

    References
    ----------
    Tieleman and Hinton (2012), Lecture 6.5: divide the gradient by a running average of its recent magnitude.
    """

    lr: Number = stride()
    alpha: Number = decay(0.99)
    eps: Number = positive(1e-8, zero=True)
    momentum: Number = decay(0.0)
    buffers = 2

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, b, v = state
        v = self.alpha * v + (1 - self.alpha) * g * g
        b = self.momentum * b + g / (v**0.5 + self.eps)
        return theta - self.lr * b, b, v

    def initial(self) -> list[float]:
        return [1.0, 0.0]  # theta, b

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        return [(self.alpha, seen.gradient_square())]

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        gain, lr, momentum = 1 / (np.sqrt(averages[0]) + self.eps), self.lr, self.momentum
        return Linearised([[-lr * gain * seen.h, -lr * momentum], [gain * seen.h, momentum - 1]], [-lr * gain, gain])

    @property
    def effective_lr(self) -> float:
        return self.lr / (1 - self.momentum)
