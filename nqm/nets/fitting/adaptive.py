"""Predict Adam and AdamW from a fit in their metric, step by step.

On a node of curvature h the state is (x, m), the weight's distance from the minimum and the momentum; x begins at g / h and m at
what the optimizer's state brings along. With gradient noise of variance q, a step is

    m <- beta1 m + (1 - beta1) clip (h x + eps),        x <- x - lr weight_decay (pull + x - g / h) - s m,
    s = lr drift / (1 - beta1^t),        drift = mean_i sqrt(v_hat_i at the checkpoint / v_hat_i now).

Gradient noise follows the loss as in `following`: L = phi(signal) + noise, and q = c / B f(L). The squared gradients that v
averages, and the norm that is clipped, are those of the quadratic's own gradient and of this noise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...engine.schedule import Schedule
from ...optimizers import Adam, AdamW, Clipped
from ...optimizers.base import Optimizer
from ...types import Array, Wrong

if TYPE_CHECKING:
    from .metric import AdamMetric
    from .model import Fit


def inner_of(optimizer: Optimizer) -> Adam | AdamW | None:
    """The Adam or AdamW that an optimizer is, or that it clips gradients for."""
    inner = optimizer.inner if isinstance(optimizer, Clipped) else optimizer
    return inner if isinstance(inner, Adam | AdamW) else None


class NodeMoments:
    """The second moments (x x, x m, m m) of noise on nodes of curvature h."""

    def __init__(self, h: Array) -> None:
        self.h, self.xx, self.xm, self.mm = h, np.zeros_like(h), np.zeros_like(h), np.zeros_like(h)

    def step(self, q: Array, keep: float, s: float, beta1: float, clip: float) -> None:
        """A step with noise of variance q; x keeps the part ``keep`` of itself, besides what the momentum does."""
        gain = (1 - beta1) * clip
        a, b, c, d, u, v = keep - s * gain * self.h, -s * beta1, gain * self.h, beta1, -s * gain, gain
        xx, xm, mm = self.xx, self.xm, self.mm
        self.xx = a * a * xx + 2 * a * b * xm + b * b * mm + q * u * u
        self.xm = a * c * xx + (a * d + b * c) * xm + b * d * mm + q * u * v
        self.mm = c * c * xx + 2 * c * d * xm + d * d * mm + q * v * v


class AdaptiveRun:
    """One setting of Adam or AdamW on a fit in their metric; ``bent`` is as in `predict`."""

    def __init__(
        self, fit: Fit, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, *,
        bent: bool = True,
    ) -> None:  # fmt: skip
        inner = inner_of(optimizer)
        if fit.metric is None or inner is None:
            raise Wrong(f"{optimizer} is not predicted from a fit in this metric", argument="optimizer")
        self.metric: AdamMetric = fit.metric
        self.fit, self.size, self.schedule, self.bend = fit, batch_size, schedule, fit.bend if bent else None
        self.limit = float(optimizer.norm) if isinstance(optimizer, Clipped) else math.inf
        self.lr, self.beta1, self.beta2 = float(inner.lr), float(inner.beta1), float(inner.beta2)
        self.weight_decay = float(getattr(inner, "weight_decay", 0.0))

    def course(self, times: Array) -> tuple[Array, Array]:
        """The signal, with the offset, at the reported steps, and the noise of every probe over the batch size."""
        fit, metric, wanted = self.fit, self.metric, set(map(int, times))
        least = float(fit.spectrum.h.min())
        h, rest_h = np.maximum(metric.h, least), np.maximum(metric.rest_h, least)
        start = metric.g / h
        x, m, rest_x, rest_m = start.copy(), metric.m.copy(), 0 * rest_h, np.sqrt(np.maximum(metric.rest_m2, 0))
        noise, c = NodeMoments(np.maximum(fit.noise.h, least)), np.maximum(fit.noise.weight, 0)
        offset = fit.loss - float(h @ start**2) / 2
        v, slope2 = np.full_like(metric.drift_g2, 1 - self.beta2**metric.step), float(metric.g @ metric.g)
        signals, noises = list[float](), list[Array]()
        for t in range(int(times[-1]) + 1):
            signal = self._bent(offset + (float(h @ x**2) + float(rest_h @ rest_x**2)) / 2)
            each = np.bincount(fit.noise.probe, noise.h * noise.xx, fit.noise.probes) / 2
            if t in wanted:
                signals.append(signal)
                noises.append(each)
            loud = 1.0 if self.bend is None else float(self.bend.loudness(signal + float(each.mean())))
            steep = float(((h * x) ** 2).sum()) / slope2
            size, rate, clip = self._now(t, steep, loud)
            seen2 = steep * metric.drift_g2 + loud * metric.drift_c / size
            v = self.beta2 * v + (1 - self.beta2) * clip**2 * seen2
            seen = metric.step + t + 1
            s = rate * float(np.mean(np.sqrt((1 - self.beta2**seen) / v))) / (1 - self.beta1**seen)
            keep, gain = 1 - rate * self.weight_decay, (1 - self.beta1) * clip
            m = self.beta1 * m + gain * h * x
            x = x - rate * self.weight_decay * (metric.pull + x - start) - s * m
            rest_m = self.beta1 * rest_m + gain * rest_h * rest_x
            rest_x = keep * rest_x - s * rest_m
            noise.step(loud * c / size, keep, s, self.beta1, clip)
        return np.array(signals), np.array(noises).T

    def _bent(self, quadratic: float) -> float:
        return quadratic if self.bend is None else float(self.bend(np.array([quadratic]))[0])

    def _now(self, t: int, steep: float, loud: float) -> tuple[float, float, float]:
        """The batch size, the learning rate, and the factor by which gradients are clipped in step t.

        ``steep`` and ``loud`` are the squared gradient and the noise, relative to those at the checkpoint.
        """
        lr, _, batch = self.schedule.at(t) if self.schedule else (1.0, 1.0, 1.0)
        size, (signal, noise) = self.size * batch, self.metric.norm2
        norm = math.sqrt(steep * signal + loud * noise / size)
        return size, self.lr * float(lr), min(1.0, self.limit / norm) if norm else 1.0
