"""A preconditioner that changes as the run goes on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..types import Array, Wrong
from .base import GeometryLike, State, Tensor
from .heavy_ball import HeavyBall
from .kinds import Number, unit, whole
from .nonlinear import NonlinearWrapper
from .sgd import SGD


@dataclass(frozen=True)
class DriftingPreconditioned(NonlinearWrapper):
    """A preconditioner whose power oscillates by a fraction ``drift``, before the momentum of another optimizer or after it.

    ::

        P_t = H^-power_t,        power_t = power (1 + drift sin(2 pi t / period))
        before:  the other optimizer sees P_t g
        after:   the change that it makes to the weights is multiplied by P_t (SGD and heavy ball)

    The two orders are the same for drift 0, and differ as soon as momentum carries gradients of an earlier P. The velocity
    of the other optimizer is not changed. A power above 1 turns small curvatures into large ones, so keep
    power (1 + drift) at 1 or below.

    >>> from nqm import HeavyBall, Quadratic, Spectrum
    >>> pair = Quadratic(Spectrum([1.0, 0.01]))
    >>> optimizer = DriftingPreconditioned(HeavyBall(0.1, 0.9), 0.5, 0.5, order="after")
    >>> run = pair.sample(optimizer, batch_size=float("inf"), steps=[0, 1, 2], start="fixed")
    >>> run.loss.round(6).tolist()
    [0.505, 0.4099, 0.263901]
    """

    power: Number = unit()
    drift: Number = unit()
    period: Number = whole(100)
    order: Literal["before", "after"] = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ("before", "after"):
            raise Wrong(f'DriftingPreconditioned: order must be "before" or "after", got {self.order!r}')
        if self.order == "after" and not isinstance(self.inner, (SGD, HeavyBall)):
            raise Wrong(
                f'DriftingPreconditioned: order="after" needs SGD or HeavyBall inside, got {self.inner}; '
                'other optimizers keep more than weights and a velocity, so use order="before"'
            )

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        return self.inner.begin(theta, geometry), geometry

    def update(self, state: State, g: Tensor, t: int) -> State:
        inner, geometry = state
        power = self.power * (1 + self.drift * math.sin(2 * math.pi * t / self.period))
        if self.order == "before":
            return self.inner.update(inner, geometry.precondition(g, power), t), geometry
        theta, moved = inner[0], self.inner.update(inner, g, t)
        theta = theta + geometry.precondition(moved[0] - theta, power)
        return self.inner.restart(moved, theta), geometry

    def edge(self, h: Array) -> Array:
        return self.inner.edge(h ** (1 - self.power))
