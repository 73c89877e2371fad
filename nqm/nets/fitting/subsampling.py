"""A fit on some of the examples: how far its numbers may be from those of all the data.

n of N examples are drawn without replacement, and split at random into K groups. Each number is computed again without one
group after the other (the jackknife); its variance is (1 - n/N) (K - 1)/K times the sum of the squared deviations. The largest
curvature is that of G on the span of a few Ritz vectors Y of the sample. It is biased upwards, so the jackknife's estimate of the
bias, (1 - n/N) (K - 1) times the mean change by leaving a group out, is subtracted. |g|^2 and tr C are estimated without bias, with
the gradients of single examples as parts of the gradient (`monitoring.ratios`). The noise scale has Fieller's interval.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...sampling.replicas import check_whole
from ...types import Array, Wrong
from ..curvature import curvature_of
from ..estimates import LEVELS, Estimate
from ..monitoring.ratios import GradientParts, fieller
from ..network import Network
from .budget import in_small_pieces
from .sampled import Subsample

GROUPS = 20  # groups of examples of the jackknife; Student's t then has 19 degrees of freedom
SPANNING_VECTORS = (
    8  # largest Ritz vectors on whose span the curvature of groups is compared; 4 leave more bias, 16 hardly less
)
SAMPLE_STREAM = 0x5A3  # stream of the generator that draws the examples of a sample


def sample_of(network: Network, examples: int, seed: int) -> Network:
    """The network on some of its examples, drawn without replacement and in random order."""
    check_whole("sample", examples, 2 * GROUPS)
    if examples > network.examples:
        has = f"the data of {network.name} has {network.examples:,}"
        raise Wrong(f"sample is {examples:,}, and {has}: ask for at most as many, or omit it", argument="sample")
    picks = np.random.default_rng([SAMPLE_STREAM, seed]).permutation(network.examples)[:examples]
    return _with(network, network.take(torch.as_tensor(picks, device="cpu")), examples)


def _with(network: Network, data: Any, examples: int) -> Network:
    other = copy.copy(network)
    other.data, other.examples = data, examples
    return other


def sampling_errors(
    network: Network, population: int, g: Tensor, top: Tensor, *, curvature: str | None, seed: int
) -> Subsample:  # fmt: skip
    """The sampling errors of a network on a sample of a ``population``, at its gradient g, with its largest Ritz vectors as rows."""
    from scipy.special import stdtrit

    n, left = network.examples, 1 - network.examples / population
    groups = [_Group.of(part, g, top, curvature, seed) for part in _parts(network)]
    total, square = _Group.sum(groups), _dot(g, g)
    found, each = _numbers(total, square, population), []
    for one in groups:
        rest = (n**2 * square - 2 * n * one.along + one.square) / (n - one.examples) ** 2  # |g|^2 without this group
        each.append(_numbers(_Group.sum([other for other in groups if other is not one]), rest, population))
    scatter = np.array(each) - np.mean(each, 0)
    covariance = left * (GROUPS - 1) / GROUPS * scatter.T @ scatter
    found[1] -= left * (GROUPS - 1) * (np.mean(each, 0)[1] - found[1])  # the bias of the largest eigenvalue
    quantile = float(stdtrit(GROUPS - 1, LEVELS[1]))
    loss, h, noise, signal = (
        Estimate(float(value), float(value - quantile * error), float(value + quantile * error))
        for value, error in zip(found, np.sqrt(np.diag(covariance)), strict=True)
    )
    ends = fieller(noise.value, signal.value, covariance[2:, 2:], quantile)
    ratio = noise.value / signal.value if signal.value > 0 else math.inf
    return Subsample(population, n, loss, signal, noise, Estimate(ratio, *ends), h)


@dataclass(frozen=True, eq=False)
class _Group:
    """Sums over a group of examples: the loss, YGY', |g_j|^2, their gradients times g, and the squared norm of their gradients."""

    examples: int
    loss: float
    G: Array
    squares: float
    along: float = 0.0
    square: float = 0.0

    @classmethod
    def of(cls, network: Network, g: Tensor, top: Tensor, curvature: str | None, seed: int) -> _Group:
        n, mean = network.examples, network.gradient()
        G = (curvature_of(network, curvature, seed=seed)(top) @ top.T).cpu().double().numpy()
        squares = sum(
            float(torch.linalg.vector_norm(each, dtype=torch.float64) ** 2)
            for each in in_small_pieces(network).example_gradients()
        )
        return cls(n, n * network.full_loss(), n * G, squares, n * _dot(mean, g), n**2 * _dot(mean, mean))

    @classmethod
    def sum(cls, groups: Sequence[_Group]) -> _Group:
        columns = zip(*((one.examples, one.loss, one.G, one.squares) for one in groups), strict=True)
        return cls(*(sum(column) for column in columns))  # type: ignore[arg-type]


def _parts(network: Network) -> Iterator[Network]:
    """The network on each group of examples."""
    for part in np.array_split(np.arange(network.examples), GROUPS):
        yield _with(network, network.take(slice(int(part[0]), int(part[-1]) + 1)), len(part))


def _numbers(group: _Group, square: float, population: int) -> Array:
    """Loss, largest curvature, tr C and |g|^2 of the population, from a group and the squared norm of its mean gradient."""
    n = group.examples
    h = np.linalg.eigvalsh((group.G + group.G.T) / (2 * n))[-1]
    noise, signal = GradientParts(group.squares / n**2, square, 1.0, 1 / n, 1 / n).estimates(population)
    return np.array([group.loss / n, h, noise, signal])


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.sum(a * b, dtype=torch.float64))
