"""The law of a forecast: a noisy quadratic in closed form, with the weight norm as one more state.

With eta the effective rate of a step, S = sum eta the intrinsic time and two measures over curvature,

    loss = floor + A (1 + S / s0)^-alpha + z / (1 + k z)
    z    = N sum over steps j of eta_j^2 K(S - S_j) / ratio_j,      K(u) = (1 + 2 C u)^-b

The first is a quadratic whose signal has the density h^(alpha - 1) exp(-2 h s0) over curvature h. The second is its noise: a
step leaves eta^2, which the curvatures forget as exp(-2 h u); with the density h^(b - 1) exp(-h / C) their sum is K. The
exponent b is not fitted. ``ratio`` is the batch size over the reference. Large noise leaves the region in which the loss is
quadratic, and costs less than the quadratic says: k is how soon. Over a block of steps with one rate the sum over j is the
integral of K, which for b = 1 is a logarithm.

What moves a network that is normalised is the update over the norm R of its weights. AdamW's updates have a size of their
own, so

    eta = lr / R sqrt(ratio),        R^2 <- R^2 (1 - lr wd)^2 + lr^2,        R_0^2 = r0

in units of the update's size. The norm forgets its start with the rate 2 lr wd: over the whole of a usual run. Where the
weight decay is not known, the norm is taken at its steady state for the peak rate, eta = lr / sqrt(peak). SGD has eta = lr.
Gradient noise falls with the batch size; with Adam's updates, which are divided by it, the step along the signal grows with
its square root instead, hence the ratio in eta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..types import Array
from .course import Course

NAMES = ("floor", "A", "alpha", "s0", "N", "C", "k", "r0")
"""The parameters, all positive. A fit works with their logarithms."""


@dataclass(frozen=True)
class RateMetric:
    """How a learning rate becomes an effective one: by the weight norm, its steady state, or as it is."""

    kind: Literal["norm", "half", "plain"]
    weight_decay: float = 0.0

    @property
    def adaptive(self) -> bool:
        """Whether updates are divided by the size of the gradient, as Adam's are."""
        return self.kind != "plain"

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that a fit may move."""
        return NAMES if self.kind == "norm" else NAMES[:-1] if self.adaptive else NAMES[:-2]

    def rates(self, course: Course, r0: float) -> tuple[Array, Array]:
        """Effective rates of the blocks, and their derivatives by log r0."""
        lr = course.lr * np.sqrt(course.batch_size) if self.adaptive else course.lr
        if self.kind == "norm":
            middle, slope = self.norms(course, r0)
            eta = lr / np.sqrt(middle)
            return eta, -eta * slope / middle / 2
        return (lr / np.sqrt(course.peak) if self.kind == "half" else lr), np.zeros(len(lr))

    def rates_within(self, course: Course, parts: Course, r0: float) -> Array:
        """Effective rates of parts of blocks: ``parts.blocks`` are the blocks, at whose beginnings the parts begin."""
        if self.kind != "norm":
            return self.rates(parts, r0)[0]
        keep = np.exp(-course.lr * self.weight_decay * course.lengths)
        middle, _ = self.norms(course, r0)
        square = np.where(keep > 1e-9, (middle - grown(course, self.weight_decay)) / np.maximum(keep, 1e-9), middle)
        held = square[parts.blocks] * np.exp(-parts.lr * self.weight_decay * parts.lengths)
        return parts.lr * np.sqrt(parts.batch_size) / np.sqrt(held + grown(parts, self.weight_decay))

    def norms(self, course: Course, r0: float) -> tuple[Array, Array]:
        """R^2 in the middle of each block, and its derivative by log r0."""
        shrink = 2 * course.lr * self.weight_decay * course.lengths
        half = np.exp(-shrink / 2)
        rest = grown(course, self.weight_decay)
        middle, slope = np.empty(len(half)), np.empty(len(half))
        square, change = r0, r0
        for i, (q, g) in enumerate(zip(half.tolist(), rest.tolist(), strict=True)):
            middle[i], slope[i] = square * q + g, change * q
            square, change = middle[i] * q + g, slope[i] * q
        return middle, slope


def grown(course: Course, weight_decay: float) -> Array:
    """What the steps of half a block add to R^2: lr^2 each, less what the decay takes of it."""
    a = course.lr * weight_decay * course.lengths  # half of the block's 2 lr wd
    share = np.where(a > 1e-12, -np.expm1(-a) / np.maximum(a, 1e-300), 1.0)
    return course.lr**2 * course.lengths / 2 * share


@dataclass(frozen=True, eq=False)
class LossLaw:
    """The law with its parameters, in the metric of an optimizer."""

    metric: RateMetric
    theta: Array  # logarithms of the parameters, in the order of NAMES
    exponent: float = 1.0  # b, with which the noise of a step is forgotten

    def __getitem__(self, name: str) -> float:
        """A parameter by its name; k is 0 where noise never saturates."""
        if name == "k" and not self.metric.adaptive:
            return 0.0
        return float(np.exp(self.theta[NAMES.index(name)]))

    def parts(self, course: Course) -> tuple[Array, Array]:
        """Signal above the floor, and noise, at each reading of a course."""
        found = self._evaluate(course)
        return found["signal"], found["noise"]

    def parts_within(self, course: Course, parts: Course) -> tuple[Array, Array]:
        """Signal and noise after parts of blocks (see `RateMetric.rates_within`)."""
        eta, own = self.metric.rates(course, self["r0"])[0], self.metric.rates_within(course, parts, self["r0"])
        S = np.append(0.0, np.cumsum(course.lengths * eta))
        steps, St = parts.lengths, S[parts.blocks] + parts.lengths * own
        before = np.arange(len(eta)) < parts.blocks[:, None]
        u0, u1 = before * (St[:, None] - S[:-1]), before * (St[:, None] - S[1:])
        z = self._memory(u0, u1) @ (eta / course.batch_size)
        z = self["N"] * (z + self._memory(steps * own, np.zeros(len(own))) * own / parts.batch_size)
        return self["A"] * (1 + St / self["s0"]) ** -self["alpha"], z / (1 + self["k"] * z)

    def loss(self, course: Course) -> Array:
        """The expected loss at each reading."""
        signal, noise = self.parts(course)
        return self["floor"] + signal + noise

    def jacobian(self, course: Course) -> tuple[Array, Array]:
        """The losses, and their derivatives by the logarithms of the parameters: one column for each of NAMES."""
        f = self._evaluate(course)
        alpha, s0, k = self["alpha"], self["s0"], self["k"]
        signal, z, u0, u1, K0, K1 = f["signal"], f["z"], f["u0"], f["u1"], f["K0"], f["K1"]
        by_z = 1 / (1 + k * z) ** 2
        weight = f["eta"] / f["ratio"]
        by_C = self["N"] * ((u0 * K0 - u1 * K1 - f["F"]) @ weight)
        after, before, read = f["dS"], f["dS0"], f["dSt"]
        moved = f["live"] * (K0 * (read[:, None] - before) - K1 * (read[:, None] - after))
        by_r0 = self["N"] * (f["F"] @ (f["deta"] / f["ratio"]) + moved @ weight)
        g, St = f["g"], f["St"]
        columns = {
            "floor": np.full(len(z), self["floor"]), "A": signal, "alpha": -signal * np.log(g) * alpha,
            "s0": signal * alpha * (St / s0) / g, "N": by_z * z, "C": by_z * by_C, "k": -by_z * z * z * k,
            "r0": by_z * by_r0 - signal * alpha / g * read / s0,
        }  # fmt: skip
        return self["floor"] + signal + f["noise"], np.stack([columns[name] for name in NAMES], axis=1)

    def final(self, course: Course) -> tuple[float, Array]:
        """The loss at the end of a course, and its derivative by the learning rate of each block."""
        eta, _ = self.metric.rates(course, self["r0"])
        ratio, n = course.batch_size, course.lengths
        S = np.append(0.0, np.cumsum(n * eta))
        u0, u1 = S[-1] - S[:-1], S[-1] - S[1:]
        F, k = self._memory(u0, u1), self["k"]
        weight = eta / ratio
        z = self["N"] * float(F @ weight)
        g = 1 + S[-1] / self["s0"]
        signal = self["A"] * g ** -self["alpha"]
        loss = self["floor"] + signal + z / (1 + k * z)
        # A longer block i moves the end away from all blocks before it and from its own beginning.
        later = np.cumsum(weight * self._kernel(u0)) - np.append(0.0, np.cumsum(weight * self._kernel(u1))[:-1])
        by_eta = self["N"] * (F / ratio + n * later) / (1 + k * z) ** 2
        by_eta -= n * signal * self["alpha"] / g / self["s0"]
        return float(loss), self._by_rate(course, eta, by_eta)

    def _by_rate(self, course: Course, eta: Array, by_eta: Array) -> Array:
        """From derivatives by effective rates to those by learning rates, back through the weight norm."""
        scale = np.sqrt(course.batch_size) if self.metric.adaptive else np.ones(len(eta))
        if self.metric.kind == "plain":
            return by_eta
        if self.metric.kind == "half":
            by_lr = by_eta * scale / np.sqrt(course.peak)
            top = int(np.argmax(course.lr))
            if course.lr[top] >= course.peak:  # The peak moves with the first block that has it.
                by_lr[top] -= float(by_eta @ eta) / (2 * course.peak)
            return by_lr
        wd, n, lr = self.metric.weight_decay, course.lengths, course.lr
        middle, _ = self.metric.norms(course, self["r0"])
        rest = grown(course, wd)
        q = np.exp(-lr * wd * n)
        q_by_lr = -wd * n * q
        # rest = lr (1 - exp(-lr wd n)) / (2 wd), which is lr^2 n / 2 without decay.
        rest_by_lr = np.where(wd > 0, rest / np.maximum(lr, 1e-300) + lr * n * q / 2, lr * n)
        by_lr = by_eta * scale / np.sqrt(middle)
        by_middle = -by_eta * eta / middle / 2
        square = np.append(self["r0"], middle * q + rest)[:-1]  # R^2 at the beginning of each block
        back = 0.0  # derivative by R^2 at the end of the block
        for i in range(len(eta) - 1, -1, -1):
            here = by_middle[i] + back * q[i]
            by_lr[i] += here * (square[i] * q_by_lr[i] + rest_by_lr[i]) + back * (
                middle[i] * q_by_lr[i] + rest_by_lr[i]
            )
            back = here * q[i]
        return by_lr

    def _kernel(self, u: Array) -> Array:
        """K(u), what is left of a step's noise after the intrinsic time u."""
        return (1 + 2 * self["C"] * u) ** -self.exponent

    def _memory(self, u0: Array, u1: Array) -> Array:
        """The integral of K from u1 to u0."""
        C, rest = self["C"], 1 - self.exponent
        x0, x1 = np.log1p(2 * C * u0), np.log1p(2 * C * u1)
        return ((x0 - x1) if rest == 0 else (np.expm1(rest * x0) - np.expm1(rest * x1)) / rest) / (2 * C)

    def _evaluate(self, course: Course) -> dict[str, Array]:
        eta, deta = self.metric.rates(course, self["r0"])
        S = np.append(0.0, np.cumsum(course.lengths * eta))
        dS = np.append(0.0, np.cumsum(course.lengths * deta))
        St, dSt = S[course.blocks + 1], dS[course.blocks + 1]
        u0, u1 = np.maximum(St[:, None] - S[:-1], 0), np.maximum(St[:, None] - S[1:], 0)
        live = u0 > 0
        F = self._memory(u0, u1)
        z = self["N"] * (F @ (eta / course.batch_size))
        g = 1 + St / self["s0"]
        return {
            "eta": eta, "deta": deta, "dS": dS[1:], "dS0": dS[:-1], "St": St, "dSt": dSt, "u0": u0, "u1": u1, "live": live,
            "K0": live * self._kernel(u0), "K1": live * self._kernel(u1), "F": F, "z": z, "g": g,
            "ratio": course.batch_size, "signal": self["A"] * g ** -self["alpha"], "noise": z / (1 + self["k"] * z),
        }  # fmt: skip
