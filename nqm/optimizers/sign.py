"""Sign descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.mean_field import sign_of
from ..types import Array
from .base import Linearised, Seen, State, Tensor
from .kinds import Number, decay, stride
from .nonlinear import Strided


@dataclass(frozen=True)
class Sign(Strided):
    """Sign descent (signSGD), of the gradient or of its average (Signum).

    ::

        m     <- momentum m + (1 - momentum) g
        theta <- theta - lr sign(m)

    In its mean field m is a normal number, whose sign is ``gain m + shift + own xi`` (`sign_of`).

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

    @property
    def assumes_normal(self) -> bool:
        return True

    def initial(self) -> list[float]:
        return [1.0, 0.0]  # theta, m

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        lr, momentum, new = self.lr, self.momentum, 1 - self.momentum
        gain, shift, own = sign_of(*seen.of([new * seen.h, momentum], new))
        G = [[-lr * gain * new * seen.h, -lr * gain * momentum], [new * seen.h, -new]]
        return Linearised(G, [-lr * gain * new, new], [-lr * shift, 0.0], [lr * own, 0.0])
