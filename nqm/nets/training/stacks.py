"""Gradients for many trials at once.

The weights of S trials of one network are the rows of a matrix theta of shape (S, parameters), and each trial has its own
minibatch. `Stacked` computes all gradients in one pass: the forward pass is vectorised over trials by ``torch.func.vmap``. No
trial's loss depends on the weights of another, so the gradient of the sum of losses contains every trial's own gradient:

    d / d theta_s  sum_r L(theta_r; batch_r) = d L(theta_s; batch_s) / d theta_s.

`Plain` computes the gradients one after another, by the module's own forward pass. The two agree to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..network import Network
from ..trees import indexed, joined, leaves, tree_map, vmap
from .loop import Batches

TRIAL_STREAM = 0x7B1  # stream of the batches of trials, separate from those of checkpoints and of `train`
T = TypeVar("T")


class Draws:
    """Minibatches of several trials; those of a trial depend on its seed alone, and not on the rest of the stack."""

    def __init__(self, examples: int, seeds: Sequence[int], replacement: bool = True) -> None:
        self.streams = {seed: Batches(examples, (TRIAL_STREAM, seed), replacement) for seed in seeds}
        self.seeds = list(seeds)

    def __call__(self, size: int) -> Tensor:
        """Indices of shape (trials, size), or (1, size) if every trial has the same seed."""
        drawn = {seed: stream(size) for seed, stream in self.streams.items()}
        return torch.stack(list(drawn.values()) if len(drawn) == 1 else [drawn[seed] for seed in self.seeds])

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with the trials in these rows; the streams of the others end."""
        self.seeds = [self.seeds[row] for row in rows]
        self.streams = {seed: self.streams[seed] for seed in dict.fromkeys(self.seeds)}


class Slopes(ABC):
    """Gradients of the minibatch losses of a stack of trials; batches of more than ``chunk`` examples are cut into pieces."""

    def __init__(self, network: Network) -> None:
        self.network, self.chunk = network, network.chunk

    def pieces(self, index: Tensor) -> Iterator[tuple[Tensor, float]]:
        """The batches in pieces that fit in memory, each with its share of the examples: gradient accumulation."""
        for piece in index.split(self.chunk, dim=1):
            yield piece, piece.shape[1] / index.shape[1]

    def __call__(self, theta: Tensor, index: Tensor) -> Tensor:
        """Gradients (S, parameters) at theta (S, parameters), for indices (S, batch size), or (1, batch size) if shared."""
        return self.accumulated(lambda piece: self.gradient(theta, piece), index)

    def accumulated(self, function: Callable[[Tensor], T], index: Tensor) -> T:
        """The mean over the examples of a tree that the function returns for each piece."""
        total = None
        for piece, share in self.pieces(index):
            found = function(piece)
            part = found if share == 1 else tree_map(lambda t, share=share: share * t, found)
            total = part if total is None else tree_map(torch.add, total, part)
        assert total is not None
        return total

    @abstractmethod
    def gradient(self, theta: Tensor, index: Tensor) -> Tensor:
        """Gradients (S, parameters) on one piece."""

    @abstractmethod
    def over(self, function: Callable[..., T], index: Tensor, *stacks: object) -> T:
        """Apply the function to each trial's batch and its part of the stacks, and stack the results."""


class Plain(Slopes):
    """One trial after another."""

    def gradient(self, theta: Tensor, index: Tensor) -> Tensor:
        pairs, network = zip(theta, index.expand(len(theta), -1), strict=True), self.network
        return torch.stack([network.gradient(row, network.take(chosen)) for row, chosen in pairs])

    def over(self, function: Callable[..., T], index: Tensor, *stacks: object) -> T:
        rows = enumerate(index.expand(len(leaves(stacks)[0]), -1))
        found = [function(self.network.take(chosen), *indexed(stacks, row)) for row, chosen in rows]
        return joined(found, torch.stack)


class Stacked(Slopes):
    """All trials in one vectorised pass, or in several passes of at most ``chunk`` examples."""

    def gradient(self, theta: Tensor, index: Tensor) -> Tensor:
        theta = theta.detach().requires_grad_()
        losses = self.over(lambda batch, row: self.network.batch_loss(row, batch), index, theta)
        return torch.autograd.grad(losses.sum(), theta)[0]

    def over(self, function: Callable[..., T], index: Tensor, *stacks: object) -> T:
        trials, rows = len(leaves(stacks)[0]), max(1, self.chunk // index.shape[1])
        found = []
        for low in range(0, trials, rows):
            part = slice(low, low + rows)
            shared = len(index) == 1  # with one batch for all nothing is copied, and the first layer is a plain product
            batch = self.network.take(index[0] if shared else index[part])
            parts = indexed(stacks, part) if rows < trials else stacks
            found.append(vmap(function, in_dims=(None if shared else 0, *(0 for _ in stacks)))(batch, *parts))
        return found[0] if len(found) == 1 else joined(found, torch.cat)
