"""Predict Adam and AdamW from a fit in their metric, step by step.

On a node of curvature h the state is (x, m), the weight's distance from the minimum and the momentum; x begins at g / h and m at
what the optimizer's state brings along. With gradient noise of variance q, a step is

    m <- beta1 m + (1 - beta1) clip (h x + eps),        x <- x - lr weight_decay (pull + x - g / h) - s m,
    s = lr drift / (1 - beta1^t),        drift = mean_i sqrt(v_hat_i at the checkpoint / v_hat_i now).

Gradient noise follows the loss as in `following`: q = c / B f(L). In the metric of Adam noise is spread over all curvatures, so
that a part of it lies where phi bends: with n what the quadratic's noise adds to its loss,

    L = phi(signal + r n) + (1 - r) n,        r = INSIDE_SHARE.

The squared gradients that v averages, and the norm that is clipped, are those of the quadratic's own gradient and of this noise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...engine.schedule import Schedule
from ...optimizers import Adam, AdamW, Clipped
from ...optimizers.base import Optimizer
from ...types import Array, Wrong
from .metric import AdamMetric
from .testing import disturbance

if TYPE_CHECKING:
    from .kfac_steps import NaturalRun
    from .model import Fit

INSIDE_SHARE = 0.5
"""Share of the noise that is bent with the signal. Of 0, 1/2 and 1, 1/2 alone has median errors below 2% after 100 steps and below
5% after 300 on digits and both Fashion networks, on which it was chosen; docs/nets.md has the errors, and a fourth network."""


def inner_of(optimizer: Optimizer) -> Adam | AdamW | None:
    """The Adam or AdamW that an optimizer is, or that it clips gradients for."""
    inner = optimizer.inner if isinstance(optimizer, Clipped) else optimizer
    return inner if isinstance(inner, Adam | AdamW) else None


class NodeMoments:
    """The second moments (x x, x m, m m) of noise on nodes of curvature h."""

    def __init__(self, h: Array) -> None:
        self.h, self.xx, self.xm, self.mm = h, np.zeros_like(h), np.zeros_like(h), np.zeros_like(h)

    def step(self, q: Array, keep: float, s: float, beta: float, gain: float, h: Array | None = None) -> None:
        """A step with noise of variance q, as in `Linear`; the curvatures of this step are h, if they are others than usual."""
        h = self.h if h is None else h
        a, b, c, d, u, v = keep - s * gain * h, -s * beta, gain * h, beta, -s * gain, gain
        xx, xm, mm = self.xx, self.xm, self.mm
        self.xx = a * a * xx + 2 * a * b * xm + b * b * mm + q * u * u
        self.xm = a * c * xx + (a * d + b * c) * xm + b * d * mm + q * u * v
        self.mm = c * c * xx + 2 * c * d * xm + d * d * mm + q * v * v


class Linear(NamedTuple):
    """One step on every node: m <- beta m + gain (h x + eps), x <- keep x - s m; eps is that of a batch of ``size``."""

    keep: float
    s: float
    beta: float
    gain: float
    size: float


class AdaptiveCourse(NamedTuple):
    """Losses at the reported steps: without noise, expected, and with the noise of each probe; and the `disturbance`."""

    signal: Array
    loss: Array
    probes: Array
    disturbance: Array


class AdaptiveRun:
    """One setting of Adam or AdamW on a fit in their metric, step by step; ``bent`` is as in `predict`."""

    def __init__(
        self, fit: Fit, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, *,
        bent: bool = True,
    ) -> None:  # fmt: skip
        inner = inner_of(optimizer)
        if not isinstance(fit.metric, AdamMetric) or inner is None:
            raise Wrong(f"{optimizer} is not predicted from a fit in this metric", argument="optimizer")
        self.metric: AdamMetric = fit.metric
        self.fit, self.size, self.schedule, self.bend = fit, batch_size, schedule, fit.bend if bent else None
        self.limit = float(optimizer.norm) if isinstance(optimizer, Clipped) else math.inf
        self.lr, self.beta1, self.beta2 = float(inner.lr), float(inner.beta1), float(inner.beta2)
        self.weight_decay = float(getattr(inner, "weight_decay", 0.0))
        self._begin()

    def _begin(self) -> None:
        """The state at the checkpoint."""
        fit, metric, least = self.fit, self.metric, float(self.fit.spectrum.h.min())
        self.t = 0
        self.h, self.rest_h = np.maximum(metric.h, least), np.maximum(metric.rest_h, least)
        self.start = metric.g / self.h
        self.x, self.m = self.start.copy(), metric.m.copy()
        self.rest_x, self.rest_m = 0 * self.rest_h, np.sqrt(np.maximum(metric.rest_m2, 0))
        self.noise, self.c = NodeMoments(np.maximum(fit.noise.h, least)), np.maximum(fit.noise.weight, 0)
        self.curvature = self.noise.h
        self.offset = fit.loss - float(self.h @ self.start**2) / 2
        self.v = np.full_like(metric.drift_g2, 1 - self.beta2**metric.step)

    over = 0.0  # Adam trains at an edge of its own, so its rates are not compared with that of the checkpoint

    @property
    def quadratic(self) -> float:
        """The loss of the quadratic without noise."""
        return self.offset + (float(self.h @ self.x**2) + float(self.rest_h @ self.rest_x**2)) / 2

    def bent(self, noise: Array) -> Array:
        """The losses of the network if noise adds so much to the loss of the quadratic."""
        if self.bend is None:
            return self.quadratic + noise
        return self.bend(self.quadratic + INSIDE_SHARE * noise) + (1 - INSIDE_SHARE) * noise

    def loudness(self, losses: Array) -> Array:
        """The variance of gradient noise at each loss, over that at the checkpoint."""
        return np.ones_like(losses) if self.bend is None else np.asarray(self.bend.loudness(losses))

    @property
    def noises(self) -> Array:
        """What the noise of each probe adds to the loss of the quadratic."""
        probes = self.fit.noise.probes
        return np.bincount(self.fit.noise.probe, self.noise.h * self.noise.xx, probes) / 2

    @property
    def losses(self) -> Array:
        """The loss without noise, and the expected loss."""
        return self.bent(np.array([0.0, float(self.noises.mean())]))

    @property
    def loss(self) -> float:
        """The expected loss."""
        return float(self.losses[1])

    def course(self, times: Array) -> AdaptiveCourse:
        """The losses at the reported steps, from a run that has made no step yet."""
        every, probes, shown = [self.losses], list[Array](), set(map(int, times))
        for t in range(int(times[-1]) + 1):
            if t > 0:
                self.step(float(every[-1][1]))
                every.append(self.losses)
            if t in shown:
                probes.append(self.bent(self.noises))
        signal, loss = np.array(every).T
        disturbed = disturbance(signal, loss - signal)
        return AdaptiveCourse(signal[times], loss[times], np.array(probes).T, disturbed[times])

    def step(self, loss: float | None = None) -> Linear:
        """Take a step, and return what it was on every node; ``loss`` is the expected loss, if it is known already."""
        metric, h = self.metric, self.h
        loud = 1.0 if self.bend is None else float(self.bend.loudness(self.loss if loss is None else loss))
        steep = float(((h * self.x) ** 2).sum()) / float(metric.g @ metric.g)
        size, rate, clip = self._now(steep, loud)
        seen2 = steep * metric.drift_g2 + loud * metric.drift_c / size
        self.v = self.beta2 * self.v + (1 - self.beta2) * clip**2 * seen2
        seen = metric.step + self.t + 1
        s = rate * float(np.mean(np.sqrt((1 - self.beta2**seen) / self.v))) / (1 - self.beta1**seen)
        keep, gain = 1 - rate * self.weight_decay, (1 - self.beta1) * clip
        self.m = self.beta1 * self.m + gain * h * self.x
        self.x = self.x - rate * self.weight_decay * (metric.pull + self.x - self.start) - s * self.m
        self.rest_m = self.beta1 * self.rest_m + gain * self.rest_h * self.rest_x
        self.rest_x = keep * self.rest_x - s * self.rest_m
        self.noise.step(loud * self.c / size, keep, s, self.beta1, gain)
        self.t += 1
        return Linear(keep, s, self.beta1, gain, size)

    def _now(self, steep: float, loud: float) -> tuple[float, float, float]:
        """The batch size, the learning rate, and the factor by which gradients are clipped in the next step.

        ``steep`` and ``loud`` are the squared gradient and the noise, relative to those at the checkpoint.
        """
        lr, _, batch = self.schedule.at(self.t) if self.schedule else (1.0, 1.0, 1.0)
        size, (signal, noise) = self.size * batch, self.metric.norm2
        norm = math.sqrt(steep * signal + loud * noise / size)
        return size, self.lr * float(lr), min(1.0, self.limit / norm) if norm else 1.0


class AdaptiveTrainings:
    """Sampled trainings on the nodes of a fit in a metric: the path without noise, and what noise has added in each."""

    def __init__(self, path: AdaptiveRun | NaturalRun, replicas: int, rng: np.random.Generator) -> None:
        self.path, self.rng = path, rng
        self.h, self.first, where = np.unique(path.noise.h, return_index=True, return_inverse=True)
        self.c = np.bincount(where, path.c) / path.fit.noise.probes
        near = np.abs(path.h[:, None] - self.h).argmin(0)
        self.shared = np.where(np.isclose(path.h[near], self.h, rtol=1e-9), near, -1)
        """For each node of the noise the node of the signal with the same curvature, or -1."""
        self.x = np.zeros((replicas, len(self.h)))
        self.m = np.zeros_like(self.x)

    @property
    def curvature(self) -> Array:
        """The curvature along each node of the noise now."""
        return self.path.curvature[self.first]

    def losses(self) -> Array:
        """The loss of each training."""
        along = np.where(self.shared >= 0, self.path.x[self.shared], 0.0)
        return self.path.bent((self.curvature * self.x * (along + self.x / 2)).sum(1))

    def step(self) -> None:
        """Take one step in every training."""
        loud = self.path.loudness(self.losses())
        now = self.path.step()
        drawn = self.rng.standard_normal(self.x.shape) * np.sqrt(loud[:, None] * self.c / now.size)
        self.m = now.beta * self.m + now.gain * (self.curvature * self.x + drawn)
        self.x = now.keep * self.x - now.s * self.m
