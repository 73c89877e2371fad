"""Gradient clipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import Array
from .base import Entry, Linearised, Seen, State, Tensor
from .kinds import Number, positive
from .nonlinear import NonlinearWrapper, norm


@dataclass(frozen=True)
class Clipped(NonlinearWrapper):
    """Scale every gradient down to at most a given norm before another optimizer sees it.

    ::

        g <- g min(1, norm / |g|)

    The norm is over all parameters, so the modes are coupled. In the mean field abs(g)^2 is its mean, which it is close to if many
    modes contribute to it. PyTorch's ``clip_grad_norm_`` divides by |g| + 1e-6 instead.

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

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        return self.inner.averaged(seen.scaled(self._kept(seen, 0)))

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        kept = self._kept(seen, int(t))
        step = self.inner.linearised(seen.scaled(kept), averages, t)
        return step._replace(b=[kept * entry for entry in step.b])

    def _kept(self, seen: Seen, t: int) -> Array:
        """The part of the gradient that is kept, for a norm of its expected size."""
        size = np.sqrt(seen.total(seen.gradient_square(self.inner.gradient_point(t))))
        return self.norm / np.maximum(size, self.norm)

    @property
    def elementwise(self) -> bool:
        return False
