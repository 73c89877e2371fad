"""A network in other units of its weights: the coordinates in which a diagonal preconditioner is the identity.

An optimizer that multiplies gradients by D moves theta as plain steps move ``w = D^-1/2 theta``:

    theta <- theta - lr D g        is        w <- w - lr D^1/2 g,

and ``D^1/2 g`` is the gradient of the loss as a function of w. So the curvature, the noise and the training of a preconditioned
optimizer are those of a plain one on `Rescaled`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torch import Tensor, nn

from ..types import Wrong
from .network import Network
from .trees import Tree


class Rescaled(Network):
    """A network as a function of ``w = theta / root``; ``root`` has a positive entry for each weight."""

    root: Tensor

    def __init__(self, network: Network, root: Tensor) -> None:
        if root.shape != network.theta.shape or not bool(((root > 0) & root.isfinite()).all()):
            raise Wrong(f"root must have {network.dim:,} positive entries, got shape {tuple(root.shape)}", "root")
        self.__dict__.update({k: v for k, v in vars(network).items() if k != "_bound"})
        self.root = root.to(network.theta)
        self.theta = network.theta / self.root

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        return super().unflatten(theta * self.root)

    def loaded(self, theta: Tensor) -> Callable[[Tree], Tensor]:
        return super().loaded(theta * self.root)

    def gradient(self, theta: Tensor | None = None, batch: Tree | None = None) -> Tensor:
        return super().gradient(theta, batch) * self.root

    @cached_property
    def _bound(self) -> tuple[nn.Module, list[Tensor], Tensor]:
        return Network.at(self._plain, self.theta * self.root)._bound

    @property
    def _plain(self) -> Network:
        """The network in its own units."""
        other = Network.__new__(Network)
        other.__dict__.update({k: v for k, v in vars(self).items() if k not in ("_bound", "root")})
        return other
