"""The preconditioner P of K-FAC at fixed weights, as the linear map P^1/2 of flat weights.

In a layer with the damped factors A and G, P maps a gradient V to ``G^-1 V A^-1``, so that P^1/2 maps it to
``G^-1/2 V A^-1/2``. The gradients of other parameters are divided by f + damping, as `rules.kfac` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...types import Wrong
from ..network import Network
from ..trees import tree_map
from .kronecker import KroneckerLayer, dampings, layers_of, others, statistics
from .stacks import Plain

FEW_EXAMPLES = 32
"""Examples in a batch of which squared gradients estimate the diagonal of the Fisher matrix; many batches are averaged."""
MOST_EXAMPLES = 2**14  # number of examples of which the factors are the mean, at most
ROOT_STREAM = 0xFAC  # stream of the targets that the model draws for the factors, separate from those of trainings


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors A and G of each layer, and the diagonal f of the Fisher matrix for the parameters of no layer."""

    layers: list[KroneckerLayer]
    pairs: dict[str, tuple[Tensor, Tensor]]
    diagonal: Tensor


def factors_at(
    network: Network, theta: Tensor, *, empirical: bool = False, examples: int = MOST_EXAMPLES, draws: int = 1
) -> Factors:
    """The mean factors over some examples, spread evenly over the data, with targets drawn anew so many times."""
    layers, slopes = layers_of(network), Plain(network)
    count = min(examples, network.examples)
    index = torch.arange(count, device="cpu") * network.examples // count
    size = FEW_EXAMPLES if others(network, layers) else network.chunk
    total, drawn = None, [torch.Generator().manual_seed(ROOT_STREAM)]
    for _ in range(1 if empirical else draws):
        for part in index.split(size):
            found = statistics(slopes, layers, theta[None], part[None], None if empirical else drawn)
            new = found.factors, len(part) * found.drawn**2
            share = len(part) / count / (1 if empirical else draws)
            scaled = tree_map(lambda t, share=share: share * t[0].double(), new)
            total = scaled if total is None else tree_map(torch.add, total, scaled)
    assert total is not None
    return Factors(layers, *total)


class KroneckerRoot:
    """P^1/2 of a network's layers; a `Root` of `rescaled`."""

    def __init__(self, network: Network, factors: Factors, damping: float) -> None:
        self.network, self.layers = network, factors.layers
        self.down: dict[str, tuple[Tensor, Tensor]] = {}
        self.up: dict[str, tuple[Tensor, Tensor]] = {}
        for layer in self.layers:
            A, G = factors.pairs[layer.name]
            into = dampings(layer, A[None], G[None], torch.tensor([damping**0.5], dtype=A.dtype, device=A.device))
            (down_a, up_a), (down_g, up_g) = (
                tuple(part.to(network.theta) for part in _roots(M, float(added)))
                for M, added in zip((A, G), into, strict=True)
            )
            self.down[layer.name], self.up[layer.name] = (down_a, down_g), (up_a, up_g)
        self.rest = others(network, self.layers)
        around = (damping + factors.diagonal).sqrt().to(network.theta)
        self.around = network.unflatten(around) if self.rest else {}

    def apply(self, v: Tensor) -> Tensor:
        """P^1/2 v, for a flat vector or for each row of a stack of them."""
        return self._mapped(v, self.down, {name: 1 / self.around[name] for name in self.rest})

    def unapply(self, v: Tensor) -> Tensor:
        """P^-1/2 v."""
        return self._mapped(v, self.up, self.around)

    def _mapped(self, v: Tensor, maps: dict[str, tuple[Tensor, Tensor]], around: dict[str, Tensor]) -> Tensor:
        parts = Network.unflatten(self.network, v.reshape(-1, v.shape[-1]))
        found = {name: parts[name] * around[name] for name in self.rest}
        for layer in self.layers:
            A, G = maps[layer.name]
            V = G @ layer.matrix(parts)
            found |= layer.parts(V * A if layer.diagonal else V @ A, self.network.shapes)
        return torch.cat([found[name].flatten(1) for name in self.network.shapes], dim=1).reshape(v.shape)


def _roots(M: Tensor, damping: float) -> Sequence[Tensor]:
    """(M + damping)^-1/2 and (M + damping)^1/2; M is symmetric, or a vector that stands for a diagonal matrix."""
    if not bool(M.isfinite().all()):
        raise Wrong("the Kronecker factors are not finite at this checkpoint", argument="optimizer")
    if M.ndim == 1:
        return (M + damping) ** -0.5, (M + damping) ** 0.5
    h, U = torch.linalg.eigh((M + M.mT) / 2)
    h = h.clamp(min=0) + damping
    return (U * h**-0.5) @ U.mT, (U * h**0.5) @ U.mT
