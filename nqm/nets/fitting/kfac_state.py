"""Measure the preconditioner of K-FAC at a checkpoint, and how it drifts along the descent of a fit."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ...types import Array, Wrong
from ..natural import KFAC
from ..network import Network
from ..rescaled import Rescaled
from ..training.kronecker_root import Factors, KroneckerRoot, factors_at
from ..training.rules.kfac import kfac
from .descent import NOISE_EXAMPLES, total_noise
from .kfac_metric import KFACMetric
from .noise_vectors import noise_draws, random_noise

FACTOR_DRAWS = 4  # number of times that targets are drawn for the factors at the checkpoint
STIR_VECTORS = 2  # number of random noise vectors that are added to weights, with both signs
STIR_SHARE = 0.25  # share of the loss that this is made to add
MOST_RATIO = 100.0  # largest factor by which the loss that is added is corrected in one of these rounds
STIR_ROUNDS = 4  # number of times that their length is corrected to add so much
DRIFT_DRAWS = 4  # number of times that they are drawn for the factors along the descent, on fewer examples


class KFACState:
    """The preconditioner at the checkpoint of a network, and what the descent shows of its drift."""

    def __init__(self, network: Network, optimizer: KFAC) -> None:
        _check(network, optimizer)
        self.network, self.optimizer = network, optimizer
        self.root = self._root(
            factors_at(network, network.theta, empirical=bool(optimizer.empirical), draws=FACTOR_DRAWS)
        )
        self.losses, self.values, self.stirs = list[float](), list[float](), list[float]()
        self.noise = total_noise(self.rescaled)
        self.usual = self._root(self._few(network.theta))

    @property
    def rescaled(self) -> Rescaled:
        """The network in the units of the metric."""
        return Rescaled(self.network, self.root)

    def see(self, w: Tensor, loss: float) -> None:
        """Measure the drift at weights in the units of the metric, which have this loss."""
        theta = self.root.apply(w)
        g = self.network.gradient(theta)
        now = self._root(self._few(theta))
        self.losses.append(loss)
        self.values.append(_square(now.apply(g)) / _square(self.usual.apply(g)))
        self.stirs.append(self._stir(self.rescaled.at(w), loss))

    def metric(self) -> KFACMetric:
        """What the fit keeps."""
        drift, stir, losses = (np.array(given)[::-1] for given in (self.values, self.stirs, self.losses))
        fine = np.isfinite(drift) & (drift > 0) & (losses > 0)
        norm2 = np.array([_square(self.network.gradient()), total_noise(self.network)])
        return KFACMetric(self.optimizer, losses[fine], drift[fine], _filled(losses[fine], stir[fine]), norm2)

    def _stir(self, network: Network, loss: float) -> float:
        """What the noise of gradients gains, over that at the checkpoint, per unit of loss that noise in the weights adds."""
        draws = noise_draws(network, STIR_VECTORS, torch.Generator().manual_seed(0))
        vectors = random_noise(network, draws, network.gradient())
        vectors = torch.cat([vectors, -vectors]) / max(math.sqrt(_square(vectors) / STIR_VECTORS), 1e-30)
        length, added = math.sqrt(loss), 0.0
        for _ in range(STIR_ROUNDS):
            added = float(np.mean([network.full_loss(network.theta + length * one) for one in vectors])) - loss
            if STIR_SHARE / 2 < added / loss < 2 * STIR_SHARE:
                break
            length *= math.sqrt(min(max(STIR_SHARE * loss / max(added, 1e-12), 1 / MOST_RATIO), MOST_RATIO))
        else:
            return math.nan
        noise = float(np.mean([total_noise(network, network.theta + length * one) for one in vectors]))
        return (noise - total_noise(network)) / self.noise / added if added > 0 else math.nan

    def _few(self, theta: Tensor) -> Factors:
        """The factors at some weights, on the examples of which the descent measures noise."""
        empirical = bool(self.optimizer.empirical)
        return factors_at(self.network, theta, empirical=empirical, examples=NOISE_EXAMPLES, draws=DRIFT_DRAWS)

    def _root(self, factors: Factors) -> KroneckerRoot:
        return KroneckerRoot(self.network, factors, float(self.optimizer.damping))


def _check(network: Network, optimizer: KFAC) -> None:
    """Refuse settings and networks that the lab's rule cannot train."""
    settings = {name: value for name, value in vars(optimizer).items() if isinstance(value, int | float)}
    try:
        kfac().check_settings({"lr": 1.0, **settings}, network)
    except Wrong as error:
        raise Wrong(str(error), argument="optimizer") from None


def _filled(losses: Array, values: Array) -> Array:
    """The values, interpolated in logarithms where they are not positive numbers; zeros if none of them is."""
    good = values > 0
    if not good.any():
        return np.zeros_like(values)
    return np.exp(np.interp(np.log(losses), np.log(losses[good]), np.log(values[good])))


def _square(v: Tensor) -> float:
    return float(torch.linalg.vector_norm(v, dtype=torch.float64) ** 2)
