"""What a workload is: data, a model, a loss, and how its checkpoint is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...optimizers import Optimizer
from ...sampling.replicas import check_whole
from ...text.imports import user_code
from ...types import Progress
from ..network import PASS_EXAMPLES, Network
from ..training.loop import Batches, walk
from .datasets import DataSet, read_idx

Examples = Callable[[int], tuple[Tensor, Tensor]]
"""Inputs and targets: the first n examples, or those held out beside them."""
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
    data: Examples
    model: Callable[[], nn.Module]
    examples: int
    optimizer: Optimizer
    batch_size: int
    steps: int
    target: float
    loss: Callable[..., Tensor] = F.cross_entropy
    chunk: int = PASS_EXAMPLES
    val: Examples | None = None

    def network(
        self, steps: int | None = None, *, seed: int = 0, examples: int | None = None, dtype: torch.dtype | None = None,
        progress: Progress | None = None,
    ) -> Network:  # fmt: skip
        """The network at its checkpoint: after ``steps`` steps from a start that depends on ``seed`` alone."""
        steps = check_whole("steps", self.steps if steps is None else steps, 0)
        wanted = check_whole("examples", self.examples if examples is None else examples, 2)
        with self._theirs("data", self.data):
            data = self.data(wanted)
        model = self.fresh_model(seed)
        network = Network(model, self.loss, data, dtype=dtype, chunk=self.chunk, name=self.name, step=0)
        if examples is not None:
            network = network.first(examples)
        batches = Batches(network.examples, (START_STREAM, seed))
        ((_, theta),) = walk(network, self.optimizer, self.batch_size, [steps], batches=batches, progress=progress)
        return network.at(theta, steps)

    def fresh_model(self, seed: int) -> nn.Module:
        """A model whose weights depend on the seed alone."""
        with torch.random.fork_rng(devices=[]), self._theirs("model", self.model):
            torch.manual_seed(seed)
            return self.model()

    def held_out(self, examples: int) -> tuple[Tensor, Tensor] | None:
        """What ``val`` gives, if there is one."""
        with self._theirs("val", self.val):
            return None if self.val is None else self.val(examples)

    def _theirs(self, name: str, function: object) -> AbstractContextManager[None]:
        """Tell an exception in a function of the user's own as theirs; what ours meet has sentences of its own."""
        ours = (getattr(function, "__module__", None) or "").startswith(f"{__package__}.")
        return nullcontext() if ours else user_code(f"{name} of the workload {self.name}")


def standardised(x: Tensor, like: Tensor | None = None) -> Tensor:
    """Inputs of mean 0 and variance 1, over all of them together; or moved and scaled as those of ``like`` would be."""
    like = x if like is None else like
    return (x - like.mean()) / like.std()


def readers(files: DataSet) -> tuple[Examples, Examples]:
    """``data`` and ``val`` of files in the format of MNIST: the first n training images, and the test images scaled alike."""

    def data(n: int) -> tuple[Tensor, Tensor]:
        x, y = images_of(files, "train")
        return standardised(x[:n]), y[:n]

    def val(n: int) -> tuple[Tensor, Tensor]:
        x, y = images_of(files, "t10k")
        return standardised(x, like=images_of(files, "train")[0][:n]), y

    return data, val


def images_of(files: DataSet, part: str) -> tuple[Tensor, Tensor]:
    """The images of a part, ``train`` or ``t10k``, as (examples, 1, rows, columns) of 0 to 255, and their labels."""
    x = read_idx(files.file(f"{part}-images-idx3-ubyte.gz"))
    y = read_idx(files.file(f"{part}-labels-idx1-ubyte.gz"))
    return torch.tensor(x, dtype=torch.float32)[:, None], torch.tensor(y, dtype=torch.int64)
