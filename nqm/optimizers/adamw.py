"""Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Array
from .adam import preconditioner
from .base import Entry, Linearised, Seen, State, Tensor
from .kinds import Number, decay, positive, stride
from .nonlinear import Strided, adapted


@dataclass(frozen=True)
class AdamW(Strided):
    """Adam with decoupled weight decay, as ``torch.optim.AdamW`` does it.

    ::

        theta <- theta - lr weight_decay theta, then a step of Adam with the gradient at the old theta

    The minimum of the model is at zero, so weight decay moves the weights towards the answer. A tuned weight decay therefore
    looks better here than on a problem whose minimum is unknown.

    >>> from nqm import Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> run = pair.sample(AdamW(0.1, weight_decay=0.5), batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.364863, 0.253316]

    References
    ----------
    Loshchilov and Hutter (2019), Decoupled weight decay regularization.
    """

    lr: Number = stride()
    beta1: Number = decay(0.9)
    beta2: Number = decay(0.999)
    eps: Number = positive(1e-8, zero=True)
    weight_decay: Number = positive(0.01, low=-16.0, high=8.0, zero=True)
    buffers = 2

    def update(self, state: State, g: Tensor, t: int) -> State:
        theta, m, v = state
        m, v, direction = adapted(m, v, g, t, self.beta1, self.beta2, self.eps)
        return theta - self.lr * self.weight_decay * theta - self.lr * direction, m, v

    def initial(self) -> list[float]:
        return [1.0, 0.0]  # theta, m

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        return [(self.beta2, seen.gradient_square())]

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        P = self.lr * preconditioner(averages[0], t, self.beta1, self.beta2, self.eps)
        gain, shrink = 1 - self.beta1, self.lr * self.weight_decay
        return Linearised([[-shrink - P * gain * seen.h, -P * self.beta1], [gain * seen.h, -gain]], [-P * gain, gain])
