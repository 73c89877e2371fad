"""Adam."""

from __future__ import annotations

from dataclasses import dataclass

from .base import State, Strided, Tensor, adapted
from .kinds import Number, decay, positive, stride


@dataclass(frozen=True)
class Adam(Strided):
    """Adam, as ``torch.optim.Adam`` does it.

    ::

        m     <- beta1 m + (1 - beta1) g
        v     <- beta2 v + (1 - beta2) g^2
        theta <- theta - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps),        t = 1, 2, ...

    Adam is not linear, so it is sampled. Its learning rate is in units of the weights: a step moves each weight by about lr
    at most, whatever the curvature. So searches do not measure the learning rate relative to 2 / h.

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
