"""A power of the curvature as preconditioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import Number, State, System, Wrapper, unit


@dataclass(frozen=True)
class Preconditioned(Wrapper):
    """Multiply every gradient by H^-power before another optimizer sees it.

    ::

        g <- h^-power (h theta + eps)

    so the inner optimizer meets curvature h^(1 - power) and noise gain h^-power. Power 1/2 stands for Adam, 3/4 and
    beyond for K-FAC. For a fixed preconditioner it is the same before momentum and after.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> exact = Quadratic(Spectrum([1.0, 0.01]))
    >>> exact.run(Preconditioned(SGD(1.0), 1.0), batch_size=100, steps=[1]).loss.round(6).tolist()   # Newton: only noise
    [0.01]

    References
    ----------
    Zhang et al. (2019), Which algorithmic choices matter at which batch sizes?
    """

    power: Number = unit()

    def system(self, h: Any, t: int) -> System:
        G, b = self.inner.system(h ** (1 - self.power), t)
        gain = h**-self.power
        return G, [gain * entry for entry in b]

    def initial(self) -> list[float]:
        return list(self.inner.initial())

    def readout(self, t: int) -> list[Any]:
        return list(self.inner.readout(t))

    def begin(self, theta: Any, geometry: Any) -> State:
        return self.inner.begin(theta, geometry.preconditioned(self.power)), geometry

    def update(self, state: State, g: Any, t: int) -> State:
        inner, geometry = state
        return self.inner.update(inner, geometry.precondition(g, self.power), t), geometry

    def edge(self, h: Any) -> Any:
        return self.inner.edge(h ** (1 - self.power))

    @property
    def preconditioning(self) -> float:
        own = self.power if isinstance(self.power, int | float) else 0.0
        return 1 - (1 - self.inner.preconditioning) * (1 - own)
