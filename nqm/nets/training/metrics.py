"""What a trial is judged by: mean loss or share of errors over the training data or over held-out examples.

A trial asks at many steps whether the metric has come down to a target. Most of the time it is far above the target, and a
few hundred examples show that. So the data is read in pieces, in an order shuffled once, and reading stops as soon as the
mean of the n examples seen is above the target by `CERTAIN` standard errors (of a sample of n out of N, without replacement),

    mean - CERTAIN sqrt(variance / n (1 - n / N)) > target.

A metric at or below the target is therefore always a mean over all the data; one far above it is an estimate from a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from ...types import Wrong
from ..network import Network
from ..trees import Tree, count, indexed, vmap

CERTAIN = 5.0  # standard errors by which a metric is surely above its target: once in three million for a normal mean
FIRST_PIECE, LARGEST_PIECE = 128, 1024  # number of examples in the first piece of the data, and limit for later pieces
ORDER_SEED = 0x5F1E  # seed of the order in which examples are seen


def shuffled(data: Tree) -> Tree:
    """The examples in a random order, so that the first ones are a fair sample."""
    return indexed(data, torch.from_numpy(np.random.default_rng(ORDER_SEED).permutation(count(data))))


@dataclass
class _Sums:
    """Sums over the examples seen so far: of the metric, of its square and of the loss."""

    n: int = 0
    total: float = 0.0
    square: float = 0.0
    loss: float = 0.0

    def add(self, values: Tensor, losses: Tensor) -> None:
        """Add the metric and the loss of further examples."""
        metric = values.double()
        self.n += len(metric)
        self.total += float(metric.sum())
        self.square += float(metric @ metric)
        self.loss += float(losses.double().sum())


class Metric:
    """Loss or error of weights over some data, as exactly as the question needs."""

    def __init__(self, network: Network, data: Tree, errors: bool = False) -> None:
        if errors and (network.of == "model" or network.likelihood != "categorical"):
            counted = "errors can be counted only if the model chooses among classes"
            raise Wrong(f"{counted}; {network.name} does not, so use a loss as metric", argument="metric")
        self.network, self.data, self.errors, self.examples = network, data, errors, count(data)

    @torch.no_grad()
    def __call__(self, theta: Tensor, target: float = math.inf, together: bool = False) -> list[tuple[float, float]]:
        """For each row of flat weights the metric, and the loss over the same examples, which shows a divergence.

        ``together`` evaluates the first piece of the data for all rows in one vectorised pass.
        """
        seen = [_Sums() for _ in theta]
        if together:
            batch, network = indexed(self.data, slice(FIRST_PIECE)), self.network
            found = vmap(lambda row: self._judged(row, batch, partial(network.output, row)))(theta)
            for one, values, losses in zip(seen, *found, strict=True):
                one.add(values, losses)
        for row, one in zip(theta, seen, strict=True):
            output = self.network.loaded(row)
            while not self._enough(one, target):
                piece = slice(one.n, one.n + min(LARGEST_PIECE, max(FIRST_PIECE, one.n)))
                one.add(*self._judged(row, indexed(self.data, piece), output))
        return [(one.total / one.n, one.loss / one.n) for one in seen]

    def _judged(self, theta: Tensor, batch: Tree, output: Callable[[Tree], Tensor]) -> tuple[Tensor, Tensor]:
        """The metric and the loss of each example; ``output`` is the network's at theta."""
        if self.network.of == "model":
            losses = self.network.losses(theta, batch)
            return losses, losses
        out, target = output(batch), batch[1]
        losses = self.network.example_losses(out, target)
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
        least = 1 / n if self.errors else 0.0  # errors on every example seen do not prove errors on every example
        variance = max(seen.square / n - mean**2, least)
        return mean - CERTAIN * math.sqrt(variance / n * (1 - n / self.examples)) > target
