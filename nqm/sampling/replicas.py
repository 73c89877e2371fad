"""The Monte Carlo twin: the update rule of an optimizer, stepped on random replicas of a problem.

The losses of the replicas are averaged. Replicas are divided into blocks that fit the cache, and each block has a random
generator of its own. So the answer depends on the seed and not on the number of threads, and memory does not grow with the
number of replicas.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..engine.run import Outcome, Run
from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer
from ..types import Array, Progress, Wrong, is_number
from .means import Mean, Quantiles
from .sources import GradientSource, Streams
from .stepping import Walk

BLOCK_NUMBERS = (
    2**14
)  # weights in a block, so that they, the optimizer's buffers and temporaries fit the cache of a core
MAX_BLOCK_REPLICAS = 2**11  # most replicas in a block, so that a block reports few losses at a time
DENSE_REPLICAS = 64  # replicas, in one or several blocks, that are multiplied by a dense matrix at once
DIVERGED_GROWTH = 1e6  # a run has diverged if its mean loss ends above this multiple of its initial loss
PROGRESS_SECONDS = 0.1  # time between two reports of progress
MAX_REPLICAS = 10**9  # most replicas that a call may ask for


@dataclass(frozen=True)
class Plan:
    """What to sample: an optimizer with its schedule on a source of gradients, reported at some steps."""

    source: GradientSource
    optimizer: Optimizer
    batch_size: float
    times: Sequence[int] | Array
    schedule: Schedule | None = None
    replicas: int = 64
    seed: int = 0

    def runs(self) -> dict[Optimizer, list[int]]:
        """The runs to make, each with the indices of the steps that it reports.

        An optimizer that depends on its horizon, such as an average over a part of the run, needs a run of its own for each
        reported step.
        """
        runs: dict[Optimizer, list[int]] = {}
        for i, t in enumerate(self.times):
            runs.setdefault(self.optimizer.at_horizon(int(t)), []).append(i)
        return runs

    def read(self, of: Callable[[Walk], Array], blocks: list[tuple[int, int]], tick: Callable[[int], None]) -> Array:
        """What ``of`` reads from the replicas of some blocks at each reported step; all runs have the same starts and noise."""
        found: dict[int, Array] = {}
        with np.errstate(all="ignore"):
            for optimizer, places in self.runs().items():
                walk = Walk(self.source, optimizer, self.batch_size, Streams(self.seed, blocks), self.schedule)
                for i in places:
                    walk.to(int(self.times[i]), tick)
                    found[i] = of(walk)
        return np.stack([found[i] for i in range(len(self.times))])

    @property
    def rows(self) -> int:
        """Replicas in a block. The random numbers depend on this, so it does not depend on what is reported."""
        return max(1, min(BLOCK_NUMBERS // max(self.source.modes, 1), MAX_BLOCK_REPLICAS))

    @property
    def together(self) -> int:
        """Blocks that are stepped together: one, or several if they are multiplied by a dense matrix."""
        return 1 if self.source.geometry.rotation is None else math.ceil(DENSE_REPLICAS / self.rows)

    def jobs(self) -> Iterator[list[tuple[int, int]]]:
        """Lists of blocks (index, replicas) that are stepped together, made as they are needed."""
        rows = self.rows
        blocks = ((i, min(rows, self.replicas - i * rows)) for i in range(math.ceil(self.replicas / rows)))
        return iter(lambda: list(islice(blocks, self.together)), [])

    def each(
        self, of: Callable[[Walk], Array], workers: int | None = None, progress: Progress | None = None
    ) -> Iterator[Array]:
        """What ``of`` reads from the replicas, (times, ..., replicas), job by job in order; Ctrl-C stops all threads."""
        count = math.ceil(math.ceil(self.replicas / self.rows) / self.together)
        workers = min(count, os.cpu_count() or 1 if workers is None else check_whole("workers", workers, 1))
        steps = sum(int(self.times[places[-1]]) for places in self.runs().values())
        clock = _Clock(count * max(steps, 1), progress)
        pool, waiting, left = ThreadPoolExecutor(workers), deque[Future[Array]](), self.jobs()
        try:
            waiting.extend(pool.submit(self.read, of, job, clock.tick) for job in islice(left, 2 * workers))
            while waiting:
                first = waiting.popleft()
                while not wait([first], PROGRESS_SECONDS).done:
                    clock.show()
                waiting.extend(pool.submit(self.read, of, job, clock.tick) for job in islice(left, 1))
                yield first.result()
                clock.show()
            clock.show(done=True)
        finally:
            clock.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


class _Clock:
    """Counts the steps of all threads, reports them, and stops the threads."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0
        self.stop, self.lock = threading.Event(), threading.Lock()

    def tick(self, steps: int) -> None:
        if self.stop.is_set():
            raise CancelledError
        with self.lock:
            self.done += steps

    def show(self, done: bool = False) -> None:
        if self.progress:
            self.progress(self.total if done else min(self.done, self.total), self.total)


def sample(
    plan: Plan, *, quantiles: Sequence[float], warning: str, progress: Progress | None, workers: int | None
) -> Run:
    """Mean loss over replicas at the reported steps, with its standard error and quantiles of single replicas."""
    mean, bands = Mean(), Quantiles(quantiles, len(plan.times))
    with np.errstate(all="ignore"):
        for losses in plan.each(Walk.losses, workers, progress):
            mean.add(losses)
            bands.add(losses)
        outcome, message = _verdict(plan, mean.mean)
        setting = (plan.batch_size, plan.optimizer, math.nan, outcome, "; ".join(filter(None, [message, warning])))
        about = {"stderr": mean.stderr, "quantiles": bands.found(), "replicas": plan.replicas, "method": "sampled"}
    return Run(np.asarray(plan.times), mean.mean, None, None, *setting, **about)


def _verdict(plan: Plan, loss: Array) -> tuple[Outcome, str]:
    """The outcome of a run with these mean losses, and its sentence."""
    grown = ~np.isfinite(loss)
    if plan.source.initial_loss > 0:
        grown |= loss > DIVERGED_GROWTH * plan.source.initial_loss
    if not grown[-1]:
        return Outcome.finished, Outcome.finished.value.format(steps=int(plan.times[-1]))
    first = int(np.argmax(grown))
    message = f"diverges: the mean loss over replicas is {loss[first]:.3g} at step {int(plan.times[first]):,}"
    return Outcome.diverged, message + "; lower the learning rate"


def check_whole(argument: str, value: object, least: int, most: float = math.inf) -> int:
    """The whole number that a caller gave, which may be a float such as 1e6; any other value is refused."""
    if is_number(value) and least <= value <= most and value == int(value):
        return int(value)
    limits = f"from {least}" + (f" to {most:,}" if math.isfinite(most) else "")
    raise Wrong(f"{argument} must be a whole number {limits}, got {value!r}", argument)
