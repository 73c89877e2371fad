"""Gradients for many trials at once.

The weights of S trials of one network are the rows of a matrix theta of shape (S, parameters), and each trial has a minibatch
of its own. `Stacked` takes all their gradients in one pass: the forward pass is vectorised over trials by ``torch.func.vmap``,
and since no trial's loss depends on another's weights the gradient of the sum of losses is every trial's own,

    d / d theta_s  sum_r L(theta_r; batch_r) = d L(theta_s; batch_s) / d theta_s.

`Plain` takes them one after another with the module's own forward pass. The two agree to rounding.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..network import Network
from ..trees import Tree, joined, leaves, tree_map, vmap
from .loop import Batches

TRIAL_STREAM = 0x7B1  # seeds of the batches of trials, apart from those of checkpoints and of `train`
T = TypeVar("T")


class Draws:
    """Minibatches of several trials: their indices depend on a trial's seed alone, whatever else is in the stack."""

    def __init__(self, examples: int, seeds: Sequence[int], replacement: bool = True) -> None:
        self.streams = {seed: Batches(examples, (TRIAL_STREAM, seed), replacement) for seed in seeds}
        self.seeds = list(seeds)

    def __call__(self, size: int) -> Tensor:
        """Indices of shape (trials, size), or (1, size) where every trial has the same seed."""
        drawn = {seed: stream(size) for seed, stream in self.streams.items()}
        return torch.stack(list(drawn.values()) if len(drawn) == 1 else [drawn[seed] for seed in self.seeds])

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the trials; the others' streams end."""
        self.seeds = [self.seeds[row] for row in rows]
        self.streams = {seed: self.streams[seed] for seed in dict.fromkeys(self.seeds)}


class Loaded:
    """A network's module with its parameters as views of one flat vector: a pass costs what the module's own does."""

    def __init__(self, network: Network) -> None:
        self.network, self.model = network, copy.deepcopy(network.model)
        self.flat = network.theta.detach().clone()
        named = dict(self.model.named_parameters())
        self.parameters = [named[name] for name in network.shapes]
        for parameter, value in zip(self.parameters, network.unflatten(self.flat).values(), strict=True):
            parameter.data = value

    def load(self, theta: Tensor) -> None:
        """Put other weights in."""
        self.flat.copy_(theta)

    def output(self, batch: Tree) -> Tensor:
        """What the model says on a batch."""
        inputs = batch[0]
        return self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)

    def loss(self, batch: Tree) -> Tensor:
        """Mean loss over a batch."""
        network = self.network
        return network.loss(self.output(batch), batch[1]) if network.of == "output" else network.loss(self.model, batch)

    def gradient(self, batch: Tree) -> Tensor:
        """Gradient of the mean loss over a batch, flat."""
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(self.loss(batch), self.parameters)])


class Slopes(ABC):
    """Gradients of the minibatch losses of a stack of trials; batches above ``chunk`` examples are taken in pieces."""

    def __init__(self, network: Network, chunk: int | None = None) -> None:
        self.network, self.chunk = network, chunk or network.chunk

    def pieces(self, index: Tensor) -> Iterator[tuple[Tensor, float]]:
        """The batches in pieces that memory can hold, each with its share of the examples: gradient accumulation."""
        for piece in index.split(self.chunk, dim=1):
            yield piece, piece.shape[1] / index.shape[1]

    def __call__(self, theta: Tensor, index: Tensor) -> Tensor:
        """Gradients (S, parameters) at theta (S, parameters), for indices (S, batch size), or (1, batch size) for all."""
        total = None
        for piece, share in self.pieces(index):
            g = self.gradient(theta, piece)
            total = g if share == 1 else share * g if total is None else total + share * g
        assert total is not None
        return total

    @abstractmethod
    def gradient(self, theta: Tensor, index: Tensor) -> Tensor:
        """Gradients for one piece."""

    @abstractmethod
    def each(self, function: Callable[..., T], *stacks: object) -> T:
        """``function`` of each trial's part of the stacks, its results stacked."""

    @abstractmethod
    def over(self, function: Callable[..., T], index: Tensor, *stacks: object) -> T:
        """The same with the trial's batch as first argument."""


class Plain(Slopes):
    """One trial after another."""

    def __init__(self, network: Network, chunk: int | None = None) -> None:
        super().__init__(network, chunk)
        self.loaded = Loaded(network)

    def gradient(self, theta: Tensor, index: Tensor) -> Tensor:
        found = []
        for row, chosen in zip(theta, index.expand(len(theta), -1), strict=True):
            self.loaded.load(row)
            found.append(self.loaded.gradient(self.network.take(chosen)))
        return torch.stack(found)

    def each(self, function: Callable[..., T], *stacks: object) -> T:
        rows = range(len(leaves(stacks)[0]))
        return joined([function(*tree_map(lambda t, r=row: t[r], stacks)) for row in rows], torch.stack)

    def over(self, function: Callable[..., T], index: Tensor, *stacks: object) -> T:
        index = index.expand(len(leaves(stacks)[0]), -1)
        return self.each(lambda chosen, *parts: function(self.network.take(chosen), *parts), index, *stacks)


class Stacked(Slopes):
    """All trials in one vectorised pass, or in as few as keep it to ``chunk`` examples."""

    def gradient(self, theta: Tensor, index: Tensor) -> Tensor:
        theta = theta.detach().requires_grad_()
        losses = self.over(lambda batch, row: self.network.batch_loss(row, batch), index, theta)
        return torch.autograd.grad(losses.sum(), theta)[0]

    def each(self, function: Callable[..., T], *stacks: object) -> T:
        return vmap(function)(*stacks)

    def over(self, function: Callable[..., T], index: Tensor, *stacks: object) -> T:
        trials, rows = len(leaves(stacks)[0]), max(1, self.chunk // index.shape[1])
        found = []
        for low in range(0, trials, rows):
            part = slice(low, low + rows)
            shared = len(index) == 1  # one batch for all: nothing is copied, and the first layer is a plain product
            batch = self.network.take(index[0] if shared else index[part])
            some = tree_map(lambda t, part=part: t[part], stacks) if rows < trials else stacks
            found.append(vmap(function, in_dims=(None if shared else 0, *(0 for _ in stacks)))(batch, *some))
        return found[0] if len(found) == 1 else joined(found, torch.cat)
