"""The authors' own way to a tuned point, kept for comparison: a grid of settings, and for each a bisection over steps.

As in their notebook: the spectrum has 100 bins, a loss of heavy ball is computed from eigenvectors of the 3 x 3 matrix of second
moments of every bin, and the bisection runs between 0 and a fixed number of steps. It takes a loss for monotone and a grid for dense,
so its answers are close to ours and not the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..engine.spectrum import Spectrum
from ..types import Array

BINS = 100
SGD_RATES = np.geomspace(1e-5, 10**0.5, 100)
RATES, MOMENTA = np.geomspace(1e-8, 10.0, 100), 1 - np.geomspace(1e-5, 1.0, 20)
SGD_STEPS, MOMENTUM_STEPS = 10**9, 10**7  # Where the bisections of the notebook begin.

Setting = tuple[float, float]
"""A learning rate and a momentum."""


@dataclass(frozen=True)
class GridSearch:
    """Steps to a target by grid search, for SGD or heavy ball with the preconditioner H^-power.

    Parameters
    ----------
    spectrum : the modes as given; they are binned as the authors bin them.
    target : the loss to be reached.
    power : the power p of the preconditioner H^-p.
    momentum : whether momenta are searched too; if not, losses of SGD come from their closed form.
    anew : whether eigenvectors are computed again for every loss, as in the notebook, or once for a setting.
    """

    spectrum: Spectrum
    target: float
    power: float = 0.0
    momentum: bool = True
    anew: bool = True

    @property
    def settings(self) -> list[Setting]:
        """The grid of the notebook."""
        if not self.momentum:
            return [(float(lr), 0.0) for lr in SGD_RATES]
        return [(float(lr), float(m)) for lr in RATES for m in MOMENTA]

    def steps(self, setting: Setting, batch_size: float) -> int | None:
        """Steps to the target by bisection, or None if the loss is above it after the largest number of steps."""
        low, high = 0, MOMENTUM_STEPS if self.momentum else SGD_STEPS
        most, loss = high, self._loss(setting, batch_size)
        with np.errstate(all="ignore"):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if loss(middle) < self.target else (middle, high)
        return high if high < most else None

    def best(self, batch_size: float) -> tuple[int | None, Setting]:
        """The fewest steps of the grid, and the setting that takes them."""
        found = [(self.steps(setting, batch_size), setting) for setting in self.settings]
        return min(found, key=lambda one: (one[0] is None, one[0]))

    def seconds(self, batch_size: float, part: float, seed: int = 0) -> float:
        """CPU seconds of `best`, from the time of a part of its settings, which are drawn at random."""
        settings = self.settings
        count = max(1, round(part * len(settings)))
        chosen = np.random.default_rng(seed).choice(len(settings), count, replace=False)
        begun = time.process_time()
        for i in chosen:
            self.steps(settings[i], batch_size)
        return (time.process_time() - begun) * len(settings) / count

    def _loss(self, setting: Setting, batch_size: float) -> Callable[[int], float]:
        """The loss as a function of the number of steps."""
        if not self.momentum:
            return self._of_sgd(setting[0], batch_size)
        if self.anew:
            return lambda t: self._of_heavy_ball(setting, batch_size)(t)
        return self._of_heavy_ball(setting, batch_size)

    def _of_sgd(self, lr: float, batch_size: float) -> Callable[[int], float]:
        modes = self._modes
        rate = lr * modes.h**-self.power
        shrunk = (1 - rate * modes.h) ** 2
        with np.errstate(all="ignore"):
            floor = rate**2 * modes.c / batch_size / (1 - shrunk)
        return lambda t: self._summed(floor + shrunk**t * (modes.s - floor))

    def _of_heavy_ball(self, setting: Setting, batch_size: float) -> Callable[[int], float]:
        """From E theta^2, E theta m, E m^2 with ``m <- b m + lr g`` and ``theta <- theta - m``: one matrix for each bin."""
        (lr, b), modes = setting, self._modes
        rate = lr * modes.h**-self.power
        x, one = rate * modes.h, np.ones_like(modes.h)
        rows = [
            [(1 - x) ** 2, -2 * b * (1 - x), b**2 * one],
            [x * (1 - x), b * (1 - 2 * x), -(b**2) * one],
            [x**2, 2 * b * x, b**2 * one],
        ]
        noise = rate**2 * modes.c / batch_size
        start = np.stack([modes.s, 0 * x, 0 * x], axis=1)
        values, vectors = np.linalg.eig(np.array(rows).transpose(2, 0, 1))
        inverse = np.linalg.inv(vectors)
        with np.errstate(all="ignore"):
            floor = _times(inverse, np.stack([noise, -noise, noise], axis=1)) / (1 - values)
        left = _times(inverse, start) - floor
        return lambda t: self._summed(np.real(_times(vectors, values**t * left + floor)[:, 0]))

    @cached_property
    def _modes(self) -> Spectrum:
        return self.spectrum.binned(BINS)

    def _summed(self, moments: Array) -> float:
        return float((self._modes.count * self._modes.h) @ moments / 2)


def _times(matrices: Array, vectors: Array) -> Array:
    return np.einsum("nij,nj->ni", matrices, vectors)
