"""Sign descent."""

from __future__ import annotations

from dataclasses import dataclass

from .base import State, Strided, Tensor
from .kinds import Number, decay, stride


@dataclass(frozen=True)
class Sign(Strided):
    """Sign descent (signSGD), of the gradient or of its average (Signum).

    ::

        m     <- momentum m + (1 - momentum) g
        theta <- theta - lr sign(m)

    >>> from nqm import Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> run = pair.sample(Sign(0.1), batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.40905, 0.3232]

    References
    ----------
    Bernstein et al. (2018), signSGD: compressed optimisation for non-convex problems.
    """

    lr: Number = stride()
    momentum: Number = decay(0.0)
    buffers = 1

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, m = state
        m = self.momentum * m + (1 - self.momentum) * g
        return theta - self.lr * ((m > 0) * 1.0 - (m < 0) * 1.0), m
