"""Real training: the optimizers' own update rules, applied to the flat parameters of a network.

`Quadratic.sample` applies the same rules, so a prediction and a training differ in the problem alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor

from ...engine.run import Outcome, Run
from ...engine.schedule import Schedule, as_schedule
from ...optimizers.base import Optimizer, Written, require_set
from ...problems.base import AnySchedule, check_batch_size, report_steps
from ...sampling.bases import Geometry
from ...sampling.means import Mean
from ...sampling.replicas import check_whole
from ...sampling.stepping import Stepper
from ...types import Array, Progress, Wrong, part_of
from ..natural import as_trained

if TYPE_CHECKING:
    from ..network import Network

DIVERGED_TRAINING = 1e6  # a training has diverged when its loss is this many times the initial loss
TRAINING_STREAM = 0x7A1  # stream of the batches of `train`, separate from those of checkpoints and of trials


class Unknown(Geometry):
    """The geometry that an optimizer sees when it trains a network: it knows nothing about the curvature."""

    def __init__(self) -> None:
        super().__init__(np.ones(1))

    def precondition(self, g: object, power: object) -> NoReturn:
        why = "training cannot compute powers of a network's curvature, so Preconditioned optimizers are predicted only"
        raise Wrong(f"{why}; Adam is a preconditioned optimizer that can be trained", argument="optimizer")


class Batches:
    """Indices of the examples of each batch: drawn independently, or from shuffled epochs without replacement."""

    def __init__(self, examples: int, seed: Sequence[int], replacement: bool = True) -> None:
        self.rng, self.examples, self.replacement = np.random.default_rng(list(seed)), examples, replacement
        self.left = np.empty(0, dtype=np.int64)

    def __call__(self, size: int) -> Tensor:
        if self.replacement:
            return torch.as_tensor(self.rng.integers(self.examples, size=size), device="cpu")
        if size > self.examples:
            needed = f"a batch of {size:,} without replacement needs as many examples"
            raise Wrong(f"{needed}; data has {self.examples:,}", argument="batch_size")
        if len(self.left) < size:  # the rest of an epoch is dropped if it does not fill a batch
            self.left = self.rng.permutation(self.examples)
        taken, self.left = self.left[:size], self.left[size:]
        return torch.as_tensor(taken, device="cpu")


def walk(
    network: Network, optimizer: Optimizer, batch_size: float, times: Sequence[int] | Array,
    schedule: Schedule | None = None, *, batches: Batches, progress: Progress | None = None,
) -> Iterator[tuple[int, Tensor]]:  # fmt: skip
    """Train from the network's checkpoint, and yield (i, weights) at each reported step ``times[i]``."""
    if optimizer.depends_on_horizon:
        advice = "start its average at a given step, such as Polyak(..., 100)"
        raise Wrong(f"{optimizer} depends on the length of the run; {advice}", argument="optimizer")
    if own := getattr(optimizer, "walk", None):  # that of `natural.KFAC`, which is trained by a rule of the lab
        yield from own(network, batch_size, times, schedule, batches, progress)
        return
    stepper = Stepper(optimizer, optimizer.begin(network.theta, Unknown()), batch_size, schedule)

    def gradient(theta: Tensor, size: float) -> Tensor:
        g = network.gradient(theta, None if math.isinf(size) else network.take(batches(max(1, round(size)))))
        if progress:
            progress(stepper.t + 1, int(times[-1]))
        return g

    for i, last in enumerate(times):
        stepper.to(int(last), gradient)
        yield i, stepper.weights()


def train(
    network: Network, optimizer: Written, batch_size: float, steps: int | Sequence[int], schedule: AnySchedule = None,
    *, seeds: int = 3, seed: int = 0, replacement: bool = True, grid: Literal["log", "linear"] = "log", points: int = 20,
    progress: Progress | None = None,
) -> Run:  # fmt: skip
    """Full-data loss of real training from a checkpoint: the mean over seeds, with its standard error.

    Parameters
    ----------
    optimizer : any optimizer, linear or not, with every hyper-parameter set, or its text.
    batch_size : a whole number of examples, or infinity for gradients over all the data.
    steps, grid, points, schedule : as in `Quadratic.run`.
    seeds : number of trainings, which differ only in the order of examples.
    replacement : whether the examples of a batch are drawn independently, so that its noise is c / B for data of any
        size; otherwise batches are taken from shuffled epochs.
    progress : called with (done, total). Ctrl-C ends the run, and keeps the seeds that are done.
    """
    times, seed, optimizer = report_steps(steps, grid, points), check_whole("seed", seed, 0), as_trained(optimizer)
    fixed = as_schedule(schedule, int(times[-1]))

    def one(s: int, size: float, show: Progress | None) -> Array:
        return losses(network, optimizer, size, times, (seed, s), fixed, replacement, progress=show)

    return mean_run(optimizer, batch_size, times, seeds, one, progress)


def losses(
    network: Network, optimizer: Optimizer, size: float, times: Array, seed: tuple[int, int],
    schedule: Schedule | None = None, replacement: bool = True, *, progress: Progress | None = None,
) -> Array:  # fmt: skip
    """Full-data losses at the reported steps of one training; infinite after it has diverged."""
    found, initial = np.full(len(times), np.inf), network.full_loss()
    batches = Batches(network.examples, (TRAINING_STREAM, *seed), replacement)
    for i, theta in walk(network, optimizer, size, times, schedule, batches=batches, progress=progress):
        found[i] = network.full_loss(theta)
        if not found[i] < DIVERGED_TRAINING * initial:
            break
    return found


def mean_run(
    optimizer: Optimizer, batch_size: float, times: Array, seeds: int,
    one: Callable[[int, float, Progress | None], Array], progress: Progress | None,
) -> Run:  # fmt: skip
    """Mean and standard error of the losses ``one(seed, batch_size, progress)``; Ctrl-C keeps the seeds that are done."""
    require_set(optimizer, "train")
    size, rows = check_batch_size(batch_size), list[Array]()
    if math.isfinite(size) and size != int(size):
        raise Wrong(f"training needs a whole batch_size, got {batch_size!r}", argument="batch_size")
    try:
        for s in range(check_whole("seeds", seeds, 1)):
            rows.append(one(s, size, part_of(progress, s, seeds)))
    except KeyboardInterrupt:
        if not rows:
            raise
    mean = Mean()
    with np.errstate(all="ignore"):
        mean.add(np.stack(rows, axis=1))
    outcome, message = Outcome.diverged, "diverges: the loss of a training grew a million times"
    if np.isfinite(mean.mean[-1]):
        outcome, message = Outcome.finished, Outcome.finished.value.format(steps=int(times[-1]))
    return Run(
        steps=times, loss=mean.mean, signal=None, noise=None, batch_size=size, optimizer=optimizer, floor=math.nan,
        outcome=outcome, message=message, stderr=mean.stderr, quantiles=None, replicas=len(rows),
    )  # fmt: skip
