"""What a trial is judged by: mean loss or share of errors over the training data or over held-out examples.

A trial asks at many steps whether the metric has come down to a target. Most of the time it is far above, which a few hundred
examples tell. So the data is gone through in pieces, in an order shuffled once, and given up as soon as the mean of the n
examples seen is above the target by `CERTAIN` standard errors (of a sample of n out of N, without replacement),

    mean - CERTAIN sqrt(variance / n (1 - n / N)) > target.

A metric at or below the target has therefore always been taken over all the data; one far above is an estimate from part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...types import Wrong
from ..network import Network
from ..trees import Tree, count, some, tree_map, vmap
from .stacks import Loaded

CERTAIN = 5.0  # standard errors by which a metric is surely above its target: once in three million for a normal mean
FIRST_PIECE, LARGEST_PIECE = 128, 1024  # examples of the first piece of the data, and of the later ones at most
ORDER_SEED = 0x5F1E  # of the order in which examples are seen
BY_ELEMENT: tuple[Callable[..., Tensor], ...] = (F.cross_entropy, F.mse_loss, F.binary_cross_entropy_with_logits)
"""Losses that PyTorch gives for each example by itself, with ``reduction="none"``."""


def shuffled(data: Tree) -> Tree:
    """The examples in an order that says nothing, so that the first ones are a fair sample."""
    order = torch.from_numpy(np.random.default_rng(ORDER_SEED).permutation(count(data)))
    return tree_map(lambda t: t[order], data)


@dataclass
class _Sums:
    """Sums over the examples seen so far: of the metric, of its square and of the loss."""

    n: int = 0
    total: float = 0.0
    square: float = 0.0
    loss: float = 0.0

    def add(self, values: NDArray[np.float64], losses: NDArray[np.float64]) -> None:
        self.n += len(values)
        self.total += float(values.sum())
        self.square += float(values @ values)
        self.loss += float(losses.sum())


class Metric:
    """Loss or error of weights over some data, as exactly as the question needs."""

    def __init__(self, network: Network, data: Tree, errors: bool = False) -> None:
        if errors and (network.of == "model" or network.likelihood != "categorical"):
            counted = "an error is counted where a model chooses among classes"
            raise Wrong(f"{counted}; {network.name} is none, so use a loss as metric", argument="metric")
        self.network, self.data, self.errors, self.examples = network, data, errors, count(data)
        self.loaded = Loaded(network)

    @torch.no_grad()
    def __call__(self, theta: Tensor, target: float = math.inf, together: bool = False) -> list[tuple[float, float]]:
        """For each row of flat weights the metric, and the loss over the same examples, which tells a training that has diverged.

        ``together`` takes the first examples of all rows in one vectorised pass.
        """
        seen = [_Sums() for _ in theta]
        if together:
            values, losses = self._first(theta)
            for row, one in enumerate(seen):
                one.add(values[row], losses[row])
        for row, one in enumerate(seen):
            if not self._enough(one, target):
                self._rest(theta[row], one, target)
        return [(one.total / one.n, one.loss / one.n) for one in seen]

    def _first(self, theta: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Metric and loss of the first examples, (rows, examples)."""
        batch = some(self.data, FIRST_PIECE)
        if self.network.of == "model":
            losses = _numbers(vmap(lambda row: self.network.losses(row, batch))(theta))
            return losses, losses
        out = vmap(lambda row: self.network.output(row, batch))(theta)
        values, losses = vmap(lambda o: self._judged(o, batch[1]))(out)
        return _numbers(values), _numbers(losses)

    def _rest(self, theta: Tensor, seen: _Sums, target: float) -> None:
        """Go on with more examples until there are enough."""
        self.loaded.load(theta)
        while not self._enough(seen, target):
            piece = slice(seen.n, seen.n + min(LARGEST_PIECE, max(FIRST_PIECE, seen.n)))
            batch = tree_map(lambda t, piece=piece: t[piece], self.data)
            if self.network.of == "model":
                values = losses = self.network.losses(theta, batch)
            else:
                values, losses = self._judged(self.loaded.output(batch), batch[1])
            seen.add(_numbers(values), _numbers(losses))

    def _judged(self, out: Tensor, target: Tree) -> tuple[Tensor, Tensor]:
        """The metric and the loss of each example."""
        losses = example_losses(self.network.loss, out, target)
        if not self.errors:
            return losses, losses
        return torch.ne(out.argmax(1), cast(Tensor, target)).to(out.dtype).reshape(len(out), -1).mean(1), losses

    def _enough(self, seen: _Sums, target: float) -> bool:
        """Whether all examples are seen, or those seen leave no doubt that the metric is above the target."""
        n = seen.n
        if n == 0 or n == self.examples:
            return n > 0
        if not math.isfinite(seen.loss):
            return True
        mean = seen.total / n
        least = 1 / n if self.errors else 0.0  # a few hundred errors in a row do not say that there is nothing else
        variance = max(seen.square / n - mean**2, least)
        return mean - CERTAIN * math.sqrt(variance / n * (1 - n / self.examples)) > target


def _numbers(values: Tensor) -> NDArray[np.float64]:
    return values.double().numpy()


def example_losses(loss: Callable[..., Tensor], out: Tensor, target: Tree) -> Tensor:
    """The loss of each example, for a loss that is a mean over them."""
    if loss in BY_ELEMENT:
        parts = loss(out, target, reduction="none")
        return parts.reshape(len(parts), -1).mean(1)
    return vmap(lambda o, y: loss(o[None], tree_map(lambda t: t[None], y)))(out, target)
