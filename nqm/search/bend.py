"""Where tuned steps leave perfect scaling, and the batch sizes to tune at until that is known to 1%.

The examples of a training are ``E(B) = B T(B)``, with T the tuned steps. Perfect scaling takes the fewest examples of any batch
size, and a critical batch size is the smallest at which E exceeds a multiple of them. Both are read between the batch sizes of a
sweep, so both depend on which these are, unless the sweep comes close to them. `ScalingCurve.next_size` names the batch size to tune
next, in this order::

    a thousandth of E / S, with S the steps without noise: small batches may need fewer examples than any that were given
    smaller, while the examples still fall towards small batches
    where E may be smaller than at its neighbours
    where E crosses each multiple, which is below ``factor E / S``, because T is never below S

Steps are whole numbers, so E is a saw: T stays the same over a range of batch sizes, a tooth, while E rises, and then T falls by
one. Whether a tooth just crosses a multiple or just does not would move a critical batch size by a whole tooth. So E is read where
teeth begin (`suffices_from`), and between these batch sizes steps are taken for real numbers: logs of E lie on a curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..optimizers.base import Optimizer
from ..problems.base import Problem
from ..types import Array
from .answer import Goal, Tuned

NEAR_CROSSING = (
    0.005  # a crossing is known if a batch size within this share of it was tuned; it is then good to twice that
)
NARROW = 1.1  # or if it lies between two batch sizes within this factor, where straight lines and curves agree
FAR_APART = 64.0  # between two batch sizes with a larger factor the middle is tried first
NEARLY = 1.2  # steps within this factor of those without noise: larger batches gain nothing more
STEEP = 0.004  # examples that fall by more than this share between two batch sizes may fall further before they rise
FEW = 100  # with as few steps the teeth of the saw matter, because they are 1% of the examples
SMALL = 1000.0  # the smallest batch size of a sweep is this many times below E / S, or half as many
FURTHER = 64.0  # the factor between further batch sizes, towards small ones and, without S, towards large ones
LINEAR = 0.9  # examples fall with the batch size if they fall this much as fast, or faster, between larger batches
SETTLED_EXAMPLES = (
    1e-3  # the examples have settled if smaller batches can need only this share less; 20% of steps are 200 times that
)
LOWER = 4e-3  # the fewest examples are known if straight lines allow only this share less; a smooth curve then has a tenth of it
SMALLER_AT_MOST = 3  # batch sizes added towards small ones: where noise is tiny the examples never settle
LARGER_AT_MOST = 2  # batch sizes added towards large ones, if the steps without noise are not known
NOISE_ERRORS = 4.0  # a crossing of sampled steps is known to this many times their relative standard error
LEVEL = 1.2  # times the fewest steps: a sweep whose steps are all below that shows no perfect scaling
RETUNED = 6  # searches for the beginning of a tooth, at most
SAME = 0.998  # the beginning of a tooth is found if a search moves it by less
SIZE_DIGITS = 3  # of a batch size that is added; its rounding is below `NEAR_CROSSING`
WHOLE_STEPS = 2000  # from this many steps on the saw is ignored, being below 0.05%


def suffices_from(
    problem: Problem, optimizer: Optimizer, steps: int, batch_size: float, target: float, loss: float | None = None
) -> float:
    """The smallest batch size at which a setting reaches the target in as many steps as at ``batch_size``.

    For a tuned setting this is also the smallest batch size at which these steps suffice, up to errors of second order: the
    setting is the best one at ``batch_size``. ``loss`` is its loss there, if that is known.

    >>> from nqm import Quadratic, SGD, Spectrum
    >>> problem = Quadratic(Spectrum([1.0], c=2.0))
    >>> signal, noise = problem.losses(SGD(0.5), 3, batch_size=8)
    >>> round(suffices_from(problem, SGD(0.5), 3, 8, target=0.1) / float(noise / (0.1 - signal)), 9)
    1.0
    """
    if not 0 < steps <= WHOLE_STEPS or math.isinf(batch_size):
        return batch_size
    if optimizer.linear and problem.separable:
        signal, noise = problem.losses(optimizer, steps, batch_size)
        return float(noise / (target - signal)) if 0 < noise < batch_size * (target - signal) else batch_size

    # Few nodes give the change of the loss with the batch size; the loss itself may differ on them.
    nodes = problem.nodes.fine if optimizer.linear else problem.nodes.followed_quickly
    shift = 0.0 if loss is None else math.log(loss / nodes.loss(optimizer, steps, batch_size))

    def height(log_size: float) -> float:
        return math.log(nodes.loss(optimizer, steps, math.exp(log_size)) / target) + shift

    high, low = math.log(batch_size), math.log(batch_size) - 1 / steps
    at_high, at_low = height(high), height(low)
    for _ in range(2):  # The loss is nearly a straight line over so short a range.
        if not (at_high <= 0 and at_low > at_high):
            return batch_size
        new = high - at_high * (high - low) / (at_high - at_low)
        new = min(max(new, math.log(batch_size / 2)), math.log(batch_size))
        low, at_low = new, height(new)
        if abs(at_low) < 1e-6:
            break
    return math.exp(low)


class Solver(Protocol):
    """A tuner."""

    def solve(self, goal: Goal, near: Any = None) -> Tuned[Any]: ...


class CrossingPoint(NamedTuple):
    """Where a curve first crosses a height: NaN if nowhere; and the batch sizes between which that is."""

    value: float
    low: float
    high: float
    known: bool  # to 1%, given the fewest examples


class Knots(NamedTuple):
    """What is known of the teeth of a saw, by rising batch size."""

    at: Array  # the smallest batch size with these steps, as far as it is known
    steps: Array
    examples: Array  # there
    until: Array  # the largest batch size at which these steps were found


@dataclass(frozen=True, eq=False)
class ScalingCurve:
    """The tuned steps of a sweep over batch sizes, in rising order, where the target was reached.

    ``enters`` has the smallest batch size at which the same steps suffice (`suffices_from`); if it is not known, it is that of
    the sweep. ``smallest_steps`` are the tuned steps without noise, or NaN. ``failed`` has the batch sizes at which the target
    was not reached.
    """

    sizes: Array
    steps: Array
    enters: Array
    smallest_steps: float = math.nan
    failed: tuple[float, ...] = ()
    teeth: bool = False  # Whether ``enters`` was found.
    close: float = NEAR_CROSSING  # A crossing is known if a batch size within this share of it was tuned.

    @classmethod
    def of(
        cls, sizes: Array, steps: Array, smallest_steps: float, enters: Array | None = None, stderr: Array | None = None
    ) -> ScalingCurve:
        """The bend of points in any order; those that did not reach the target, or took no step, are omitted."""
        teeth, enters = enters is not None, sizes if enters is None else enters
        order = np.argsort(sizes, kind="stable")
        order = order[(steps[order] > 0) & np.isfinite(sizes[order])]
        close = NEAR_CROSSING
        if stderr is not None and len(order):
            close = max(NEAR_CROSSING, NOISE_ERRORS * float(np.median(stderr[order] / steps[order])))
        failed = tuple(sizes[~(steps >= 0)].tolist())
        return cls(sizes[order], steps[order], enters[order], smallest_steps, failed, teeth, close)

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def knots(self) -> Knots:
        """The teeth of the saw; for measured steps, and where steps are many, each point by itself."""
        if not len(self):
            return Knots(self.sizes, self.steps, self.sizes, self.sizes)
        first = np.flatnonzero(np.append(True, (np.diff(self.steps) != 0) | (self.enters[1:] >= self.sizes[1:])))
        until = self.sizes[np.append(first[1:], len(self)) - 1]
        at, steps = np.minimum.accumulate(self.enters[first][::-1])[::-1], self.steps[first]
        apart = np.append(True, np.diff(at) > 0)
        return Knots(at[apart], steps[apart], (at * steps)[apart], np.maximum(until, at)[apart])

    @property
    def fewest(self) -> float:
        """The fewest examples: perfect scaling takes as many at every batch size."""
        return float(np.min(self.knots.examples)) if len(self) else math.nan

    @property
    def ratio(self) -> float:
        """The fewest examples over the fewest steps."""
        return self.fewest / self.smallest_steps if self.smallest_steps > 0 else math.nan

    def crossing(self, factor: float) -> CrossingPoint:
        """Where examples first exceed ``factor`` times the fewest."""
        if not len(self):
            return CrossingPoint(math.nan, math.nan, math.inf, False)
        at, steps, examples, until = self.knots
        goal, least = factor * self.fewest, int(np.argmin(examples))
        above = np.flatnonzero(examples[least:] > goal)
        if len(above):
            return self._between(least + int(above[0]), np.log(examples / goal))
        last = goal / float(steps[-1])  # On the last tooth that is known.
        if steps[-1] <= self.smallest_steps:
            return CrossingPoint(last, float(at[-1]), math.inf, True)
        return CrossingPoint(last if last <= until[-1] else math.nan, float(until[-1]), math.inf, False)

    def arrival(self, factor: float) -> CrossingPoint:
        """Where steps come within ``factor`` of those without noise."""
        at, steps, _, until = self.knots
        near = np.flatnonzero(steps < factor * self.smallest_steps)
        if not len(near):
            return CrossingPoint(math.nan, float(until[-1]) if len(self) else math.nan, math.inf, False)
        if near[0] == 0:
            return CrossingPoint(float(at[0]), 0.0, float(at[0]), False)
        return self._between(int(near[0]), np.log(factor * self.smallest_steps / steps))

    def _between(self, i: int, height: Array) -> CrossingPoint:
        """Where the heights of the knots become positive between one and the next, which is number i."""
        at, steps, _, until = self.knots
        low, high = float(at[i - 1]), float(at[i])
        straight = low * (high / low) ** float(height[i - 1] / (height[i - 1] - height[i]))
        whole = self.teeth and steps[i - 1] - steps[i] < 1.5  # There is no tooth between.
        value = self._bent(height, low, high) if self.teeth and not whole else straight
        near = min(math.log(value / low), math.log(high / value)) <= self.close
        alike = abs(math.log(value / straight)) <= self.close and high <= NARROW * low
        same = value <= until[i - 1] * (1 + self.close)  # This tooth is known to be so long.
        known = whole or ((near or alike or same) and (steps[i] > FEW or not self.teeth))
        return CrossingPoint(value, float(until[i - 1]), high, bool(known or high < until[i - 1] * (1 + self.close)))

    @property
    def level(self) -> bool:
        """Whether already the smallest batch size has nearly the fewest steps, so that nothing scales perfectly."""
        return bool(len(self) and self.smallest_steps > 0 and self.steps[0] <= LEVEL * self.smallest_steps)

    def lower(self) -> float:
        """The share by which the fewest examples may be fewer than those that were seen, as far as neighbours tell."""
        if not len(self):
            return math.nan
        return max(self._lowest()[0], self._left_over())

    def next_size(
        self, factors: Sequence[float], longest: float = math.inf, given: tuple[float, float] | None = None,
        least: float = 0.0, most: float = math.inf,
    ) -> float | None:  # fmt: skip
        """The batch size to tune next, or None if everything is known or nothing can be tuned.

        A batch size at which a training would take more than ``longest`` steps is not tuned. ``given`` has the smallest and
        largest batch size that the sweep did not add itself; added ones lie between ``least`` and ``most``.
        """
        if not len(self):
            return None
        floor, failed = self.fewest / longest, max(self.failed, default=0.0)
        given = given or (float(self.sizes[0]), float(self.sizes[-1]))
        for wanted in self._wanted(factors, given, max(1.1 * floor, least)):
            size = min(rounded_size(wanted), most)
            new = not np.any(np.abs(np.log(self.sizes / size)) < self.close / 4)
            if new and least <= size and max(floor, failed) < size < math.inf:
                return size
        return None

    def _wanted(self, factors: Sequence[float], given: tuple[float, float], floor: float) -> Iterator[float]:
        at, steps, _, until = self.knots
        smallest, below = float(at[0]), int(np.count_nonzero(self.sizes < given[0]))
        small = self.ratio / SMALL if self.smallest_steps > 0 else smallest
        if below < SMALLER_AT_MOST and (smallest > 2 * small or self._left_over() > SETTLED_EXAMPLES):
            size = 2.0 ** math.floor(math.log2(small)) if smallest > 2 * small else smallest / FURTHER
            if max(size, floor) < smallest / 1.5:
                yield max(size, floor)
        yield from self._lower_places()
        for found in (*map(self.crossing, factors), self.arrival(NEARLY)):
            if found.known or not factors:
                continue
            if math.isinf(found.high):
                top = float(until[-1])
                if self.smallest_steps > 0:  # Steps are never fewer, so beyond it the examples are above.
                    yield max(1.01 * max(factors) * self.ratio, 8 * top if self.teeth and steps[-1] <= FEW else 0.0)
                elif np.count_nonzero(self.sizes > given[1]) < LARGER_AT_MOST:
                    yield FURTHER * top
            elif found.low > 0:
                inside = found.low * (1 + self.close) < found.value < found.high / (1 + self.close)
                yield (
                    found.value if inside and found.high < FAR_APART * found.low else math.sqrt(found.low * found.high)
                )

    def _lower_places(self) -> Iterator[float]:
        """Where the examples may be fewer than at any knot."""
        at, _, examples, until = self.knots
        i, meet = int(np.argmin(examples)), self._lowest()
        for j in (i - 1, i):
            if 0 <= j < len(at) - 1 and at[j + 1] > FAR_APART * until[j]:
                yield math.sqrt(until[j] * at[j + 1])
        if meet[0] > LOWER:
            yield meet[1]
        if i > 0 and at[i] > 2 * until[i - 1] and examples[i - 1] > (1 + STEEP) * examples[i]:
            yield math.sqrt(until[i - 1] * at[i])  # They may fall further before they rise.

    def _left_over(self) -> float:
        """The share that smaller batches may save, if examples fall with the batch size, or with its root if less is known.

        They fall with the batch size if they do so, or faster, between the next batch sizes too.
        """
        at, _, examples, _ = self.knots
        if len(at) < 2:
            return math.inf
        fall, ratio = float(examples[1] - examples[0]), float(at[1] / at[0])
        linear = len(at) > 2 and (examples[2] - examples[1]) * (at[1] - at[0]) >= LINEAR * fall * (at[2] - at[1])
        return max(0.0, fall / float(examples[0]) / ((ratio if linear else math.sqrt(ratio)) - 1))

    def _lowest(self) -> tuple[float, float]:
        """The largest share by which a convex curve through the knots can go below their least, and where."""
        at, _, examples, _ = self.knots
        x, y = np.log(at), np.log(examples)
        i, best = int(np.argmin(y)), (0.0, math.nan)
        for j in (i - 1, i):  # the two intervals beside the least
            if j < 1 or j + 2 >= len(x):
                continue
            left, right = (y[j] - y[j - 1]) / (x[j] - x[j - 1]), (y[j + 2] - y[j + 1]) / (x[j + 2] - x[j + 1])
            if left < 0 < right:
                meet = (y[j + 1] - y[j] + left * x[j] - right * x[j + 1]) / (left - right)
                if x[j] < meet < x[j + 1]:
                    best = max(best, (float(y[i] - (y[j] + left * (meet - x[j]))), math.exp(meet)))
        return best

    def _bent(self, height: Array, low: float, high: float) -> float:
        """Where a smooth monotone curve through the heights of the knots is 0, between two knots."""
        from scipy.interpolate import PchipInterpolator

        curve = PchipInterpolator(np.log(self.knots.at), height)
        low, high = math.log(low), math.log(high)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if curve(middle) <= 0 else (low, middle)
        return math.exp(high)


def rounded_size(size: float) -> float:
    """A batch size of few digits."""
    return float(f"{size:.{SIZE_DIGITS}g}")


def enters_of(solver: Solver, problem: Problem, found: Tuned[Optimizer], target: float) -> float:
    """The smallest batch size at which the steps of a tuned point suffice; its own if it missed the target, or was sampled.

    With few steps a tooth is wide, and other settings are the best where it begins. They are searched for there, until
    the batch size stays the same.
    """
    if found.steps is None or found.method == "sampled":
        return found.batch_size
    size, optimizer, loss = found.batch_size, found.optimizer, found.loss
    for _ in range(RETUNED):
        before, size = size, suffices_from(problem, optimizer, found.steps, size, target, loss)
        if found.steps > FEW or size > SAME * before:
            break
        again = solver.solve(Goal.of(size, steps=found.steps))
        if not again.loss < target:
            break
        optimizer, loss = again.optimizer, again.loss
    return size
