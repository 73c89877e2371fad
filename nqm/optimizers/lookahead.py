"""Lookahead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .base import Averaging, Entry, State, System, Tensor, follow
from .kinds import Number, unit, whole


@dataclass(frozen=True)
class Lookahead(Averaging):
    """Slow weights that follow a fast optimizer every ``period`` steps; the loss reported is the slow weights'.

    ::

        one step of the inner optimizer; after every period-th one also
        slow <- slow + alpha (theta - slow),        theta <- slow

    Slots of the inner optimizer that are weights restart at slow; velocities are kept. On SGD, with r = 1 - lr h,
    A = alpha and k = period, Lookahead multiplies the steady-state risk by
    ``A^2 (1 - r^2k) / (A^2 (1 - r^2k) + 2 A (1 - A)(1 - r^k))``.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> Quadratic(Spectrum([1.0])).run(Lookahead(SGD(0.5), 0.5, 2), batch_size=10, steps=[0, 1, 2]).loss.tolist()
    [0.5, 0.5, 0.19921875]

    References
    ----------
    Zhang, Lucas, Hinton and Ba (2019), Lookahead optimizer: k steps forward, 1 step back.
    """

    alpha: Number = unit(0.02, 1.0)
    period: Number = whole()

    def joined(self, G: Sequence[Sequence[Entry]], b: Sequence[Entry], t: int) -> System:
        k = len(b)
        if (t + 1) % self.period:
            return [*([*row, 0.0] for row in G), [0.0] * (k + 1)], [*b, 0.0]
        row, noise = follow(G, b, self.inner.readout(t + 1))
        slow = [*(self.alpha * entry for entry in row), -self.alpha]
        synced = [
            [*(slow[j] - (i == j) for j in range(k)), 1.0 + slow[k]] if weight else [*G[i], 0.0]
            for i, weight in enumerate(self.inner.initial())
        ]
        jolt = [self.alpha * noise if weight else b[i] for i, weight in enumerate(self.inner.initial())]
        return [*synced, slow], [*jolt, self.alpha * noise]

    def update(self, state: State, g: Tensor, t: int) -> State:
        inner, slow = state
        inner = self.inner.update(inner, g, t)
        if (t + 1) % self.period:
            return inner, slow
        slow = slow + self.alpha * (self.inner.report(inner, t + 1) - slow)
        return self.inner.restart(inner, slow), slow

    def same_until(self, t: int) -> float:
        if not self.inner.steady:
            return t + 1
        sync = t + int(self.period) - 1 - t % int(self.period)  # the next step, t or later, after which slow moves
        if self.period == 1:
            return self.inner.same_until(t)
        return min(self.inner.same_until(t), sync if sync > t else t + 1)

    @property
    def cycle(self) -> int:
        return math.lcm(self.inner.cycle, int(self.period)) if self.inner.cycle and self.inner.steady else 0
