"""What a workload is: data, a model, a loss, and a way to its checkpoint."""

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
"""A function of n that returns inputs and targets: the first n examples, or the examples held out beside them."""
START_STREAM = 0xC4  # stream of the batches up to a checkpoint, separate from those of `train` and of trials


@dataclass(frozen=True)
class Workload:
    """A training task with a name.

    ``data(n)`` returns the first n examples as tensors (inputs, targets), and ``model()`` a fresh model. The checkpoint is
    reached from there by ``steps`` steps of ``optimizer`` at ``batch_size``. ``val(n)``, if given, returns held-out
    examples: none of them is among the first n, and they are scaled like the first n.
    """

    name: str
    data: Examples
    model: Callable[[], nn.Module]
    examples: int
    optimizer: Optimizer
    batch_size: int
    steps: int
    loss: Callable[..., Tensor] = F.cross_entropy
    chunk: int = PASS_EXAMPLES
    val: Examples | None = None

    def network(
        self, steps: int | None = None, *, seed: int = 0, examples: int | None = None, dtype: torch.dtype | None = None,
        progress: Progress | None = None,
    ) -> Network:  # fmt: skip
        """The network after ``steps`` steps (those to its checkpoint if omitted) from a start that ``seed`` decides."""
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
        """A fresh model, whose weights depend on the seed alone."""
        with torch.random.fork_rng(devices=[]), self._theirs("model", self.model):
            torch.manual_seed(seed)
            return self.model()

    def held_out(self, examples: int) -> tuple[Tensor, Tensor] | None:
        """The held-out examples of ``val``, or None if the workload has no ``val``."""
        with self._theirs("val", self.val):
            return None if self.val is None else self.val(examples)

    def _theirs(self, name: str, function: object) -> AbstractContextManager[None]:
        """Report an exception in the user's own function as theirs; the functions of nqm have messages of their own."""
        ours = (getattr(function, "__module__", None) or "").startswith(f"{__package__}.")
        return nullcontext() if ours else user_code(f"{name} of the workload {self.name}")


def standardised(x: Tensor, like: Tensor | None = None) -> Tensor:
    """Inputs shifted and scaled so that ``like`` (themselves if omitted) has mean 0 and variance 1 over all its entries."""
    like = x if like is None else like
    return (x - like.mean()) / like.std()


def readers(files: DataSet) -> tuple[Examples, Examples]:
    """``data`` and ``val`` for files in MNIST's format: the first n training images, and the test images scaled like them."""

    def data(n: int) -> tuple[Tensor, Tensor]:
        x, y = images_of(files, "train")
        return standardised(x[:n]), y[:n]

    def val(n: int) -> tuple[Tensor, Tensor]:
        x, y = images_of(files, "t10k")
        return standardised(x, like=images_of(files, "train")[0][:n]), y

    return data, val


def images_of(files: DataSet, part: str) -> tuple[Tensor, Tensor]:
    """The images of a part, "train" or "t10k", as (examples, 1, rows, columns) with values 0 to 255, and their labels."""
    x = read_idx(files.file(f"{part}-images-idx3-ubyte.gz"))
    y = read_idx(files.file(f"{part}-labels-idx1-ubyte.gz"))
    return torch.tensor(x, dtype=torch.float32)[:, None], torch.tensor(y, dtype=torch.int64)
