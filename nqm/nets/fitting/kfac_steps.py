"""Predict K-FAC from a fit in its metric, step by step.

On a node of curvature h the state is (x, v), the weight's distance from the minimum and the velocity. With gradient noise of
variance q a step is

    v <- momentum v + s (h x + eps),        x <- x - lr v,
    s = delta min(1, sqrt(kl_clip / (lr^2 d'g))),        d'g = delta (phi' sum (h x)^2 + sum h^2 Var x + q).

delta is the drift of the preconditioner (`kfac_metric`). The rule averages its factors over batches and inverts them now and then;
so delta is one over a running mean of delta(L)^-DRIFT_POWER, with the decay and the periods of the rule.

The loss is ``L = phi(signal) + n``, with n what noise adds to the loss of the quadratic along curvatures that follow the loss, as in
`following`. The noise of a gradient does not follow the loss alone: weights that noise has moved away have a noisier gradient than
weights of the same loss on the descent. With f the noise at a loss of the descent, and f' what it gains per unit of loss that
noise has added (`kfac_metric`), the variance is

    q = c / B ((1 - STIRRED) f(L) + STIRRED (f(phi) + f' n)).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...engine.kernels.following import bent, interpolated, kept, loudness
from ...engine.schedule import Schedule
from ...types import Array, Wrong
from ..natural import KFAC
from .adaptive import AdaptiveCourse, Linear, NodeMoments
from .descent import LEAST_KEPT, PULL, SLOWING
from .edge import EDGE_SHARE
from .kfac_metric import KFACMetric
from .testing import disturbance

if TYPE_CHECKING:
    from .model import Fit

STIRRED = 0.5
"""Share of the gradient noise that is taken from f', which overrates it where noise is most of the loss as f underrates it. Of 0, 1/4
and 1/2 it was chosen on digits, a ReLU MLP and the Fashion CNN, by median errors."""
DRIFT_POWER = 0.7
"""Power of delta by which steps are multiplied. delta is measured along a descent that does not follow P, on which directions whose
steps would have grown still have their gradient, while a training that follows P has used it up. Of 0.5, 0.7 and 1 it was chosen on
the same networks."""


class NaturalRun:
    """One setting of K-FAC on a fit in its metric, step by step; ``bent`` is as in `predict`."""

    def __init__(
        self, fit: Fit, optimizer: KFAC, batch_size: float, schedule: Schedule | None = None, *, bent: bool = True
    ) -> None:
        if not isinstance(fit.metric, KFACMetric):
            raise Wrong(f"{optimizer} is not predicted from a fit in this metric", argument="optimizer")
        self.metric, self.fit, self.bend = fit.metric, fit, fit.bend if bent else None
        self.size, self.schedule, self.optimizer = batch_size, schedule, optimizer
        self.lr, self.momentum = float(optimizer.lr), float(optimizer.momentum)
        self.clip = float(optimizer.kl_clip) or math.inf
        self.t, self.inverted, self.drift, self.mean_inverse = 0, 0, 1.0, 1.0
        self.moved = [0.0]  # the sum of effective learning rates
        self.excess = [
            0.0
        ]  # largest rate so far over the largest stable one of the curvature at the checkpoint, at each step
        self.sharpest = [0.0]  # the same with the curvature on the way
        self._begin()

    def _begin(self) -> None:
        """The state at the checkpoint."""
        modes, noise = self.fit.spectrum, self.fit.noise
        signal = modes.s > 0
        self.h, self.x = modes.h[signal], np.sqrt(modes.s[signal])
        self.v = np.zeros_like(self.x)
        self.noise, self.c = NodeMoments(np.maximum(noise.h, float(modes.h.min()))), np.maximum(noise.weight, 0)
        self.curvature, self.trace = self.noise.h.copy(), float(self.c.sum()) / noise.probes

    @property
    def over(self) -> float:
        """The largest rate so far over the largest stable one of the curvature at the checkpoint."""
        return self.excess[-1]

    @property
    def quadratic(self) -> float:
        """The loss of the quadratic without noise."""
        return self.fit.offset + float(self.h @ self.x**2) / 2

    def bent(self, noise: Array) -> Array:
        """The losses of the network if noise adds so much to the loss of the quadratic."""
        return self.clean + noise

    @property
    def clean(self) -> float:
        """The loss without noise."""
        return self.quadratic if self.bend is None else bent(self.quadratic, self.bend.pieces)

    @property
    def noises(self) -> Array:
        """What the noise of each probe adds to the loss of the quadratic."""
        return np.bincount(self.fit.noise.probe, self.curvature * self.noise.xx, self.fit.noise.probes) / 2

    @property
    def loss(self) -> float:
        """The expected loss."""
        return self.clean + self.added

    @property
    def added(self) -> float:
        """What noise adds to the loss."""
        return float(self.curvature @ self.noise.xx) / self.fit.noise.probes / 2

    def course(self, times: Array) -> AdaptiveCourse:
        """The losses at the reported steps, from a run that has made no step yet."""
        every, probes, shown = [(self.clean, self.loss)], list[Array](), set(map(int, times))
        for t in range(int(times[-1]) + 1):
            if t > 0:
                self.step()
                every.append((self.clean, self.loss))
            if t in shown:
                probes.append(self.bent(self.noises))
        signal, loss = np.array(every).T
        disturbed = disturbance(signal, loss - signal)
        return AdaptiveCourse(signal[times], loss[times], np.array(probes).T, disturbed[times])

    def step(self) -> Linear:
        """Take a step, and return what it was on every node."""
        clean, added = self.clean, self.added
        rate, _, batch = self.schedule.at(self.t) if self.schedule else (1.0, 1.0, 1.0)
        lr, size, loud, share = self.lr * float(rate), self.size * batch, 1.0, 1.0
        if self.bend is not None:
            self._drift(clean + added)
            loud = self._loud(clean, added)
            share = kept(clean, added, self.bend.sharpness, SLOWING, LEAST_KEPT)
        s = self.drift * self._clip(lr, loud / size)
        most = 2 * (1 + self.momentum) / max(lr * s, 1e-300)  # the curvature at which this step is at the edge
        here = float(self.fit.spectrum.h.max()) / most
        grown = here * self._follow(clean + added, EDGE_SHARE * most)
        self.excess.append(max(self.excess[-1], here))
        self.sharpest.append(max(self.sharpest[-1], grown))
        self.v = self.momentum * self.v + s * share * np.minimum(self.h, EDGE_SHARE * most) * self.x
        self.x = self.x - lr * self.v
        self.noise.step(loud * self.c / size, 1.0, lr, self.momentum, s, self.curvature)
        self.moved.append(self.moved[-1] + lr * s / (1 - self.momentum))
        self.t += 1
        return Linear(1.0, lr, self.momentum, s, size)

    def _drift(self, loss: float) -> None:
        """Let the preconditioner follow the loss: a running mean over the steps, which is inverted now and then."""
        given, t = self.optimizer, self.t
        keep = min(1 - 1 / (t + 1), float(given.decay))
        self.mean_inverse = keep * self.mean_inverse + (1 - keep) * self.metric.drifted(loss) ** -DRIFT_POWER
        if t - self.inverted >= min(float(given.inverse_period), max(1.0, float(given.staleness) * t)) or t == 0:
            self.drift, self.inverted = 1 / self.mean_inverse, t

    def loudness(self, losses: Array) -> Array:
        """The variance of gradient noise at each loss, over that at the checkpoint."""
        if self.bend is None:
            return np.ones_like(losses)
        clean = self.clean
        stirred = float(self.bend.loudness(clean)) + self.metric.stirred(clean) * np.maximum(losses - clean, 0)
        return (1 - STIRRED) * np.asarray(self.bend.loudness(losses)) + STIRRED * stirred

    def _loud(self, clean: float, added: float) -> float:
        """`loudness` at the loss that is expected."""
        assert self.bend is not None
        stirred = loudness(clean, self.bend.noise) + self.metric.stirred(clean) * added
        return (1 - STIRRED) * loudness(clean + added, self.bend.noise) + STIRRED * stirred

    def _clip(self, lr: float, per_size: float) -> float:
        """The factor that bounds the Kullback-Leibler divergence of a step."""
        slope = 1.0 if self.bend is None else max(self.bend.slope_at(self.quadratic), 0.0)
        away = float(self.curvature**2 @ self.noise.xx) / self.fit.noise.probes
        product = self.drift * (slope * float(((self.h * self.x) ** 2).sum()) + away + per_size * self.trace)
        return min(1.0, math.sqrt(self.clip / max(lr**2 * product, 1e-300)))

    def _follow(self, loss: float, most: float) -> float:
        """Let the curvatures along which noise lies follow the loss, below what the rate allows, and return their growth."""
        growth = 1.0 if self.bend is None else interpolated(loss, self.bend.sharpness)
        self.curvature = self.curvature + PULL * (np.minimum(growth * self.noise.h, most) - self.curvature)
        return growth
