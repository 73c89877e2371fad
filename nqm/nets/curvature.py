"""Products with curvature matrices of a network, exact and never formed.

With outputs f(theta; x), J their Jacobian, L the loss of one example and means over N examples:

    GaussNewton      G = mean J' (d^2 L / df^2) J       positive semi-definite for a convex loss; the default
    Hessian          H = d^2 (mean L) / d theta^2
    Fisher           F = mean g g',  g the gradient of L at targets drawn from the model
    EmpiricalFisher  E = mean g g',  g the gradient of L at the data's targets

Each takes several vectors at once, (vectors, parameters), in passes over pieces of the data whose size bounds memory. A
product with G costs one forward-mode and one reverse-mode pass: about three gradients.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ..text.imports import user_code
from ..types import Wrong
from .network import Likelihood, Network
from .trees import Tree, grad, pulled_back, pushed_forward, vmap

FISHER_SEED = 0x0F15  # of the targets that the Fisher matrix draws, apart from the seeds of probes


class Curvature(ABC):
    """A symmetric matrix at the checkpoint of a network, known by its products."""

    def __init__(self, network: Network, vectors: int = 8) -> None:
        self.network, self.vectors, self.products = network, vectors, 0

    @property
    def name(self) -> str:
        return type(self).__name__

    def __call__(self, v: Tensor) -> Tensor:
        """The product with a vector, or with each row of several."""
        rows = v.detach().reshape(-1, self.network.dim).to(self.network.theta.dtype)
        self.products += len(rows)
        parts = [self._pass(group) for group in rows.split(self.vectors)]
        return torch.cat(parts).reshape(v.shape).to(v.dtype)

    def _pass(self, v: Tensor) -> Tensor:
        total = torch.zeros_like(v)
        for batch, share in self._batches(len(v)):
            total += share * self._product(batch, v).detach()
        return total

    def _batches(self, vectors: int) -> Iterator[tuple[Tree, float]]:
        """The pieces of the data over which a product is a sum, each with its weight."""
        return self.network.batches(vectors)

    @abstractmethod
    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        """The product of a piece of the data, a mean over its examples, with each row of v."""

    def dense(self) -> Tensor:
        """The matrix itself, for small networks."""
        return self(torch.eye(self.network.dim, dtype=self.network.theta.dtype))


class GaussNewton(Curvature):
    """``J' L'' J v``: push v through the network, multiply by the loss's Hessian in the outputs, pull back."""

    def __init__(self, network: Network, vectors: int = 8) -> None:
        if network.of == "model":
            raise Wrong("a loss of the model has no Gauss-Newton matrix; use curvature='hessian'", argument="curvature")
        super().__init__(network, vectors)

    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        network = self.network

        def outputs(theta: Tensor) -> Tensor:
            return network.output(theta, batch)

        out, pull = pulled_back(outputs, network.theta)
        pushed = vmap(lambda one: pushed_forward(outputs, network.theta, one)[1])(v)
        _, bend = pulled_back(grad(lambda o: network.loss(o, batch[1])), out)
        return vmap(pull)(vmap(bend)(pushed))


class Hessian(Curvature):
    """``H v``, the gradient pulled back along v: reverse over reverse, which every operation of torch supports."""

    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        _, pull = pulled_back(grad(lambda theta: self.network.batch_loss(theta, batch)), self.network.theta)
        return vmap(pull)(v)


class EmpiricalFisher(Curvature):
    """``mean g (g' v)`` over the gradients of single examples, which are never formed."""

    def _product(self, batch: Tree, v: Tensor) -> Tensor:
        def losses(theta: Tensor) -> Tensor:
            return self.network.losses(theta, batch)

        found, pull = pulled_back(losses, self.network.theta)
        along = vmap(lambda one: pushed_forward(losses, self.network.theta, one)[1])(v)
        return vmap(pull)(along / len(found))


class Fisher(EmpiricalFisher):
    """The same with targets drawn from the model: its mean over draws is the Gauss-Newton matrix of a log-likelihood.

    Draws depend on ``seed`` alone, so that every product is one with the same matrix.
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
    """Independent targets of one example, such as the tokens of a sequence.

    A loss that is their mean has gradients of variance 1/T of one target's, and a Gauss-Newton matrix that is their
    mean: T times as large. Gaussian draws are made as wide as that asks for; a user's own are taken as they are.
    """
    return drawn[0].numel() if likelihood in ("categorical", "bernoulli") else 1


def draw_targets(likelihood: Likelihood, out: Tensor, generator: torch.Generator) -> Tensor:
    """Targets as the model draws them, for the loss that is a mean of negative log-likelihoods."""
    if likelihood == "categorical":
        classes = out if out.ndim == 2 else out.movedim(1, -1)
        flat = torch.multinomial(classes.softmax(-1).reshape(-1, classes.shape[-1]), 1, generator=generator)
        return flat.reshape(classes.shape[:-1])
    if likelihood == "gaussian":  # (o - y)^2 averaged over the outputs of an example: variance half their number
        width = math.sqrt(out[0].numel() / 2)
        return out + width * torch.randn(out.shape, generator=generator, dtype=out.dtype)
    if likelihood == "bernoulli":
        return (torch.rand(out.shape, generator=generator, dtype=out.dtype) < out.sigmoid()).to(out.dtype)
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
    """The curvature of a network by its name; Gauss-Newton if left out, or the Hessian where there are no outputs.

    A pass over the data takes ``vectors`` together. The Fisher matrix draws ``samples`` targets for each example.
    """
    if kind is None:
        kind = "hessian" if network.of == "model" else "gauss_newton"
    if kind not in CURVATURES:
        raise Wrong(f"curvature must be one of {', '.join(CURVATURES)}, got {kind!r}", argument="curvature")
    if kind == "fisher":
        return Fisher(network, vectors, samples=samples, seed=seed)
    return CURVATURES[kind](network, vectors)
