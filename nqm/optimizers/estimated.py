"""A preconditioner estimated from sampled gradients."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Array, Wrong
from .base import GeometryLike, State, Tensor
from .kinds import Number, positive, unit, whole
from .nonlinear import NonlinearWrapper


@dataclass(frozen=True)
class EstimatedPreconditioned(NonlinearWrapper):
    """A damped diagonal preconditioner from the second moment of the gradients of some examples at the start.

    ::

        v = (g_1^2 + ... + g_n^2) / n,        n = examples
        g <- g / (v + damping)^power

    With C = H the second moment is about ``c = h``, so this is an estimate of `Preconditioned`. With few examples it is
    noisy (relative error sqrt(2 / n)), and in a rotated basis it sees only the diagonal.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> optimizer = EstimatedPreconditioned(SGD(0.5), 0.5, examples=8)
    >>> run = pair.sample(optimizer, batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.207101, 0.089954]

    References
    ----------
    Duchi, Hazan and Singer (2011), Adaptive subgradient methods.
    """

    power: Number = unit()
    examples: Number = whole()
    damping: Number = positive(1e-8, zero=True)

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        total, gradient = 0.0, geometry.gradient
        if gradient is None:
            raise Wrong(
                "EstimatedPreconditioned needs gradients of single examples, which this run does not have",
                argument="optimizer",
            )
        for _ in range(int(self.examples)):
            g = gradient(theta)
            total = total + g * g
        gain = (total / self.examples + self.damping) ** -self.power
        return self.inner.begin(theta, geometry), gain

    def update(self, state: State, g: Tensor, t: int) -> State:
        inner, gain = state
        return self.inner.update(inner, g * gain, t), gain

    def edge(self, h: Array) -> Array:
        return self.inner.edge(h ** (1 - self.power))
