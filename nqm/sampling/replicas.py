"""The Monte Carlo twin: an optimizer's own update rule, stepped on random replicas of a problem.

It knows nothing of moments. A `Source` gives starts and noisy gradients, the optimizer turns them into weights, and the
losses of the replicas are averaged. Replicas come in blocks that fit the cache, each with a generator of its own, so the
answer depends on the seed and not on how many blocks or threads are under way, and memory does not grow with replicas.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np

from ..engine.run import Outcome, Run
from ..engine.schedule import Schedule
from ..engine.spectrum import Spectrum
from ..optimizers.base import Optimizer
from ..types import Array, Wrong
from .bases import Geometry
from .laws import Law, gaussian

BLOCK = 2**14  # numbers in a block: with what an optimizer remembers and its temporaries it stays within a core's cache
EXAMPLES = 16  # of a batch that are drawn together
FEW = 2**11  # replicas in a block at most, so that the losses it reports stay few
ROWS = 64  # replicas that go through a dense matrix together
MAX_MODES = 10**5  # up to here, modes of whole multiplicity are sampled one by one
KEPT = 2**23  # losses kept for quantiles; of more replicas, the first that many
TICK = 32  # steps between looks at the clock and at Ctrl-C
GROWN = 1e6  # times the initial loss: a run that ends above has diverged
POLL = 0.1  # seconds between reports of progress

Progress = Callable[[int, int], None]


class Streams:
    """The random numbers of some replicas: one generator for each block, whoever works on it."""

    def __init__(self, seed: int, blocks: Sequence[tuple[int, int]]) -> None:
        seeds = [np.random.SeedSequence(seed, spawn_key=(i,)) for i, _ in blocks]
        self.generators = [np.random.Generator(np.random.SFC64(s)) for s in seeds]
        self.ends = np.cumsum([0, *(rows for _, rows in blocks)]).tolist()
        self.replicas: int = self.ends[-1]

    def draw(self, law: Law, *shape: int) -> Array:
        """Noise of shape (replicas, *shape)."""
        out = np.empty((self.replicas, *shape))
        for rng, low, high in zip(self.generators, self.ends, self.ends[1:], strict=False):
            law.draw(rng, out[low:high])
        return out


class Source(Protocol):
    """A problem as a sampler sees it; arrays are (replicas, modes), or (settings, replicas, modes)."""

    modes: int
    geometry: Geometry
    initial_loss: float

    def begin(self, streams: Streams) -> Array:
        """The weights at step 0, in the basis of the run."""
        ...

    def gradient(self, w: Array, streams: Streams, batch_size: float) -> Array:
        """The gradient at w on a fresh batch."""
        ...

    def losses(self, theta: Array) -> Array:
        """The loss of each replica, from its weights in the eigenbasis."""
        ...


class Additive:
    """The noisy quadratic model: gradient ``H w + eps``, with independent noise of variance c / B on each mode.

    The law of the noise, and of the start, is that of its components in the eigenbasis. Modes of multiplicity n stand
    for n modes where n is whole and there are at most 10^5 of them. Otherwise, as for quadrature nodes, one sample
    stands for all n: they have the same law, so the mean loss is right, and only its scatter over replicas is larger.
    That needs an update that treats each parameter by itself.
    """

    def __init__(
        self, spectrum: Spectrum, optimizer: Optimizer, law: Law, start: str = "gaussian", rotation: Any = None
    ) -> None:
        h, c, s, self.weight = expanded(spectrum, optimizer, rotation is not None)
        self.law, self.start, self.modes = law, start, h.size
        self.deviation, self.scale = np.sqrt(c), np.sqrt(s)
        self.geometry = Geometry(h, rotation)
        self.mass = self.weight * h / 2
        self.initial_loss = float(self.mass @ s)

    def begin(self, streams: Streams) -> Array:
        return self.geometry.turn(_start(streams, self.start, self.scale))

    def gradient(self, w: Array, streams: Streams, batch_size: float) -> Array:
        g = self.geometry.multiply(w)
        if math.isinf(batch_size):
            return g
        noise = streams.draw(self.law, self.modes)
        noise *= self.deviation / math.sqrt(batch_size)
        return g + self.geometry.turn(noise)

    def losses(self, theta: Array) -> Array:
        return theta**2 @ self.mass


class Minibatch:
    """Least squares itself: each gradient is that of a batch of fresh examples, ``f (f' w - sigma xi)`` on average.

    Features are ``f = R sqrt(H) z``; the law is that of the components of z, and ``labels`` that of xi. The weights are
    counted from the minimum. Every example costs as many random numbers as there are modes.
    """

    def __init__(
        self, spectrum: Spectrum, label_noise: float, features: Law, labels: Law, start: str, rotation: Any = None
    ) -> None:
        whole = np.rint(spectrum.count)
        if np.any(spectrum.count != whole) or spectrum.dim > MAX_MODES:
            raise Wrong(
                f"least squares is sampled mode by mode, {MAX_MODES:,} whole modes at most; this spectrum has "
                f"{len(spectrum):,} nodes that stand for {spectrum.dim:,.6g}; take a smaller one"
            )
        h, s = (np.repeat(a, whole.astype(int)) for a in (spectrum.h, spectrum.s))
        self.features, self.labels, self.start, self.modes = features, labels, start, h.size
        self.root, self.scale, self.sigma = np.sqrt(h), np.sqrt(s), math.sqrt(label_noise)
        self.geometry, self.mass = Geometry(h, rotation), h / 2
        self.initial_loss = float(self.mass @ s)

    def begin(self, streams: Streams) -> Array:
        return self.geometry.turn(_start(streams, self.start, self.scale))

    def gradient(self, w: Array, streams: Streams, batch_size: float) -> Array:
        if math.isinf(batch_size):
            return self.geometry.multiply(w)
        if batch_size != int(batch_size):
            raise Wrong(
                f"batch_size must be a whole number of examples to be sampled, got {batch_size:g}",
                argument="batch_size",
            )
        left, total = int(batch_size), np.zeros_like(w)
        while left:
            examples = min(left, EXAMPLES)
            f = self.geometry.turn(streams.draw(self.features, examples, self.modes) * self.root)
            off = (f @ w[..., None])[..., 0] - self.sigma * streams.draw(self.labels, examples)
            total += (off[..., None, :] @ f)[..., 0, :]
            left -= examples
        return total / batch_size

    def losses(self, theta: Array) -> Array:
        return theta**2 @ self.mass


def _start(streams: Streams, start: str, scale: Array) -> Array:
    """theta_0 in the eigenbasis."""
    if start == "fixed":
        return np.repeat(scale[None], streams.replicas, axis=0)
    return streams.draw(gaussian(), scale.size) * scale


def expanded(spectrum: Spectrum, optimizer: Optimizer, rotated: bool) -> tuple[Array, Array, Array, Array]:
    """h, c, s and weight of the modes to sample: one by one if they can be, else as nodes with their multiplicity."""
    whole = np.rint(spectrum.count)
    if np.all(spectrum.count == whole) and spectrum.dim <= MAX_MODES:
        h, c, s = (np.repeat(a, whole.astype(int)) for a in (spectrum.h, spectrum.c, spectrum.s))
        return h, c, s, np.ones(h.size)
    if rotated or not optimizer.elementwise:
        why = "a rotated problem" if rotated else f"{optimizer}, which looks at all parameters together,"
        raise Wrong(
            f"{why} is sampled mode by mode, {MAX_MODES:,} whole modes at most; this spectrum has {len(spectrum):,} nodes "
            f"that stand for {spectrum.dim:,.6g}; take a smaller one"
        )
    return spectrum.h, spectrum.c, spectrum.s, spectrum.count


class Walk:
    """An optimizer on its way, with one stream of random numbers; all of its settings meet the same ones.

    With ``settings``, its hyper-parameters may be arrays of shape (settings, 1, 1), and weights have that axis first.
    """

    def __init__(
        self,
        source: Source,
        optimizer: Optimizer,
        batch_size: float,
        streams: Streams,
        schedule: Schedule | None = None,
        settings: int | None = None,
    ) -> None:
        self.source, self.optimizer, self.streams = source, optimizer, streams
        self.batch_size, self.schedule = batch_size, schedule
        self.geometry = source.geometry.knowing(lambda w: source.gradient(w, streams, 1.0))
        theta = source.begin(streams)
        self.state = optimizer.begin(theta if settings is None else np.repeat(theta[None], settings, 0), self.geometry)
        self.t, self._now, self._batch, self._until = 0, optimizer, batch_size, 0.0

    def to(self, end: int, tick: Callable[[int], None] = lambda steps: None) -> None:
        """Step until ``end`` steps are done."""
        source, streams = self.source, self.streams
        for t in range(self.t, end):
            if t >= self._until:
                self._turn(t)
            g = source.gradient(self._now.point(self.state, t), streams, self._batch)
            self.state = self._now.update(self.state, g, t)
            if t % TICK == TICK - 1:
                tick(TICK)
        self.t = end

    def weights(self) -> Array:
        """The weights reported now, in the eigenbasis."""
        return self.geometry.back(self.optimizer.report(self.state, self.t))

    def mean_to(self, end: int, most: int = 8) -> Array:
        """Step until ``end`` steps are done; the mean of each replica's loss over these steps, or over ``most`` of them."""
        times = np.unique(np.linspace(end, self.t, min(most, end - self.t), endpoint=False).astype(int))
        total: Any = 0.0
        for t in times:
            self.to(int(t))
            total = total + self.source.losses(self.weights())
        return total / len(times)

    def switch(self, optimizer: Optimizer, state: Any) -> None:
        """Go on with other settings, or with some of them."""
        self.optimizer, self.state, self._now, self._until = optimizer, state, optimizer, float(self.t)

    def _turn(self, t: int) -> None:
        """The settings of step t, and until when they hold."""
        if self.schedule is None:
            self._until = math.inf
            return
        lr, momentum, batch = self.schedule.at(t)
        self._now, self._batch = self.optimizer.scaled(lr, momentum), self.batch_size * batch
        self._until = self.schedule.same_until(t)


@dataclass(frozen=True)
class Plan:
    """What to sample: an optimizer with its schedule on a source, reported at some steps."""

    source: Source
    optimizer: Optimizer
    batch_size: float
    times: Sequence[int] | Array
    schedule: Schedule | None = None
    replicas: int = 64
    seed: int = 0

    def walk(self, streams: Streams, tick: Callable[[int], None] = lambda steps: None) -> Iterator[tuple[int, Array]]:
        """The index of each reported step and the weights reported there, in the eigenbasis.

        An optimizer that depends on its horizon, such as an average over a part of the run, is a run of its own at each
        reported step. All of them meet the same starts and the same noise.
        """
        runs: dict[Optimizer, list[int]] = {}
        for i, t in enumerate(self.times):
            runs.setdefault(self.optimizer.at_horizon(int(t)), []).append(i)
        states = [rng.bit_generator.state for rng in streams.generators]
        for optimizer, indices in runs.items():
            for rng, state in zip(streams.generators, states, strict=True):
                rng.bit_generator.state = state
            walk = Walk(self.source, optimizer, self.batch_size, streams, self.schedule)
            for i in indices:
                walk.to(int(self.times[i]), tick)
                yield i, walk.weights()

    @property
    def rows(self) -> int:
        """Replicas of a block, whatever is reported of them: the random numbers depend on it."""
        return max(1, min(BLOCK // max(self.source.modes, 1), FEW))

    @property
    def together(self) -> int:
        """Blocks that are worked on together: one, or several through a dense matrix."""
        return 1 if self.source.geometry.rotation is None else math.ceil(ROWS / self.rows)

    def jobs(self) -> Iterator[list[tuple[int, int]]]:
        """Blocks (index, replicas), grouped by what is worked on together; made as they are needed."""
        rows = self.rows
        blocks = ((i, min(rows, self.replicas - i * rows)) for i in range(math.ceil(self.replicas / rows)))
        return iter(lambda: list(islice(blocks, self.together)), [])

    def each(
        self, work: Callable[[Streams, Callable[[int], None]], Any], workers: int | None, progress: Progress | None
    ) -> Iterator[Any]:
        """The results of ``work`` on each job, in order, whoever finishes first; Ctrl-C ends them all."""
        count = math.ceil(math.ceil(self.replicas / self.rows) / self.together)
        workers = min(count, check_workers(workers) or os.cpu_count() or 1)
        horizons = {self.optimizer.at_horizon(int(t)): int(t) for t in self.times}  # a run of its own for each
        clock = _Clock(count * max(sum(horizons.values()), 1), progress)

        def one(blocks: list[tuple[int, int]]) -> Any:
            with np.errstate(all="ignore"):
                return work(Streams(self.seed, blocks), clock.tick)

        pool, waiting, left = ThreadPoolExecutor(workers), deque[Future[Any]](), self.jobs()
        try:
            waiting.extend(pool.submit(one, job) for job in islice(left, 2 * workers))
            while waiting:
                first = waiting.popleft()
                while not wait([first], POLL).done:
                    clock.show()
                waiting.extend(pool.submit(one, job) for job in islice(left, 1))
                yield first.result()
                clock.show()
            clock.show(done=True)
        finally:
            clock.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


class _Clock:
    """Counts steps over threads and stops them."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0
        self.stop, self.lock = threading.Event(), threading.Lock()

    def tick(self, steps: int) -> None:
        if self.stop.is_set():
            raise _Stopped
        with self.lock:
            self.done += steps

    def show(self, done: bool = False) -> None:
        if self.progress:
            self.progress(self.total if done else min(self.done, self.total), self.total)


class _Stopped(Exception):
    """A thread was asked to end."""


@dataclass
class Mean:
    """Mean and standard error of a growing sample, by merging blocks (Chan, Golub and LeVeque, 1983)."""

    count: int = 0
    mean: Any = 0.0
    spread: Any = 0.0  # sum of squared distances from the mean

    def add(self, values: Array) -> None:
        """Take in values along the last axis."""
        n = values.shape[-1]
        mean = values.mean(-1)
        apart = mean - self.mean
        total = self.count + n
        self.spread = self.spread + ((values - mean[..., None]) ** 2).sum(-1) + apart**2 * (self.count * n / total)
        self.mean = self.mean + apart * (n / total)
        self.count = total

    @property
    def stderr(self) -> Any:
        if self.count < 2:
            return np.full(np.shape(self.mean), np.nan)
        return np.sqrt(self.spread / (self.count - 1) / self.count)


def sample(
    plan: Plan,
    *,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    warning: str = "",
    progress: Progress | None = None,
    workers: int | None = None,
) -> Run:
    """Mean loss over replicas at the reported steps, with its standard error and quantiles of single replicas."""
    levels = check_quantiles(quantiles)
    shape, kept, found = len(plan.times), [], Mean()
    room = max(KEPT // max(shape, 1), 1)

    def work(streams: Streams, tick: Callable[[int], None]) -> Array:
        losses = np.empty((shape, streams.replicas))
        for i, theta in plan.walk(streams, tick):
            losses[i] = plan.source.losses(theta)
        return losses

    with np.errstate(all="ignore"):
        for losses in plan.each(work, workers, progress):
            found.add(losses)
            if room > 0:
                kept.append(losses[:, :room])
                room -= losses.shape[1]
        table = np.concatenate(kept, axis=1)
        bands = {level: np.quantile(table, level, axis=1) for level in levels}
        stderr = found.stderr
    outcome, message = _verdict(plan, found.mean)
    return Run(
        steps=np.asarray(plan.times), loss=found.mean, signal=None, noise=None, batch_size=plan.batch_size,
        optimizer=plan.optimizer, floor=math.nan, outcome=outcome, message="; ".join(filter(None, [message, warning])),
        stderr=stderr, quantiles=bands, replicas=plan.replicas,
    )  # fmt: skip


def second_moments(plan: Plan, workers: int | None = None) -> tuple[Array, Array]:
    """Mean over replicas of the square of each reported weight, and its standard error; (times, modes)."""
    found = Mean()

    def work(streams: Streams, tick: Callable[[int], None]) -> Array:
        squares = np.empty((len(plan.times), plan.source.modes, streams.replicas))
        for i, theta in plan.walk(streams, tick):
            squares[i] = (theta**2).T
        return squares

    for squares in plan.each(work, workers, None):
        found.add(squares)
    return found.mean, found.stderr


def _verdict(plan: Plan, loss: Array) -> tuple[Outcome, str]:
    last, initial = float(loss[-1]), plan.source.initial_loss
    grown = initial > 0 and last > GROWN * initial
    if math.isfinite(last) and not grown:
        return Outcome.finished, Outcome.finished.value.format(steps=int(plan.times[-1]))
    bad = np.flatnonzero(~np.isfinite(loss) | (loss > GROWN * initial))
    message = f"diverges: the mean loss over replicas is {loss[bad[0]]:.3g} at step {int(plan.times[bad[0]]):,}"
    return Outcome.diverged, message + "; lower the learning rate"


def check_quantiles(levels: Sequence[float]) -> tuple[float, ...]:
    if not isinstance(levels, Sequence) or isinstance(levels, str):
        raise Wrong(f"quantiles must be a list of numbers between 0 and 1, got {levels!r}")
    found = tuple(sorted({float(level) for level in levels}))
    if not all(0 <= level <= 1 for level in found):
        raise Wrong(f"quantiles must lie between 0 and 1, got {list(levels)}")
    return found


def check_replicas(replicas: Any) -> int:
    if isinstance(replicas, bool) or not isinstance(replicas, (int, float, np.number)):
        raise Wrong(f"replicas must be a whole number of at least 1, got {replicas!r}", argument="replicas")
    if not 1 <= replicas <= 10**9 or replicas != int(replicas):
        raise Wrong(f"replicas must be a whole number from 1 to 10^9, got {replicas!r}", argument="replicas")
    return int(replicas)


def check_workers(workers: Any) -> int | None:
    if workers is None:
        return None
    if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
        raise Wrong(f"workers must be a whole number of at least 1, got {workers!r}", argument="workers")
    return int(workers)


def check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise Wrong(f"seed must be a whole number from 0, got {seed!r}", argument="seed")
    return int(seed)
