"""Schedule-Free SGD."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Array
from .base import Entry, GeometryLike, Optimizer, State, System, Tensor
from .kinds import Number, decay, rate


@dataclass(frozen=True)
class ScheduleFree(Optimizer):
    """Schedule-Free SGD: gradients at y, steps on z, the loss reported at the running average x.

    ::

        y <- (1 - momentum) z + momentum x
        z <- z - lr (h y + eps)
        x <- x + (z - x) / (t + 1),        t = 0, 1, ...

    >>> from nqm import Quadratic, Spectrum
    >>> Quadratic(Spectrum([1.0])).run(ScheduleFree(0.5, 0.9), batch_size=10, steps=[0, 1, 2]).loss.round(6).tolist()
    [0.5, 0.1375, 0.080469]

    References
    ----------
    Defazio et al. (2024), The road less scheduled.
    """

    lr: Number = rate()
    momentum: Number = decay()

    def system(self, h: Array, t: int) -> System:
        lr, momentum, c = self.lr, self.momentum, 1 / (t + 1)
        by_z, by_x = lr * h * (1 - momentum), lr * h * momentum  # lr h y = by_z z + by_x x
        return [[-by_z, -by_x], [c * (1 - by_z), -c * (1 + by_x)]], [-lr, -c * lr]

    def initial(self) -> list[float]:
        return [1.0, 1.0]

    def readout(self, t: int) -> list[float]:
        return [0.0, 1.0]

    def gradient_point(self, t: int) -> list[Entry]:
        return [1 - self.momentum, self.momentum]

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        return theta, theta

    def point(self, state: State, t: int) -> Tensor:
        return (1 - self.momentum) * state[0] + self.momentum * state[1]

    def update(self, state: State, g: Tensor, t: int) -> State:
        z, x = state[0] - self.lr * g, state[1]
        return z, x + (z - x) / (t + 1)

    def report(self, state: State, t: int) -> Tensor:
        return state[1]

    def restart(self, state: State, theta: Tensor) -> State:
        return theta, theta

    def same_until(self, t: int) -> float:
        return t + 1

    @property
    def cycle(self) -> int:
        return 0

    @property
    def averages(self) -> bool:
        return True

    def pace(self, t: Array) -> Array:
        return 1.0 / (t + 1)

    def edge(self, h: Array) -> Array:
        return 2 / (1 - self.momentum) / h
