"""Train what an advice recommends, and set the first hits of these real trainings beside what was promised."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from torch import Tensor

from ...engine.readable import Readable
from ...engine.run import number, numbers
from ...optimizers import Clipped
from ...optimizers.base import Optimizer
from ...optimizers.nonlinear import adapted
from ...sampling.replicas import check_whole
from ...types import Array, Progress, Wrong, part_of
from ..network import Network
from ..training.loop import Batches, walk
from .adam_state import AdamState, read_state
from .adaptive import inner_of
from .advice import Advice
from .hits import LATENESS, looks, quantile_of, steps_or_more
from .model import Fit

VERIFIED_SEEDS = 5  # trainings with which an advice is verified
VERIFY_STREAM = 0xADF1  # stream of the batches of these trainings
TIMED_BATCHES = 5  # number of gradients that are timed at each batch size


@dataclass(frozen=True, eq=False, repr=False)
class Verified(Readable):
    """First hits of real trainings, infinite for those that did not arrive, beside the steps that were promised."""

    optimizer: Optimizer
    batch_size: float
    target: float
    promised: float
    low: float
    high: float
    hits: Array
    most: int  # steps after which a training was ended

    @property
    def steps(self) -> float:
        """The median of the real first hits; infinite if fewer than half of the trainings arrived."""
        return quantile_of(self.hits, 0.5)

    @property
    def ratio(self) -> float:
        """Median of the real first hits over the promise."""
        return self.steps / self.promised

    @property
    def inside(self) -> int:
        """How many of the trainings arrived inside the band that was promised."""
        return int((np.isfinite(self.hits) & (self.low <= self.hits) & (self.hits <= self.high)).sum())

    @property
    def message(self) -> str:
        """What the trainings found, in words."""
        count, arrived = len(self.hits), int(np.isfinite(self.hits).sum())
        if math.isinf(self.steps):
            found = f"{arrived} of {count} trainings arrived within {self.most:,} steps"
        else:
            fewest, last = self.hits.min(), steps_or_more(self.hits.max(), self.most)
            median = f"{self.steps:,.0f} steps in the median ({fewest:,.0f} to {last})"
            found = f"{count} trainings first dipped below {self.target:g} after {median}"
        share = f", {self.ratio:.2f} of the promise" if math.isfinite(self.ratio) else ""
        band = f"{self.inside} of {count} inside the band of {self.low:,.0f} to {self.high:,.0f}"
        return f"trained: {found}; {self.promised:,.0f} were promised{share}, with {band}"

    def _brief(self) -> str:
        return f"{self.optimizer}, batch_size={self.batch_size:,.10g}: {self.message}"

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as ``--json`` prints them."""
        return {
            "optimizer": str(self.optimizer), "batch_size": number(self.batch_size), "target": self.target,
            "steps": number(self.steps), "promised": number(self.promised), "low": number(self.low),
            "high": number(self.high), "ratio": number(self.ratio), "inside": self.inside, "hits": numbers(self.hits),
        }  # fmt: skip


def verify(
    network: Network, fit: Fit, advice: Advice, *, seeds: int = VERIFIED_SEEDS, seed: int = 0, state: object = None,
    progress: Progress | None = None,
) -> Verified:  # fmt: skip
    """Train the recommended setting from the fit's checkpoint until the loss is below the target.

    The loss over all the data is computed as often as the advice assumed. A training ends at three times the steps that were
    promised. AdamW from a state needs this ``state``: the torch optimizer or its ``state_dict()``, as `fit` was given it.
    """
    best = advice.best
    if best is None:
        raise Wrong(f"there is nothing to verify: {advice.sentences[0]}", argument="advice")
    check_same(network, fit)
    check_whole("seeds", seeds, 1)
    most, hits = math.ceil(LATENESS * best.steps), list[float]()
    times = list(looks(best.cadence, 0.0, max(most, best.cadence)))
    for s in range(seeds):
        batches, show = Batches(network.examples, (VERIFY_STREAM, seed, s)), part_of(progress, s, seeds)
        setting = best.optimizer, whole_size(best.batch_size), times
        weights = _weights(network, fit, setting, batches, state, show)
        hits.append(next((float(t) for t, theta in weights if network.full_loss(theta) <= advice.target), math.inf))
    low, high = advice.low, advice.high
    assert low is not None
    assert high is not None
    return Verified(
        best.optimizer, best.batch_size, advice.target, best.steps, low, high, np.array(hits), times[-1]
    )  # fmt: skip


