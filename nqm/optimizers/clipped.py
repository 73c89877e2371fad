"""Gradient clipping."""

from __future__ import annotations

from dataclasses import dataclass

from .base import SampledWrapper, State, Tensor, norm
from .kinds import Number, positive


@dataclass(frozen=True)
class Clipped(SampledWrapper):
    """Scale every gradient down to at most a given norm before another optimizer sees it.

    ::

        g <- g min(1, norm / |g|)

    The norm is over all parameters, so the modes are coupled. PyTorch's ``clip_grad_norm_`` divides by |g| + 1e-6 instead.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> run = pair.sample(Clipped(SGD(0.5), 0.1), batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.456247, 0.409994]

    References
    ----------
    Pascanu, Mikolov and Bengio (2013), On the difficulty of training recurrent neural networks.
    """

    norm: Number = positive(low=-16.0, high=12.0)

    def update(self, state: State, g: Tensor, t: int) -> State:
        size = norm(g)
        kept = self.norm / (size + (self.norm - size) * (size < self.norm))
        return (self.inner.update(state[0], g * kept, t),)

    @property
    def elementwise(self) -> bool:
        return False
