"""Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import Array
from .base import Entry, Linearised, Seen, State, Tensor
from .kinds import Number, decay, positive, stride
from .nonlinear import Strided, adapted


@dataclass(frozen=True)
class Adam(Strided):
    """Adam, as ``torch.optim.Adam`` does it.

    ::

        m     <- beta1 m + (1 - beta1) g
        v     <- beta2 v + (1 - beta2) g^2
        theta <- theta - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps),        t = 1, 2, ...

    Adam is not linear. In its mean field v follows its own mean, with which a step is linear::

        v <- beta2 v + (1 - beta2) E g^2,        P = lr / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    The learning rate is in units of the weights: a step moves each weight by about lr at most, whatever the curvature. So
    searches do not measure the learning rate relative to 2 / h.

    >>> from nqm import Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> run = pair.sample(Adam(0.1), batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.40905, 0.323533]

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization.
    """

    lr: Number = stride()
    beta1: Number = decay(0.9)
    beta2: Number = decay(0.999)
    eps: Number = positive(1e-8, zero=True)
    buffers = 2

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, m, v = state
        m, v, direction = adapted(m, v, g, t, self.beta1, self.beta2, self.eps)
        return theta - self.lr * direction, m, v

    def initial(self) -> list[float]:
        return [1.0, 0.0]  # theta, m

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        return [(self.beta2, seen.gradient_square())]

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        P = self.lr * preconditioner(averages[0], t, self.beta1, self.beta2, self.eps)
        gain = 1 - self.beta1
        return Linearised([[-P * gain * seen.h, -P * self.beta1], [gain * seen.h, -gain]], [-P * gain, gain])


def preconditioner(v: Array, t: float, beta1: float, beta2: float, eps: float) -> Array:
    """By what Adam multiplies its average gradient in step t (counted from 0), with both corrections of bias."""
    return 1 / (1 - beta1 ** (t + 1)) / (np.sqrt(v / (1 - beta2 ** (t + 1))) + eps)
