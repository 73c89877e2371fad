"""Adam sampled mode by mode, in a compiled loop: what its mean field is held against.

Adam treats every parameter by itself, so the modes of a quadratic are independent and each can have its own number of replicas.
The replicas of a mode come in groups. In each group the starts are stratified: one from each slice of equal mass of the normal law,
in random order. The groups are independent, so that their scatter gives the standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import njit
from scipy.special import ndtri

from nqm import Adam
from nqm.types import Array

GROUPS = 20
"""Groups of replicas, whose scatter gives the standard error with 19 degrees of freedom."""
LEVELS = 2**14
"""Normal numbers are drawn from the means of this many slices of equal mass, scaled to variance 1; their fourth moment is 2.9993."""


@dataclass(frozen=True)
class Replicas:
    """How often each mode is sampled."""

    first: int
    """Replicas of each of the ``many`` modes of largest curvature, which hold most of the loss."""
    rest: int
    """Replicas of each other mode. Their errors average out over the modes."""
    many: int = 64

    def of(self, mode: int) -> int:
        return self.first if mode < self.many else self.rest


@cache
def normal_levels() -> Array:
    """The means of slices of equal mass of the normal law, scaled to variance 1."""
    edges = ndtri(np.arange(LEVELS + 1) / LEVELS)
    density = np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)
    means = LEVELS * (density[:-1] - density[1:])
    return means / np.sqrt(np.mean(means**2))


def stratified(count: int, rng: np.random.Generator) -> Array:
    """Normal numbers, one from each of ``count`` slices of equal mass, in random order."""
    return rng.permutation(ndtri((np.arange(count) + rng.random(count)) / count))


def sampled(
    adam: Adam, dim: int, batch_size: float, start: str, times: Array, replicas: Replicas, seed: int
) -> tuple[Array, Array]:
    """Mean loss and its standard error after each of the times, on dim modes with h = c = 1 / i."""
    rng, losses = np.random.default_rng(seed), np.zeros((GROUPS, len(times)))
    settings = adam.lr, adam.beta1, adam.beta2, adam.eps
    for mode in range(dim):
        h, count = 1 / (mode + 1), replicas.of(mode) // GROUPS
        for group in losses:
            theta = stratified(count, rng) if start == "gaussian" else np.ones(count)
            states = rng.integers(1, 2**63, count, dtype=np.uint64)
            group += h / 2 * squares(theta, states, h, np.sqrt(h / batch_size), *settings, times, normal_levels())
    return losses.mean(axis=0), losses.std(axis=0, ddof=1) / np.sqrt(GROUPS)


@njit(cache=True, fastmath=True, error_model="numpy", nogil=True)
def squares(
    theta: Array, states: Array, h: float, sd: float, lr: float, beta1: float, beta2: float, eps: float, times: Array,
    levels: Array,
) -> Array:  # fmt: skip
    """The mean of theta^2 over replicas after each of the times; ``states`` are those of one xorshift generator for each."""
    z, m, v = np.zeros(len(theta)), np.zeros(len(theta)), np.zeros(len(theta))
    found, t = np.empty(len(times)), 0
    for i in range(len(times)):
        while t < times[i]:
            t += 1
            rate, unbiased = lr / (1 - beta1**t), 1 / (1 - beta2**t)
            for k in range(len(theta)):  # Two loops, because the compiler vectorises each of them, and not both in one.
                x = states[k]
                x ^= x >> np.uint64(12)
                x ^= x << np.uint64(25)
                x ^= x >> np.uint64(27)
                states[k] = x
                z[k] = levels[x >> np.uint64(50)]
            for k in range(len(theta)):
                g = h * theta[k] + sd * z[k]
                m[k] = beta1 * m[k] + (1 - beta1) * g
                v[k] = beta2 * v[k] + (1 - beta2) * g * g
                theta[k] -= rate * m[k] / (np.sqrt(v[k] * unbiased) + eps)
        found[i] = np.mean(theta * theta)
    return found
