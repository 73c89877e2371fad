"""A sweep that follows a moving target: near the last answer, on few nodes, in milliseconds for each batch size.

A `Tuner` looks for every basin, because the best one may lie anywhere. While a slider moves, the best setting moves a little, so
one local search from the last setting suffices. With few steps the swings of the modes of largest curvature cut the valley
into sharp basins; a few clouds of settings find the next of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..engine.run import Outcome
from ..optimizers.base import Optimizer
from ..problems.base import Problem, check_batch_size, check_target
from ..types import Array, Wrong
from .answer import Tuned
from .exact.family import Family
from .exact.losses import Basins, Losses
from .exact.settings import SETTINGS
from .exact.tuning import land
from .sweeps import Sweep, assembled


@dataclass(frozen=True)
class PreviewSettings:
    """The numbers that steer a preview.

    They were chosen on the paper's instance with targets from 0.005 to 0.02 and checked by ``python -m benchmarks.preview`` on
    two other spectra.
    """

    sharp: float = 0.1  # Size of the cloud at which a local search ends.
    longer: float = 1.1  # A horizon at which the target is not reached grows by this factor,
    attempts: int = 16  # at most this many times.
    shrinks: int = 6  # A horizon is shortened at most this many times.
    landed: float = 1e-3  # Relative error of the step at which a setting reaches the target.
    close: float = 4e-3  # A horizon that changes by less than this part is found.
    short: int = 8_000  # Basins are sharp below this many steps.
    clouds: int = 20  # At most this many clouds look for another basin.


PREVIEW = PreviewSettings()


def preview_sweep(
    problem: Problem,
    optimizer: Optimizer,
    batch_sizes: Sequence[float],
    target: float,
    near: Sequence[tuple[Optimizer | None, float | None]],
) -> Sweep:
    """The sweep of `sweep` to about 1%, from settings and steps near the answer.

    ``near`` has one pair for each batch size and one without noise at the end, as the last sweep or the last preview found
    them. Where a pair is None, or the target is too far from it, the answer has no steps.

    >>> from nqm import SGD, Quadratic, Spectrum, sweep
    >>> problem = Quadratic(Spectrum.power_law(100))
    >>> last = sweep(problem, SGD(), [64, 1024], target=0.1)
    >>> near = [*zip(last.optimizers, last.steps), (last.optimizers[-1], last.smallest_steps)]
    >>> preview_sweep(problem, SGD(), [64, 1024], 0.098, near).steps / sweep(problem, SGD(), [64, 1024], target=0.098).steps
    array([1., 1.])
    """
    target, sizes = check_target(target), np.array([check_batch_size(B) for B in batch_sizes])
    if not optimizer.linear or not problem.separable:
        raise Wrong("previews need a linear optimizer and noise of fixed variance; ask for the sweep", "optimizer")
    if len(near) != len(sizes) + 1:
        raise Wrong(f"near needs {len(sizes) + 1} settings, one for each batch size and one without noise", "near")
    family = Family(optimizer, problem.nodes.searched(optimizer).spectrum)
    answers = [_followed(problem, family, B, target, *pair) for B, pair in zip([*sizes, math.inf], near, strict=True)]
    return assembled(problem, optimizer, target, sizes, answers)


def _followed(
    problem: Problem,
    family: Family[Optimizer],
    batch_size: float,
    target: float,
    last: Optimizer | None,
    steps: float | None,
) -> Tuned[Optimizer]:
    basins = Basins(Losses(problem, family, batch_size))
    found = None
    if last is not None and steps is not None and math.isfinite(steps):
        found = _reached(basins, target, family.point(last), max(1, round(steps)))
    if found is None:
        message = "the last setting is too far away for a preview"
        return Tuned(family.optimizer, None, math.nan, batch_size, (), Outcome.out_of_steps, message)
    u, T = _shrunk(basins, target, *found)
    if len(u) > 1 and PREVIEW.short > T:
        u, T = _explored(basins, target, u, T)
    message = f"about {T:,} steps, a preview"
    counted = problem.counts_examples
    return Tuned(family.at(u), T, target, batch_size, (), Outcome.reached, message, counts_examples=counted)


def _reached(basins: Basins[Optimizer], target: float, u: Array, T: int) -> tuple[Array, int] | None:
    """A setting near u that is at the target after T steps or somewhat more."""
    for attempt in range(PREVIEW.attempts):
        best = basins.minima(T, [u], SETTINGS.near * (1 + attempt), PREVIEW.sharp)[0]
        u = best.u
        if best.loss <= target:
            return u, T
        T = math.ceil(T * PREVIEW.longer) + 1
    return None


def _landed(basins: Basins[Optimizer], target: float, u: Array, T: int) -> int:
    return land(basins.losses.curve(u), target, T, PREVIEW.landed)[0]


def _shrunk(basins: Basins[Optimizer], target: float, u: Array, T: int) -> tuple[Array, int]:
    """The basin of u followed to shorter horizons: in turn the step at which the setting lands, and the best setting there."""
    T = _landed(basins, target, u, T)
    for _ in range(PREVIEW.shrinks):
        best = basins.minima(T, [u], SETTINGS.near, PREVIEW.sharp)[0]
        if best.loss > target:
            break
        before, u, T = T, best.u, _landed(basins, target, best.u, T)
        if before * (1 - PREVIEW.close) - 1 <= T:
            break
    return u, T


def _explored(basins: Basins[Optimizer], target: float, u: Array, T: int) -> tuple[Array, int]:
    """Other basins at shorter horizons, as in `Landing`, by single clouds."""
    offsets, rng, jump = basins.around(0.0 * u), np.random.default_rng(SETTINGS.seed), 1
    for _ in range(PREVIEW.clouds):
        trial = T - max(jump, math.ceil(T * PREVIEW.close))
        found, count = basins.below(trial, target, u + offsets, rng, brief=True)
        if found is not None:
            u, T = found, min(trial, _landed(basins, target, found, trial))
            jump = max(1, count // SETTINGS.jump)
        elif jump > 1:
            jump = 1
        else:
            break
    return u, T
