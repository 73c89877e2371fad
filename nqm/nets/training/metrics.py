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
    order = np.random.default_rng(ORDER_SEED).permutation(count(data))
    return indexed(data, torch.as_tensor(order, device="cpu"))


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
        first, found = theta.new_empty(len(theta), 2, 0).double(), []
        if together:
            batch, network = indexed(self.data, slice(FIRST_PIECE)), self.network
            first = vmap(lambda row: self._judged(row, batch, partial(network.output, row)))(theta)
        for row, seen in zip(theta, first, strict=True):  # seen is (2, examples), as `_judged` returns it
            output = self.network.loaded(row)
            while not self._enough(seen, target):
                n = seen.shape[1]
                piece = indexed(self.data, slice(n, n + min(LARGEST_PIECE, max(FIRST_PIECE, n))))
                seen = torch.cat([seen, self._judged(row, piece, output)], dim=1)
            found.append(tuple(seen.mean(1).tolist()))
        return found

    def _judged(self, theta: Tensor, batch: Tree, output: Callable[[Tree], Tensor]) -> Tensor:
        """The metric and the loss of each example, (2, examples); ``output`` is the network's at theta."""
        if self.network.of == "model":
            return self.network.losses(theta, batch).double().expand(2, -1)
        out, target = output(batch), batch[1]
        losses = self.network.example_losses(out, target).double()
        if not self.errors:
            return losses.expand(2, -1)
        wrong = torch.ne(out.argmax(1), cast(Tensor, target)).to(losses.dtype)
        return torch.stack([wrong.reshape(len(out), -1).mean(1), losses])

    def _enough(self, seen: Tensor, target: float) -> bool:
        """Whether all examples are seen, or those seen leave no doubt that the metric is above the target."""
        n = seen.shape[1]
        if n == 0 or n == self.examples:
            return n > 0
        if not bool(seen[1].isfinite().all()):
            return True
        least = 1 / n if self.errors else 0.0  # errors on every example seen do not prove errors on every example
        variance = max(float(seen[0].var(correction=0)), least)
        return float(seen[0].mean()) - CERTAIN * math.sqrt(variance / n * (1 - n / self.examples)) > target
