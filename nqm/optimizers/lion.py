"""Lion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.mean_field import sign_of
from ..types import Array
from .base import Linearised, Seen, State, Tensor
from .kinds import Number, decay, positive, stride
from .nonlinear import Strided


@dataclass(frozen=True)
class Lion(Strided):
    """Lion: sign descent of an average that counts the newest gradient more, with decoupled weight decay.

    ::

        u     <- beta1 m + (1 - beta1) g
        theta <- theta - lr (sign(u) + weight_decay theta)
        m     <- beta2 m + (1 - beta2) g

    In its mean field u is a normal number, whose sign is ``gain u + shift + own xi`` (`sign_of`).

    >>> from nqm import Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> run = pair.sample(Lion(0.1), batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.40905, 0.3232]

    References
    ----------
    Chen et al. (2023), Symbolic discovery of optimization algorithms.
    """

    lr: Number = stride()
    beta1: Number = decay(0.9)
    beta2: Number = decay(0.99)
    weight_decay: Number = positive(0.0, low=-16.0, high=8.0, zero=True)
    buffers = 1

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, m = state
        u = self.beta1 * m + (1 - self.beta1) * g
        sign = (u > 0) * 1.0 - (u < 0) * 1.0
        return theta - self.lr * (sign + self.weight_decay * theta), self.beta2 * m + (1 - self.beta2) * g

    @property
    def assumes_normal(self) -> bool:
        return True

    def initial(self) -> list[float]:
        return [1.0, 0.0]  # theta, m

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        lr, h, new, keep = self.lr, seen.h, 1 - self.beta1, 1 - self.beta2
        gain, shift, own = sign_of(*seen.of([new * h, self.beta1], new))
        G = [[-lr * (gain * new * h + self.weight_decay), -lr * gain * self.beta1], [keep * h, -keep]]
        return Linearised(G, [-lr * gain * new, keep], [-lr * shift, 0.0], [lr * own, 0.0])
