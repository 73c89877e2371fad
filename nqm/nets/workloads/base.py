"""What a workload is: data, a model, a loss, and how its checkpoint is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...optimizers import Optimizer
from ...sampling.replicas import check_whole
from ...types import Progress
from ..network import PASS_EXAMPLES, Network
from ..training.loop import Batches, walk

START_STREAM = 0xC4  # seeds of the batches up to a checkpoint, apart from those of `train` and of trials


@dataclass(frozen=True)
class Workload:
    """A training task with a name.

    ``data(n)`` gives the first n examples as tensors (inputs, targets), ``model()`` a fresh model. A checkpoint is
    ``steps`` steps of ``optimizer`` at ``batch_size`` away from it; ``target`` is a training loss worth reaching.
    ``val(n)`` gives held-out examples, none of them among the first n and scaled as those are, where there are any.
    """

    name: str
    about: str
    data: Callable[[int], tuple[Tensor, Tensor]]
    model: Callable[[], nn.Module]
    examples: int
    optimizer: Optimizer
    batch_size: int
    steps: int
    target: float
    loss: Callable[..., Tensor] = F.cross_entropy
    chunk: int = PASS_EXAMPLES
    val: Callable[[int], tuple[Tensor, Tensor]] | None = None

    def network(
        self, steps: int | None = None, *, seed: int = 0, examples: int | None = None, dtype: torch.dtype | None = None,
        progress: Progress | None = None,
    ) -> Network:  # fmt: skip
        """The network at its checkpoint: after ``steps`` steps from a start that depends on ``seed`` alone."""
        steps, examples = self.steps if steps is None else steps, self.examples if examples is None else examples
        check_whole("steps", steps, 0)
        check_whole("examples", examples, 2)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = self.model()
        data = self.data(examples)
        network = Network(model, self.loss, data, dtype=dtype, chunk=self.chunk, name=self.name, step=0)
        batches = Batches(network.examples, (START_STREAM, seed))
        ((_, theta),) = walk(network, self.optimizer, self.batch_size, [steps], batches=batches, progress=progress)
        return network.at(theta, steps)


def standardised(x: Tensor, like: Tensor | None = None) -> Tensor:
    """Inputs of mean 0 and variance 1, over all of them together; or moved and scaled as those of ``like`` would be."""
    like = x if like is None else like
    return (x - like.mean()) / like.std()
