"""A network in other units of its weights: the coordinates in which a preconditioner is the identity.

An optimizer that multiplies gradients by a positive definite P moves theta as plain steps move ``w = P^-1/2 theta``:

    theta <- theta - lr P g        is        w <- w - lr P^1/2 g,

and ``P^1/2 g`` is the gradient of the loss as a function of w. So the curvature, the noise and the training of a preconditioned
optimizer are those of a plain one on `Rescaled`. Its `Root` is P^1/2: diagonal for Adam, a Kronecker product in each layer for
K-FAC (`training.kronecker_root`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from torch import Tensor, nn

from ..types import Wrong
from .network import Network
from .trees import Tree


class Root(Protocol):
    """A symmetric, positive definite map of flat weights: P^1/2 of a preconditioner P."""

    def apply(self, v: Tensor) -> Tensor:
        """P^1/2 v, for a flat vector or for each row of a stack of them."""
        ...

    def unapply(self, v: Tensor) -> Tensor:
        """P^-1/2 v."""
        ...


class DiagonalRoot:
    """A positive factor for each weight of a network."""

    def __init__(self, network: Network, factors: Tensor) -> None:
        if factors.shape != network.theta.shape or not bool(((factors > 0) & factors.isfinite()).all()):
            raise Wrong(f"root must have {network.dim:,} positive entries, got shape {tuple(factors.shape)}", "root")
        self.factors = factors.to(network.theta)

    def apply(self, v: Tensor) -> Tensor:
        return v * self.factors

    def unapply(self, v: Tensor) -> Tensor:
        return v / self.factors


class Rescaled(Network):
    """A network as a function of ``w = P^-1/2 theta``; ``root`` is P^1/2."""

    root: Root

    def __init__(self, network: Network, root: Root) -> None:
        self.__dict__.update({k: v for k, v in vars(network).items() if k != "_bound"})
        self.root = root
        self.theta = root.unapply(network.theta)

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        return super().unflatten(self.root.apply(theta))

    def loaded(self, theta: Tensor) -> Callable[[Tree], Tensor]:
        return super().loaded(self.root.apply(theta))

    def gradient(self, theta: Tensor | None = None, batch: Tree | None = None) -> Tensor:
        return self.root.apply(super().gradient(theta, batch))

    @cached_property
    def _bound(self) -> tuple[nn.Module, list[Tensor], Tensor]:
        return Network.at(self._plain, self.root.apply(self.theta))._bound

    @property
    def _plain(self) -> Network:
        """The network in its own units."""
        other = Network.__new__(Network)
        other.__dict__.update({k: v for k, v in vars(self).items() if k not in ("_bound", "root")})
        return other
