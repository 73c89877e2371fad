"""A power of the curvature as preconditioner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Array
from .base import Entry, GeometryLike, Linearised, Seen, State, System, Tensor, Wrapper
from .kinds import Number, unit


@dataclass(frozen=True)
class Preconditioned(Wrapper):
    """Multiply every gradient by H^-power before another optimizer sees it.

    ::

        g <- h^-power (h theta + eps)

    so the inner optimizer sees curvature h^(1 - power) and noise multiplied by h^-power. A power of 1/2 stands for Adam, of
    3/4 and more for K-FAC. A fixed preconditioner has the same effect before momentum and after it.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> exact = Quadratic(Spectrum([1.0, 0.01]))
    >>> exact.run(Preconditioned(SGD(1.0), 1.0), batch_size=100, steps=[1]).loss.round(6).tolist()   # Newton: only noise
    [0.01]

    References
    ----------
    Zhang et al. (2019), Which algorithmic choices matter at which batch sizes?
    """

    power: Number = unit()

    def system(self, h: Array, t: int) -> System:
        G, b = self.inner.system(h ** (1 - self.power), t)
        gain = h**-self.power
        return G, [gain * entry for entry in b]

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        return self.inner.averaged(seen.scaled(seen.curvature**-self.power, preconditioned=True))

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        gain = seen.curvature**-self.power
        step = self.inner.linearised(seen.scaled(gain, preconditioned=True), averages, t)
        return step._replace(b=[gain * entry for entry in step.b])

    def initial(self) -> list[float]:
        return list(self.inner.initial())

    def readout(self, t: int) -> list[Entry]:
        return list(self.inner.readout(t))

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        return self.inner.begin(theta, geometry.preconditioned(self.power)), geometry

    def update(self, state: State, g: Tensor, t: int) -> State:
        inner, geometry = state
        return self.inner.update(inner, geometry.precondition(g, self.power), t), geometry

    def edge(self, h: Array) -> Array:
        return self.inner.edge(h ** (1 - self.power))

    @property
    def preconditioning(self) -> float:
        own = self.power if isinstance(self.power, int | float) else 0.0
        return 1 - (1 - self.inner.preconditioning) * (1 - own)
