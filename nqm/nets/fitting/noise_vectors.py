"""Random combinations of centred per-example gradients, whose covariance is that of the gradient noise.

With e_j standard normal, ``n = N^-1/2 sum_j e_j (g_j - g)`` has E n n' = C, the covariance of single-example gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..krylov import standard_normal
from ..network import Network
from .budget import give_back, together

VECTORS_TOGETHER = 8  # vectors that are multiplied together, at most


def noise_draws(network: Network, count: int, generator: torch.Generator) -> Tensor:
    """Random weights of the examples, one row for each noise vector."""
    draws = standard_normal((count, network.examples), generator, torch.float64, "cpu")
    return draws.to(network.theta.dtype).to(network.theta.device)


def random_noise(network: Network, draws: Tensor, g: Tensor, spare: Tensor | None = None) -> Tensor:
    """Random combinations of per-example gradients, centred by the gradient g, as rows; none of these gradients is formed.

    The rows are written to those of ``spare``, if there are enough of them.
    """
    give_back()
    theta, low = network.theta, 0
    if spare is not None and len(spare) >= len(draws) and (spare.dtype, spare.device) == (theta.dtype, theta.device):
        total = spare[: len(draws)].zero_()
    else:
        total = torch.zeros(len(draws), network.dim, dtype=theta.dtype, device=theta.device)
    for batch, _ in network.batches():
        found, pull = network.ways.pulled(lambda t, b=batch: network.losses(t, b), theta)
        high = low + len(found)
        some = together(theta, VECTORS_TOGETHER)
        for rows, weights in zip(total.split(some), draws.split(some), strict=True):
            rows += pull(weights[:, low:high]).detach()
        low = high
    for row, weight in zip(total, draws.sum(1), strict=True):
        row.sub_(weight * g).div_(network.examples**0.5)
    return total
