"""Sampled walks in lockstep: their mean losses over time, when these come to a target, and what of them is noise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ...sampling.stepping import Walk
from ...types import Array

OBSERVED_PART = 1 / 256  # losses are observed each time that the steps have grown by this part
AVERAGED_PART = 1 / 32  # losses are averaged over this last part of the time, without which swings "reach" a target
SURE_ERRORS = 3.0  # a difference counts from this many standard errors on
OVERFLOWED = 1e150  # stands for the loss of a setting that overflowed


def observation_times(steps: int) -> Iterator[int]:
    """The steps at which losses are observed: all at first, then one in each 256th part of the time."""
    t = 0
    while t < steps:
        t = min(steps, t + max(1, int(t * OBSERVED_PART)))
        yield t


def mean_and_stderr(losses: Array) -> tuple[float, float]:
    """Of the losses of replicas; infinite, not NaN, where they overflowed."""
    with np.errstate(all="ignore"):
        mean, stderr = losses.mean(), losses.std(ddof=1) / math.sqrt(losses.size)
    return float(np.fmin(mean, math.inf)), float(np.fmin(stderr, math.inf))


class Part(NamedTuple):
    """Mean losses over the steps from ``since`` (not included) to ``t``; one array for each walk, a number per replica."""

    since: int
    t: int
    losses: list[Array]


class Lockstep:
    """Walks in lockstep, one thread of its ``pool`` each; losses are averaged over the last part of the time.

    A mean over few replicas swings about the expected loss from step to step. Whatever first touches a target would be
    what swings most; the average over time swings little, and stands for the loss in the middle of its window.
    """

    def __init__(self, walks: list[Walk]) -> None:
        self.walks, self.pool = walks, ThreadPoolExecutor(max(len(walks), 1))
        self.window: deque[Part] = deque()

    def to(self, t: int) -> tuple[float, list[Array]]:
        """Go on to step t; the middle of the window, and the losses of each walk there."""

        def losses(walk: Walk) -> Array:
            with np.errstate(all="ignore"):
                return walk.mean_to(t)

        since = self.walks[0].t
        parts = map(losses, self.walks) if len(self.walks) == 1 else self.pool.map(losses, self.walks)
        self.window.append(Part(since, t, list(parts)))
        while self.window[0].since < t * (1 - AVERAGED_PART) and len(self.window) > 1:
            self.window.popleft()
        first = self.window[0].since
        weights = [(part.t - part.since) / (t - first) for part in self.window]
        walks = zip(*(part.losses for part in self.window), strict=True)
        found = [np.asarray(sum(w * losses for w, losses in zip(weights, walk, strict=True))) for walk in walks]
        return (first + 1 + t) / 2, found

    def keep(self, kept: list[tuple[int, Array]]) -> None:
        """Go on with some walks, by their place, and with some of the settings of each."""
        self.walks = [self.walks[i] for i, _ in kept]
        self.window = deque(Part(a, b, [losses[i][rows] for i, rows in kept]) for a, b, losses in self.window)


class Crossing:
    """When an expected loss comes to a target, from a mean over replicas that swings about it.

    The first dip of such a mean comes too early. The time it spends above the target does not: where the expected loss
    falls evenly, dips before and peaks after the crossing cancel. The time that the mean spends there one standard error
    higher, less the time one lower, is twice the standard error of the steps. A dip counts once the mean since it began is
    three standard errors below the target, and all was above once it is that far above.
    """

    def __init__(self, target: float, initial: float) -> None:
        self.target, self.at = target, 0.0
        self.before, self.above = np.full(3, initial), np.zeros(3)  # of the mean one stderr lower, itself, one higher
        self._forget()

    def _forget(self) -> None:
        """No dip is under way: none of its steps, and no sum of each replica's loss over them."""
        self.below, self.steps, self.sum = False, 0, np.zeros(())

    def observe(self, middle: float, losses: Array, since: int, last: Array, t: int) -> bool:
        """Take in losses that stand for a step, and the last of them, from ``since`` to t; whether the target is reached."""
        mean, stderr = (min(figure, OVERFLOWED) for figure in mean_and_stderr(losses))
        now = np.array([mean - stderr, mean, mean + stderr])
        self.above += (middle - self.at) * _part_above(self.before, now, self.target)
        self.at, self.before = middle, now
        if not self.below and mean > self.target:
            return False
        self.below, self.sum, self.steps = True, self.sum + (t - since) * last, self.steps + t - since
        mean, stderr = mean_and_stderr(self.sum / self.steps)
        if mean - self.target > SURE_ERRORS * stderr or mean > OVERFLOWED:
            self._forget()
            self.above[:] = middle
        return self.below and self.steps >= AVERAGED_PART * t and self.target - mean >= SURE_ERRORS * stderr

    @property
    def hit(self) -> int:
        """The first step at or below the target."""
        return max(1, math.ceil(self.above[1] - 1e-9))

    @property
    def stderr(self) -> float:
        """That of the hit; at least that of rounding to whole steps, or to observed steps where they are further apart."""
        return max(float(self.above[2] - self.above[0]) / 2, max(1.0, OBSERVED_PART * self.hit) / math.sqrt(12))


def _part_above(before: Array, now: Array, target: float) -> Array:
    """The part of the way from one loss to the next, along a straight line, that lies above the target."""
    high, low = np.maximum(before, now), np.minimum(before, now)
    apart = np.where(high > low, high - low, 1.0)
    return np.where(low > target, 1.0, np.where(high > target, (high - target) / apart, 0.0))


def noise_part(theta: Array, start: Array, mass: Array) -> tuple[Array, Array]:
    """What of the mean loss has nothing to do with the start, and its standard error; one for each setting.

    ::

        theta_t = rho theta_0 + noise,     rho by least squares over replicas, on each mode
        noise part = 1/2 sum h <(theta_t - rho theta_0)^2>,   with one degree of freedom less than replicas

    A loss that rests on a plateau is made of what is left of the start, and will fall; one at its floor is made of noise.

    Parameters
    ----------
    theta : weights, (settings, replicas, modes).
    start : theta_0, (replicas, modes).
    mass : n h / 2 of each mode.
    """
    freedom = start.shape[0] - 1
    with np.errstate(all="ignore"):
        rho = (theta * start).sum(-2, keepdims=True) / np.maximum((start**2).sum(-2, keepdims=True), 1e-300)
        parts = ((theta - rho * start) ** 2).sum(-2) * (mass / freedom)
        return parts.sum(-1), np.sqrt(2 / freedom * (parts**2).sum(-1))
