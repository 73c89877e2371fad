"""Fewest steps to a target: a horizon that is long enough, shrunk until no setting is below the target before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import numpy as np

from ...types import Array
from ..answer import Tuned
from ..hits import steps_to_target
from .family import O
from .losses import CEILING, Basins, Scan
from .settings import SETTINGS


@dataclass(frozen=True)
class Bracket:
    """A horizon with the best setting there and the next best; ``reached`` tells whether it is long enough."""

    steps: int
    u: Array
    others: list[Array]
    reached: bool = True


def bracket(scan: Scan[O], basins: Basins[O], target: float, max_steps: int, near: Tuned[O] | None) -> Bracket:
    """A horizon at which the target is reached: a power of two, unless ``near`` or the last step allowed says otherwise."""
    losses, level = basins.losses, 0
    while scan.losses(level, losses.batch_size).min() > target and 2 ** (level + 1) <= max_steps:
        level += 1
    top = min(2**level, max_steps)
    known = [] if near is None else [basins.family.point(near.optimizer)]
    if (
        near is not None
        and near.steps is not None
        and near.steps <= top
        and near.batch_size <= losses.batch_size  # there is less noise, so what was reached there is reached here
        and losses.at(known[0][None], near.steps)[0] <= target
    ):
        return Bracket(near.steps, known[0], [])
    while True:
        starts = [*scan.starts(level, losses.batch_size), *known]
        best, *others = basins.minima(top, starts, SETTINGS.wide, SETTINGS.bracketed)
        if best.loss <= target:
            return Bracket(top, best.u, [basin.u for basin in others])
        if top == max_steps:
            rng = np.random.default_rng(SETTINGS.seed)
            found, _ = basins.below(top, target, basins.around(best.u), rng)
            return Bracket(top, best.u, [], False) if found is None else Bracket(top, found, [])
        # The scan's few nodes promised too much, or the steps allowed lie between two powers of two.
        top = min(2 * top, max_steps)
        level = top.bit_length() - 1


class Landing(Generic[O]):
    """From a bracket to the fewest steps to a target, the setting that needs them, and its loss there."""

    def __init__(self, basins: Basins[O], target: float) -> None:
        self.basins, self.losses, self.target = basins, basins.losses, target

    def __call__(self, found: Bracket) -> tuple[int, Array, float]:
        T, u = self._explore(*self._shrink(found))
        for radius in SETTINGS.last:  # the best setting at the horizon itself, and where that one lands, to the step
            u = self.basins.sharpen(T, u, radius)
            T = self._land(u, T, within=0.0)
        return self._confirm(T, u)

    def _land(self, u: Array, T: int, within: float = SETTINGS.close / 8) -> int:
        return land(self.losses.curve(u), self.target, T, within)[0]

    def _shrink(self, found: Bracket) -> tuple[int, Array]:
        """The shortest horizon of these basins: that at which the best setting lands, then the best setting there, ...

        The losses of the best setting touch the least losses L* from above, so landing is a Newton step that stays long
        enough. All basins are followed, as another may be best at shorter horizons.
        """
        u, others = found.u, found.others
        T = self._land(u, found.steps)
        while True:
            basins = self.basins.minima(T, [u, *others], SETTINGS.near, SETTINGS.followed)
            ends = [(self._land(basin.u, T), basin.u) for basin in basins if basin.loss <= self.target]
            if not ends or ends[0][0] >= T * (1 - SETTINGS.close) - 1:
                return min([(T, u), *ends], key=lambda end: end[0])
            (T, u), others = ends[0], [basin.u for basin in basins[1:]]

    def _explore(self, T: int, u: Array) -> tuple[int, Array]:
        """Look for a better basin below the horizon, the further down the more was found there, until there is none just below.

        With few steps and little noise the top modes' last swings cut the valley into dozens of sharp basins.
        """
        if len(u) == 1:
            return T, u
        offsets, rng, jump = self.basins.around(0.0 * u), np.random.default_rng(SETTINGS.seed), 1
        while True:
            trial = T - max(jump, math.ceil(T * SETTINGS.close))
            found, count = self.basins.below(trial, self.target, u + offsets, rng, brief=jump > 1)
            if found is not None:
                T, u, jump = min(trial, self._land(found, trial)), found, max(1, count // SETTINGS.jump)
            elif jump > 1:
                jump = 1
            else:
                return T, u

    def _confirm(self, T: int, u: Array) -> tuple[int, Array, float]:
        """Where the setting lands on the full spectrum, whose loss the search's nodes know to a part in ten million."""
        loss, radius = math.inf, SETTINGS.last[-1]
        for more in SETTINGS.added:
            end, loss = land(lambda t, u=u: self.losses.exact(u, t), self.target, T)
            if loss <= self.target and end <= max(T + 1, T * (1 + SETTINGS.close)):
                return end, u, loss
            T += more
            u = self.basins.sharpen(T, u, radius)
        hit = steps_to_target(self.losses.problem, self.losses.family.at(u), self.losses.batch_size, self.target)
        return (T, u, loss) if hit.steps is None else (hit.steps, u, hit.loss)


def land(loss: Callable[[int], float], target: float, T: int, within: float = 0.0) -> tuple[int, float]:
    """A step t near T and its loss, with loss(t) <= target, and above it somewhere in [t (1 - within), t) or at t - 1.

    If there is none up to 2 T + 64, the last step that was looked at and its loss, which is above the target.

    Bracketed by steps of the size that a slope of -2/3 asks for, then false position and bisection in turn.
    """
    goal, seen, far = math.log(target), {}, 2 * T + 64

    def height(t: int) -> float:
        seen[t] = loss(t)
        return math.log(min(max(seen[t], 1e-300), CEILING) if math.isfinite(seen[t]) else CEILING) - goal

    lo, at_lo, hi, at_hi = 0, math.inf, T, height(T)
    while at_hi > 0 and hi < far:
        lo, at_lo = hi, at_hi
        hi += max(1, hi - T, math.ceil(1.5 * hi * min(at_hi, 1.0)))
        at_hi = height(hi)
    if at_hi > 0:
        return hi, seen[hi]
    while math.isinf(at_lo):
        t = hi - max(1, math.ceil(1.5 * hi * min(-at_hi, 0.5)))
        at = height(t) if t > 0 else math.inf
        if at > 0:
            lo, at_lo = t, at
            break
        hi, at_hi = t, at
    for turn in range(200):
        if hi - lo <= max(1, within * hi):
            break
        part = at_lo / (at_lo - at_hi) if turn % 3 < 2 and math.isfinite(at_lo) else 0.5
        t = min(max(lo + 1, round(lo + part * (hi - lo))), hi - 1)
        at = height(t)
        lo, at_lo, hi, at_hi = (t, at, hi, at_hi) if at > 0 else (lo, at_lo, t, at)
    return hi, seen[hi]
