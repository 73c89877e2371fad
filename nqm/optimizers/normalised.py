"""Normalised SGD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import Array
from .base import Linearised, Seen, State, Tensor
from .kinds import Number, decay, stride
from .nonlinear import Strided, norm


@dataclass(frozen=True)
class NormalisedSGD(Strided):
    """SGD whose steps all have length lr.

    ::

        m     <- momentum m + (1 - momentum) g
        theta <- theta - lr m / |m|

    The norm is over all parameters, so the modes are coupled. In the mean field abs(m)^2 is its mean, which it is close to if
    many modes contribute to it.

    >>> from nqm import Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> run = pair.sample(NormalisedSGD(0.1), batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.409995, 0.324988]

    References
    ----------
    Cutkosky and Mehta (2020), Momentum improves normalized SGD.
    """

    lr: Number = stride(high=10.0)
    momentum: Number = decay(0.0)
    buffers = 1

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, m = state
        m = self.momentum * m + (1 - self.momentum) * g
        length = norm(m)
        return theta - self.lr * m / (length + (length == 0)), m

    def initial(self) -> list[float]:
        return [1.0, 0.0]  # theta, m

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        momentum, new = self.momentum, 1 - self.momentum
        length = np.sqrt(seen.total(seen.square([new * seen.h, momentum], new)))
        P = self.lr / (length + (length == 0))
        return Linearised([[-P * new * seen.h, -P * momentum], [new * seen.h, -new]], [-P * new, new])

    @property
    def elementwise(self) -> bool:
        return False
