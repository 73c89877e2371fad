"""Sampled walks in lockstep: mean losses over time, when they reach a target, and which part of them is noise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ...sampling.stepping import Walk
from ...types import Array
from .settings import STANDARD, RaceSettings

OVERFLOWED = 1e150  # The loss of a setting that overflowed counts as this.


def observation_times(steps: int, settings: RaceSettings = STANDARD) -> Iterator[int]:
    """The steps at which losses are observed: every step at first, then each time that steps have grown by a fixed part."""
    t = 0
    while t < steps:
        t = min(steps, t + max(1, int(t * settings.observed_part)))
        yield t


def mean_and_stderr(losses: Array) -> tuple[float, float]:
    """Mean and standard error of the losses of replicas; infinite, not NaN, where a loss overflowed."""
    with np.errstate(all="ignore"):
        mean, stderr = losses.mean(), losses.std(ddof=1) / math.sqrt(losses.size)
    return float(np.fmin(mean, math.inf)), float(np.fmin(stderr, math.inf))


class Part(NamedTuple):
    """Mean losses over the steps from ``since`` (not included) to ``t``; one array for each walk, a number per replica."""

    since: int
    t: int
    losses: list[Array]


class Lockstep:
    """Walks in lockstep, one thread of the ``pool`` for each; losses are averaged over the last part of the time.

    A mean over few replicas swings about the expected loss from step to step, and the setting that swings most would be the
    first to touch a target. The average over time swings little. It estimates the loss in the middle of its window.
    """

    def __init__(self, walks: list[Walk], settings: RaceSettings = STANDARD) -> None:
        self.walks, self.settings, self.pool = walks, settings, ThreadPoolExecutor(max(len(walks), 1))
        self.window: deque[Part] = deque()

    def to(self, t: int) -> tuple[float, list[Array]]:
        """Walk to step t. Returns the middle of the window, and the losses of each walk there."""

        def losses(walk: Walk) -> Array:
            with np.errstate(all="ignore"):
                return walk.mean_to(t)

        since = self.walks[0].t
        parts = map(losses, self.walks) if len(self.walks) == 1 else self.pool.map(losses, self.walks)
        self.window.append(Part(since, t, list(parts)))
        while self.window[0].since < t * (1 - self.settings.averaged_part) and len(self.window) > 1:
            self.window.popleft()
        first = self.window[0].since
        weights = [(part.t - part.since) / (t - first) for part in self.window]
        walks = zip(*(part.losses for part in self.window), strict=True)
        found = [np.asarray(sum(w * losses for w, losses in zip(weights, walk, strict=True))) for walk in walks]
        return (first + 1 + t) / 2, found

    def keep(self, kept: list[tuple[int, Array]]) -> None:
        """Keep only some walks, given by their index, and some of the settings of each."""
        self.walks = [self.walks[i] for i, _ in kept]
        self.window = deque(Part(a, b, [losses[i][rows] for i, rows in kept]) for a, b, losses in self.window)


class Crossing:
    """The step at which an expected loss reaches a target, estimated from a mean over replicas that swings about it.

    The first dip of the mean below the target comes too early. The number of steps that the mean spends above the target is
    unbiased where the expected loss falls steadily, because dips before and peaks after the crossing cancel. Half the
    difference of that number for the mean one standard error higher and one lower is the standard error of the steps.
    A dip is a hit once the mean since its beginning is ``sure_errors`` standard errors below the target. It is forgotten
    once that mean is as far above the target.
    """

    def __init__(self, target: float, initial: float, settings: RaceSettings = STANDARD) -> None:
        self.target, self.at, self.settings = target, 0.0, settings
        self.before, self.above = np.full(3, initial), np.zeros(3)  # For the mean - stderr, mean, mean + stderr.
        self._forget()

    def _forget(self) -> None:
        """Forget the present dip: its steps, and the sum over them of the loss of each replica."""
        self.below, self.steps, self.sum = False, 0, np.zeros(())

    def observe(self, middle: float, losses: Array, since: int, last: Array, t: int) -> bool:
        """Record the averaged losses at ``middle`` and the ``last`` ones, from ``since`` to t. True if the target is reached."""
        mean, stderr = (min(figure, OVERFLOWED) for figure in mean_and_stderr(losses))
        now = np.array([mean - stderr, mean, mean + stderr])
        self.above += (middle - self.at) * _part_above(self.before, now, self.target)
        self.at, self.before = middle, now
        if not self.below and mean > self.target:
            return False
        self.below, self.sum, self.steps = True, self.sum + (t - since) * last, self.steps + t - since
        mean, stderr = mean_and_stderr(self.sum / self.steps)
        if mean - self.target > self.settings.sure_errors * stderr or mean > OVERFLOWED:
            self._forget()
            self.above[:] = middle
        return (
            self.below
            and self.steps >= self.settings.averaged_part * t
            and self.target - mean >= self.settings.sure_errors * stderr
        )

    @property
    def hit(self) -> int:
        """The first step at or below the target."""
        return max(1, math.ceil(self.above[1] - 1e-9))

    @property
    def stderr(self) -> float:
        """The standard error of the hit; at least that of rounding to whole steps, or to observed steps."""
        return max(
            float(self.above[2] - self.above[0]) / 2, max(1.0, self.settings.observed_part * self.hit) / math.sqrt(12)
        )


def _part_above(before: Array, now: Array, target: float) -> Array:
    """The part of the straight line from one loss to the next that lies above the target."""
    high, low = np.maximum(before, now), np.minimum(before, now)
    apart = np.where(high > low, high - low, 1.0)
    return np.where(low > target, 1.0, np.where(high > target, (high - target) / apart, 0.0))


def noise_part(theta: Array, start: Array, mass: Array) -> tuple[Array, Array]:
    """The part of the mean loss that is not left over from the start, and its standard error, for each setting.

    ::

        theta_t = rho theta_0 + noise,     rho by least squares over replicas, on each mode
        noise part = 1/2 sum h <(theta_t - rho theta_0)^2>,   with one degree of freedom less than replicas

    A loss on a plateau is left over from the start, and will fall. A loss at its floor is noise, and will not.

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
