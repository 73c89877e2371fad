"""Exact products with curvature matrices of a network; the matrices are never formed.

With outputs f(theta; x), their Jacobian J, the loss L of one example and means over all examples:

    GaussNewton      G = mean J' (d^2 L / df^2) J       the default; positive semi-definite for a convex loss
    Hessian          H = d^2 (mean L) / d theta^2
    Fisher           F = mean g g',  g the gradient of L at targets drawn from the model
    EmpiricalFisher  E = mean g g',  g the gradient of L at the data's targets

Each multiplies several vectors at once, (vectors, parameters), in passes over pieces of the data whose size bounds memory.
A product with G is one forward-mode and one reverse-mode pass, and costs about as much as three gradients. Where a model lacks
forward mode or cannot be vectorised, a slower way is taken (`derivatives`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor

from ..text.imports import user_code
from ..types import Wrong
from .krylov import standard_normal
from .network import Likelihood, Network
from .trees import Tree

FISHER_SEED = 0x0F15  # offset of the seeds of drawn targets, so that they differ from the seeds of probes


class Curvature(ABC):
    """A symmetric matrix at the checkpoint of a network, given by its products with vectors, which it counts and times."""

    def __init__(self, network: Network, vectors: int = 8) -> None:
        self.network, self.vectors, self.products, self.seconds = network, vectors, 0, 0.0

    @property
    def name(self) -> str:
        """The name of the matrix, as in the table above."""
        return type(self).__name__

    def __call__(self, v: Tensor) -> Tensor:
        """The product with a vector, or with each row of several."""
        rows, began = v.detach().reshape(-1, self.network.dim).to(self.network.theta.dtype), perf_counter()
        found = torch.zeros_like(rows)
        for group, total in zip(rows.split(self.vectors), found.split(self.vectors), strict=True):
            for batch, share in self._batches(len(group)):
                total.add_(self._product(batch, group).detach(), alpha=share)
        self.products += len(rows)
        self.seconds += perf_counter() - began
        return found.reshape(v.shape).to(v.dtype)

    def _batches(self, vectors: int) -> Iterator[tuple[Tree, float]]:
        """The pieces of the data over which a product is a sum, each with its weight."""
        return self.network.batches(vectors)

    @abstractmethod
    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        """The product of the matrix of a piece of the data with each row of v."""

    def dense(self) -> Tensor:
        """The whole matrix, for small networks."""
        theta = self.network.theta
        return self(torch.eye(self.network.dim, dtype=theta.dtype, device=theta.device))


class GaussNewton(Curvature):
    """``J' L'' J v``: forward mode, the Hessian of the loss in the outputs, then reverse mode."""

    def __init__(self, network: Network, vectors: int = 8) -> None:
        if network.of == "model":
            raise Wrong("a loss of the model has no Gauss-Newton matrix; use curvature='hessian'", argument="curvature")
        super().__init__(network, vectors)

    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        network = self.network

        def outputs(theta: Tensor) -> Tensor:
            return network.output(theta, batch)

        ways = network.ways
        out, pull = ways.pulled(outputs, network.theta)
        pushed = ways.pushed(outputs, network.theta, v)
        return pull(ways.bent(lambda o: network.loss(o, batch[1]), out, pushed))


class Hessian(Curvature):
    """``H v`` by reverse mode over reverse mode, which every operation of torch supports."""

    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        return self.network.ways.bent(lambda theta: self.network.batch_loss(theta, batch), self.network.theta, v)


class EmpiricalFisher(Curvature):
    """``mean g (g' v)`` over the gradients g of single examples, which are never formed."""

    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        def losses(theta: Tensor) -> Tensor:
            return self.network.losses(theta, batch)

        ways = self.network.ways
        found, pull = ways.pulled(losses, self.network.theta)
        return pull(ways.pushed(losses, self.network.theta, v) / len(found))


