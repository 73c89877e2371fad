"""Normalised SGD."""

from __future__ import annotations

from dataclasses import dataclass

from .base import State, Strided, Tensor, norm
from .kinds import Number, decay, stride


@dataclass(frozen=True)
class NormalisedSGD(Strided):
    """SGD whose steps all have length lr.

    ::

        m     <- momentum m + (1 - momentum) g
        theta <- theta - lr m / |m|

    The norm is over all parameters, so the modes are coupled.

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

    @property
    def elementwise(self) -> bool:
        return False
