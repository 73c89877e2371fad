"""Exponential moving average of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Array
from .base import Averaging, Entry, State, System, Tensor, follow
from .kinds import Number, decay


@dataclass(frozen=True)
class EMA(Averaging):
    """Exponential moving average of another optimizer's weights; the loss reported is the average's.

    ::

        average <- decay average + (1 - decay) theta,        average_0 = theta_0

    On plain SGD with rho = 1 - lr h it multiplies the steady-state risk of a mode by
    ``(1 - decay)(1 + rho decay) / ((1 + decay)(1 - rho decay))``.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> Quadratic(Spectrum([1.0])).run(EMA(SGD(0.5), 0.5), batch_size=10, steps=[0, 1, 2]).loss.tolist()
    [0.5, 0.284375, 0.13125]

    References
    ----------
    Ruppert (1988); Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging.
    """

    decay: Number = decay()

    def joined(self, G: Sequence[Sequence[Entry]], b: Sequence[Entry], t: int) -> System:
        row, noise = follow(G, b, self.inner.readout(t + 1))
        gain = 1 - self.decay
        return ([*([*g, 0.0] for g in G), [*(gain * entry for entry in row), -gain]], [*b, gain * noise])

    def update(self, state: State, g: Tensor, t: int) -> State:
        inner, average = state
        inner = self.inner.update(inner, g, t)
        return inner, self.decay * average + (1 - self.decay) * self.inner.report(inner, t + 1)

    def same_until(self, t: int) -> float:
        return self.inner.same_until(t) if self.inner.steady else t + 1

    def pace(self, t: Array) -> Array | None:
        return self.inner.pace(t)