def check_same(network: Network, fit: Fit) -> None:
    """Refuse a network that is not at the checkpoint of the fit."""
    here = network.full_loss()
    if abs(here - fit.loss) > 1e-3 * abs(fit.loss):
        both = f"the network's loss is {here:.6g}, the fit's {fit.loss:.6g}"
        raise Wrong(f"{both}: they are not of the same checkpoint", argument="fit")


def whole_size(batch_size: float) -> float:
    """A batch size that can be trained: a whole number of examples, or infinity."""
    if math.isfinite(batch_size) and batch_size != int(batch_size):
        raise Wrong(f"training needs a whole batch_size, got {batch_size!r}", argument="batch_size")
    return batch_size


Setting = tuple[Optimizer, float, list[int]]  # optimizer, batch size, and the steps at which weights are asked for


def _weights(
    network: Network, fit: Fit, setting: Setting, batches: Batches, state: object, progress: Progress | None
) -> Iterator[tuple[int, Tensor]]:
    """(step, weights) of one training."""
    optimizer, size, times = setting
    if fit.metric is not None and fit.metric.step:
        if state is None:
            need = "verify needs the state of the optimizer with which the fit was made (state=..., --state FILE)"
            raise Wrong(f"{need}: {optimizer} goes on from it", argument="state")
        yield from continued(network, read_state(network, state), setting, batches)
        return
    for i, theta in walk(network, optimizer, size, times, batches=batches, progress=progress):
        yield times[i], theta


def continued(network: Network, state: AdamState, setting: Setting, batches: Batches) -> Iterator[tuple[int, Tensor]]:
    """(step, weights) of a training by Adam or AdamW that goes on from a state, with the rates and decays of its groups."""
    optimizer, size, times = setting
    adam = inner_of(optimizer)
    assert adam is not None
    lr, beta1, beta2 = float(adam.lr), float(adam.beta1), float(adam.beta2)
    decay = float(getattr(adam, "weight_decay", 0.0)) * state.decay
    theta, m, v = network.theta.clone(), state.momentum, state.second * (1 - beta2**state.step)
    for t in range(times[-1]):
        g = network.gradient(theta, None if math.isinf(size) else network.take(batches(int(size))))
        if isinstance(optimizer, Clipped):
            g = g * min(1.0, float(optimizer.norm) / float(g.norm()))
        m, v, direction = adapted(m, v, g, state.step + t, beta1, beta2, float(adam.eps))
        theta = theta - lr * state.rate * (decay * theta + direction)
        if t + 1 in times:
            yield t + 1, theta


def measured_seconds(network: Network, batch_sizes: list[float]) -> dict[float, float]:
    """The seconds of a gradient at each batch size up to the number of examples."""
    found = dict[float, float]()
    for size in sorted({min(size, float(network.examples)) for size in batch_sizes}):
        batches = Batches(network.examples, (VERIFY_STREAM,))
        network.gradient(network.theta, network.take(batches(int(size))))  # the first one may compile or allocate
        ends = [perf_counter()]
        for _ in range(TIMED_BATCHES):
            network.gradient(network.theta, network.take(batches(int(size))))
            ends.append(perf_counter())
        found[size] = float(np.diff(ends).min())  # the shortest is the one that other programs disturbed least
    return found
