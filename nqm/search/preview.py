"""A sweep that follows a moving target: near the last answer, on few nodes, in milliseconds for each batch size.

A `Tuner` looks for every basin, because the best one may lie anywhere. While a slider moves, the best setting moves a little, so
one local search from the last setting suffices where the loss falls smoothly. With momentum and few steps, the swings of the
modes of largest curvature cut the valley into sharp basins. There, batch sizes whose steps are alike are searched together: the
settings of a cloud are watched over a window of steps, and since signal and noise separate, each setting then has its first
step at the target for every batch size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..engine.run import Outcome
from ..engine.trajectory import Trajectory
from ..optimizers.base import Optimizer, nested, require_set
from ..problems.base import Pair, Problem, check_batch_size, total
from ..types import Array, Wrong
from .answer import Tuned, check_goal
from .bend import ScalingCurve
from .exact.family import Family
from .exact.losses import Basins, Losses
from .exact.settings import SETTINGS
from .exact.tuning import land
from .sweeps import Sweep, assembled, fewest_steps


@dataclass(frozen=True)
class PreviewSettings:
    """The numbers that steer a preview.

    They were chosen by ``python -m benchmarks.preview choose``, on eight spectra with exponents from 0.5 to 1.5 and noise from 0.01
    to 10, each at a target of its own, and checked by ``python -m benchmarks.preview check`` on eight others.
    """

    sharp: float = 0.1  # Size of the cloud at which a local search ends.
    longer: float = 1.1  # A horizon at which the target is not reached grows by this factor,
    attempts: int = 16  # at most this many times.
    shrinks: int = 2  # A horizon is shortened at most this many times.
    landed: float = 1e-3  # Relative error of the step at which a setting reaches the target.
    close: float = 4e-3  # A horizon that changes by less than this part is found.
    short: int = 8_000  # Basins are sharp below this many steps.
    alike: float = 1.15  # Batch sizes whose steps are within this factor are searched together.
    points: int = 256
    """A cloud has this many settings for all batch sizes of a group. On the spectra of ``choose``, 1.1% of the points were off by
    more than 1% and a step with 128, 0.4% with 256, for 1.3 times the CPU time."""
    clouds: int = 6  # At most this many clouds are watched; the search ends at one that gains nothing.
    back: float = 0.1  # A window begins this part of the steps before the fewest steps so far.
    looks: int = (
        150  # Losses are looked at about this many times over the steps of a run, at every step of a short one.
    )


PREVIEW = PreviewSettings()


@dataclass
class PreviewPoint:
    """A batch size on its way: the best setting so far, and the step at which it is at the target."""

    basins: Basins[Optimizer]
    u: Array
    steps: int

    @property
    def batch_size(self) -> float:
        return self.basins.losses.batch_size


def preview_sweep(
    problem: Problem,
    optimizer: Optimizer,
    batch_sizes: Sequence[float],
    target: float,
    near: Sequence[tuple[Optimizer | None, float | None]],
    added: Sequence[float] = (),
) -> Sweep:
    """The sweep of `sweep` to about 1%, from settings and steps near the answer.

    ``near`` has one pair for each batch size and one without noise at the end, as the last sweep or the last preview found
    them. ``added`` has those of the batch sizes that the last sweep added. Where a pair is None, or the target is too far from
    it, the answer has no steps.

    >>> from nqm import SGD, Quadratic, Spectrum, sweep
    >>> problem = Quadratic(Spectrum.power_law(100))
    >>> last = sweep(problem, SGD(), [64, 1024], target=0.1)
    >>> near = [*zip(last.optimizers, last.steps), (last.optimizers[-1], last.smallest_steps)]
    >>> preview_sweep(problem, SGD(), [64, 1024], 0.098, near).steps / sweep(problem, SGD(), [64, 1024], target=0.098).steps
    array([1., 1.])
    """
    target, sizes = check_goal(problem, target), np.array([check_batch_size(B) for B in batch_sizes])
    if not optimizer.linear or not problem.separable:
        raise Wrong("previews need a linear optimizer and noise of fixed variance; ask for the sweep", "optimizer")
    if len(near) != len(sizes) + 1:
        raise Wrong(f"near needs {len(sizes) + 1} settings, one for each batch size and one without noise", "near")
    for last, _ in near:
        _check_same_family(optimizer, last)
    nodes = problem.nodes.searched(optimizer)
    family, every = Family(optimizer, nodes.spectrum), [*sizes.tolist(), math.inf]
    found = [_followed(Basins(Losses(problem, family, B)), target, *pair) for B, pair in zip(every, near, strict=True)]
    known = [point for point in found if point is not None]
    for group in _alike([point for point in known if _swings(family.at(point.u), nodes)]):
        _watched(nodes, family, target, group)
    for point, larger in pairwise(known):  # A setting serves a larger batch size too.
        if point.steps < larger.steps:
            larger.u, larger.steps = point.u, point.steps
    answers = [_told(problem, family, target, B, point) for B, point in zip(every, found, strict=True)]
    steps = np.array([math.nan if answer.steps is None else answer.steps for answer in answers[:-1]])
    bend = ScalingCurve.of(sizes, steps, fewest_steps(optimizer, answers))
    return assembled(problem, optimizer, target, sizes[~np.isin(sizes, added)], answers, bend)


def _check_same_family(optimizer: Optimizer, last: Optimizer | None) -> None:
    """Refuse a setting that the last answer for this optimizer cannot have had."""
    if last is None:
        return
    require_set(last, "preview")
    if list(map(type, nested(last))) != list(map(type, nested(optimizer))):
        raise Wrong(f"near has {last}, which is no setting of {optimizer}", "near")


def _told(
    problem: Problem, family: Family[Optimizer], target: float, batch_size: float, point: PreviewPoint | None
) -> Tuned[Optimizer]:
    if point is None:
        message = "the last setting is too far away for a preview"
        return Tuned(family.optimizer, None, math.nan, batch_size, (), Outcome.out_of_steps, message)
    message, counted = f"about {point.steps:,} steps, a preview", problem.counts_examples
    optimizer = family.at(point.u)
    return Tuned(
        optimizer, point.steps, target, batch_size, (), Outcome.reached, message, counts_examples=counted
    )  # fmt: skip


def _followed(
    basins: Basins[Optimizer], target: float, last: Optimizer | None, steps: float | None
) -> PreviewPoint | None:
    """The basin of the last setting at its new place; None if the target is too far away."""
    if last is None or steps is None or not math.isfinite(steps):
        return None
    u, T = basins.family.point(last), max(1, round(steps))
    for attempt in range(PREVIEW.attempts):
        T, loss = land(basins.losses.curve(u), target, T, PREVIEW.landed)
        if loss <= target:
            return _shrunk(PreviewPoint(basins, u, T), target)
        T = math.ceil(T * PREVIEW.longer) + 1
        if attempt:
            u = basins.minima(T, [u], SETTINGS.near * (1 + attempt), PREVIEW.sharp)[0].u
    return None


def _shrunk(point: PreviewPoint, target: float) -> PreviewPoint:
    """The basin followed to shorter horizons: in turn the best setting at a horizon, and the step at which it lands."""
    for _ in range(PREVIEW.shrinks):
        best, before = point.basins.minima(point.steps, [point.u], SETTINGS.near, PREVIEW.sharp)[0], point.steps
        if best.loss > target:
            break
        point.u, point.steps = best.u, _landed(point, target, best.u, before)
        if before * (1 - PREVIEW.close) - 1 <= point.steps:
            break
    return point


def _landed(point: PreviewPoint, target: float, u: Array, T: int) -> int:
    return land(point.basins.losses.curve(u), target, T, PREVIEW.landed)[0]


def _swings(optimizer: Optimizer, nodes: Problem) -> bool:
    """Whether the mode of largest curvature swings: its step has complex eigenvalues, and the optimizer repeats it."""
    if optimizer.cycle != 1 or optimizer.depends_on_horizon or len(optimizer.initial()) == 1:
        return False
    G, _ = optimizer.system(nodes.spectrum.h.max(keepdims=True), 0)
    change = np.array([[np.ravel(entry)[0] for entry in row] for row in G], dtype=float)
    return bool(np.iscomplexobj(np.linalg.eigvals(change)))


def _alike(points: list[PreviewPoint]) -> Iterator[list[PreviewPoint]]:
    """Groups of points whose steps are few and alike."""
    rest = sorted((point for point in points if point.steps < PREVIEW.short), key=lambda point: point.steps)
    while rest:
        most = rest[0].steps * PREVIEW.alike
        yield [point for point in rest if point.steps <= most]
        rest = [point for point in rest if point.steps > most]


def _watched(nodes: Problem, family: Family[Optimizer], target: float, group: list[PreviewPoint]) -> None:
    """Other basins for a group of points, from clouds of settings that are watched over a window of steps."""
    if len(family) == 1:
        return
    for cloud in range(PREVIEW.clouds):
        fewest, most = min(point.steps for point in group), max(point.steps for point in group)
        first, level = (
            max(1, int(fewest * (1 - PREVIEW.back))),
            max(0, round(math.log2(max(1, fewest / PREVIEW.looks)))),
        )
        times, settings = np.arange(first, max(most, first + 1), 2**level), _cloud(family, group, cloud)
        parts, gained = _window(nodes, family, settings, first, level, len(times)), False
        for point in group:
            loss = total(parts, point.batch_size)
            reached = np.flatnonzero((loss <= target).any(axis=1))
            if len(reached) and times[reached[0]] < point.steps * (1 - PREVIEW.landed):
                best, T = settings[np.nanargmin(loss[reached[0]])], int(times[reached[0]])
                point.u, point.steps, gained = best, T if level == 0 else _landed(point, target, best, T), True
        if not gained:
            return


def _cloud(family: Family[Optimizer], group: list[PreviewPoint], which: int) -> Array:
    """Settings around those of a group; along each axis their distances have all orders of magnitude."""
    p, count = len(family), len(group) * max(1, PREVIEW.points // len(group))
    spread = family.spread(count * (which + 1), 2 * p)[count * which :]
    offsets = (2 * spread[:, :p] - 1) * (SETTINGS.cloud * 2.0 ** (-SETTINGS.octaves * spread[:, p:]))
    return family.inside(np.vstack([point.u + offsets[i :: len(group)] for i, point in enumerate(group)]))


def _window(
    nodes: Problem, family: Family[Optimizer], settings: Array, first: int, level: int, count: int
) -> Pair:  # fmt: skip
    """Signal and noise of the loss of each setting after first, first + 2^level, ... steps: (count, setting)."""
    signal, noise = np.empty((2, count, len(settings)))
    for rows, optimizer in family.passes(settings, SETTINGS.separable.numbers):
        motion = Trajectory(optimizer, nodes.spectrum.h)
        signal[:, rows], noise[:, rows] = motion.watch(first, level, count, *nodes.masses)
    return signal, noise
