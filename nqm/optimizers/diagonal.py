"""A preconditioner that knows only the diagonal of H."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Array
from .base import GeometryLike, State, Tensor
from .kinds import Number, unit
from .nonlinear import NonlinearWrapper


@dataclass(frozen=True)
class DiagonalPreconditioned(NonlinearWrapper):
    """Multiply every gradient by ``diag(H)^-power`` in the basis of the run before another optimizer sees it.

    In the eigenbasis it is the same as `Preconditioned`. In a rotated basis the diagonal of H says little about its spectrum:
    the diagonal of a randomly rotated H is nearly constant, and hardly preconditions.

    >>> from nqm import SGD, Preconditioned, Quadratic, Spectrum
    >>> small = Quadratic(Spectrum([1.0, 0.01]))
    >>> same = [small.sample(o, 100, [40]).loss[0] for o in (Preconditioned(SGD(0.5), 0.5), DiagonalPreconditioned(SGD(0.5), 0.5))]
    >>> same[0] == same[1]
    np.True_
    """

    power: Number = unit()

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        behind = geometry.preconditioned(self.power) if geometry.rotation is None else geometry
        return self.inner.begin(theta, behind), geometry.diagonal**-self.power

    def update(self, state: State, g: Tensor, t: int) -> State:
        inner, gain = state
        return self.inner.update(inner, g * gain, t), gain

    def edge(self, h: Array) -> Array:
        return self.inner.edge(h ** (1 - self.power))