class Fisher(EmpiricalFisher):
    """``mean g (g' v)`` with targets drawn from the model; its mean over draws is G if L is a negative log-likelihood.

    The draws depend on ``seed`` alone, so every product is with the same matrix.
    """

    def __init__(self, network: Network, vectors: int = 8, *, samples: int = 1, seed: int = 0) -> None:
        if network.of == "model" or network.likelihood is None:
            laws = "'categorical', 'gaussian', 'bernoulli' or a function (output, generator) -> target"
            needed = "the Fisher matrix needs a model that draws targets"
            raise Wrong(f"{needed}: give Network a likelihood, {laws}", argument="likelihood")
        super().__init__(network, vectors)
        self.samples, self.seed = samples, seed

    def _batches(self, vectors: int) -> Iterator[tuple[Tree, float]]:
        for s in range(self.samples):
            generator = torch.Generator().manual_seed((FISHER_SEED + self.seed) * 10**6 + s)
            # The pieces have one size, whatever the number of vectors, so that the drawn targets stay the same.
            for batch, share in self.network.batches(self.vectors):
                with torch.no_grad():
                    out = self.network.output(self.network.theta, batch)
                drawn = draw_targets(self.network.likelihood, out, generator)
                yield (batch[0], drawn), share * targets_in(self.network.likelihood, drawn) / self.samples


def targets_in(likelihood: Likelihood, drawn: Tensor) -> int:
    """The number T of independent targets of one example, such as the tokens of a sequence.

    The gradients of a loss that is a mean over T targets have 1 / T of the variance that one target causes, while its
    Gauss-Newton matrix is the mean of theirs, so F needs a factor T. Gaussian draws have the right variance already, and the
    draws of a user's own function are taken as they are.
    """
    return drawn[0].numel() if likelihood in ("categorical", "bernoulli") else 1


def draw_targets(likelihood: Likelihood, out: Tensor, generator: torch.Generator) -> Tensor:
    """Draw targets from the model, for a loss that is a mean of negative log-likelihoods."""
    if likelihood == "categorical":
        classes = out if out.ndim == 2 else out.movedim(1, -1)
        flat = torch.multinomial(classes.softmax(-1).reshape(-1, classes.shape[-1]).cpu(), 1, generator=generator)
        return flat.reshape(classes.shape[:-1]).to(out.device)
    if likelihood == "gaussian":  # (o - y)^2 averaged over the outputs of an example: variance half their number
        width = math.sqrt(out[0].numel() / 2)
        return out + width * standard_normal(tuple(out.shape), generator, out.dtype, out.device)
    if likelihood == "bernoulli":
        uniform = torch.rand(out.shape, generator=generator, dtype=out.dtype, device="cpu").to(out.device)
        return (uniform < out.sigmoid()).to(out.dtype)
    if callable(likelihood):
        with user_code("drawing targets by the likelihood"):
            return likelihood(out, generator)
    known = "'categorical', 'gaussian', 'bernoulli' or a function"
    raise Wrong(f"likelihood must be {known}, got {likelihood!r}", argument="likelihood")


CURVATURES: dict[str, type[Curvature]] = {
    "gauss_newton": GaussNewton, "hessian": Hessian, "fisher": Fisher, "empirical_fisher": EmpiricalFisher,
}  # fmt: skip


def curvature_of(
    network: Network, kind: str | None = None, *, vectors: int = 8, samples: int = 1, seed: int = 0
) -> Curvature:
    """The curvature of a network by its name; if omitted, Gauss-Newton, or the Hessian for a loss of the model.

    A pass over the data multiplies up to ``vectors`` vectors. The Fisher matrix draws ``samples`` targets for each example.
    """
    if kind is None:
        kind = "hessian" if network.of == "model" else "gauss_newton"
    if kind not in CURVATURES:
        raise Wrong(f"curvature must be one of {', '.join(CURVATURES)}, got {kind!r}", argument="curvature")
    if kind == "fisher":
        return Fisher(network, vectors, samples=samples, seed=seed)
    return CURVATURES[kind](network, vectors)
