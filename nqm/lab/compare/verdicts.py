"""The paper's findings on real networks, each compared with what a study measured.

A finding has one part or two. Most parts are comparisons that each resampled curve answers with yes or no (`curves` says how curves
are resampled), and the *share* of a part is that of the curves that say yes. A part is decided if its share is at least 95% or at
most 5%: of two equal optimizers a one-sided comparison is said to hold in 5% of studies at most. Where searches ran out of steps, a
lower bound of steps may leave a curve without an answer. The share then lies between two limits, and both must decide.

A part on a slope is decided by its 90% interval: it agrees with a law that the interval contains, if it does not contain the rival
law too, and it does not if the interval excludes the law.

A finding *holds* if all its parts do, is *not supported* if none does, holds *in part* otherwise, and is *not decided* while one of
its parts is not. It is not decided either if it rests on a cell whose best setting lies at an end of its range, or that is not
finished. The findings name optimizers as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np

from ...nets.estimates import Estimate
from ...search.sweeps import Definition
from ...show.verdict import Finding, Verdict
from ...types import Array
from .curves import Curve, estimate

PAPER_ORDER = ("SGD", "HeavyBall", "Adam", "KFAC")  # The paper's order of critical batch sizes, the smallest first.
PRECONDITIONED = ("Adam", "KFAC")  # Optimizers that precondition, which the paper compares with momentum alone.
AGREEMENT = 0.95  # A comparison is decided if this share of the resampled curves agrees.
EQUAL_WITHIN = 1.25  # Steps within this factor count as equal, because a tuned lr is found to some ten per cent.
HELPFUL = 0.9  # An average of the weights helps if it takes less than this share of the steps.
SLOPES = {1.0: "linear", 0.5: "the square root", 0.0: "flat"}
"""Laws of a best learning rate by the slope of log lr over log B."""
ONE_SEARCH = "one search does not tell what another would find"


class Topic(Enum):
    """A finding of the paper about networks."""

    order = "Critical batch sizes grow in the order SGD, momentum, Adam, K-FAC."
    momentum_small = "Momentum takes as many steps as SGD at small batch."
    momentum_large = "Momentum takes fewer steps than SGD at large batch."
    average = "An average of the weights helps at small batch only."
    rates = "The best effective learning rate grows linearly with the batch size, then stays flat."
    preconditioning = "Preconditioning extends perfect scaling to larger batches."


def findings(curves: Sequence[Curve], definition: Definition = "2x") -> list[Finding]:
    """What the study has to say about each topic that its optimizers allow, in the order of `Topic`."""
    return [finding for found in by_topic(curves, definition).values() for finding in found]


def by_topic(curves: Sequence[Curve], definition: Definition = "2x") -> dict[Topic, list[Finding]]:
    """The findings of each topic; a topic is empty where the study lacks the optimizers."""
    plain: dict[str, Curve] = {}  # Curves of the weights; of several for one optimizer, that labelled with its name.
    for curve in curves:
        if not curve.averaged and (curve.optimizer not in plain or curve.label == curve.optimizer):
            plain[curve.optimizer] = curve
    found: dict[Topic, list[Finding]] = {topic: [] for topic in Topic}
    ordered = [plain[name] for name in PAPER_ORDER if name in plain]
    found[Topic.order] = [order(small, large, definition) for small, large in pairwise(ordered)]
    sgd, heavy_ball = plain.get("SGD"), plain.get("HeavyBall")
    if sgd and heavy_ball and len(shared_sizes(sgd, heavy_ball)) > 1:
        found[Topic.momentum_small], found[Topic.momentum_large] = momentum(sgd, heavy_ball)
    averages = [(c, [p for p in curves if p.label == c.label and not p.averaged]) for c in curves if c.averaged]
    found[Topic.average] = [_average(own[0], curve) for curve, own in averages if own]
    found[Topic.rates] = [_rates(curve) for curve in (sgd, heavy_ball) if curve and len(curve.rated) > 2]
    if heavy_ball:
        others = [plain[name] for name in PRECONDITIONED if name in plain]
        found[Topic.preconditioning] = [_preconditioning(heavy_ball, curve, definition) for curve in others]
    return found


@dataclass(frozen=True)
class Share:
    """The share of resampled curves that agree with a part of a finding, or its limits where some curves give no answer."""

    low: float
    high: float

    @classmethod
    def of(cls, surely: Array, perhaps: Array) -> Share:
        """From the curves that surely agree and those that may; NaN if there are none."""
        return cls(float(surely.mean()), float(perhaps.mean())) if len(surely) else cls(math.nan, math.nan)

    def __str__(self) -> str:
        low, high = (f"{100 * one:.0f}%" for one in (self.low, self.high))
        return low if low == high else f"{low} to {high}"

    @property
    def decided(self) -> bool | None:
        """Whether the part holds; None if the curves do not agree.

        >>> [Share(low, high).decided for low, high in ((0.97, 1), (0, 0.02), (0.6, 0.6), (0, 1), (float("nan"),) * 2)]
        [True, False, None, None, None]
        """
        return True if self.low >= AGREEMENT else False if self.high <= 1 - AGREEMENT else None


def verdict_of(*parts: bool | None) -> Verdict:
    """The verdict from the parts of a finding; None is a part that is not decided.

    >>> [verdict_of(*parts).name for parts in ((True, True), (True, False), (False,), (True, None))]
    ['holds', 'partly', 'fails', 'open']
    """
    return Verdict.open if None in parts else Verdict.of(*map(bool, parts))


def undecided(says: str, told: str, curves: Sequence[Curve], batch_sizes: Array | None = None) -> Finding | None:
    """The finding if it is not decided because of the cells that it rests on: those at some batch sizes, or all."""
    doubts = [doubt for curve in curves for doubt in curve.doubts(batch_sizes)]
    doubts = doubts or [ONE_SEARCH] * (not all(curve.certain for curve in curves))
    return Finding(says, f"{told}: {'; '.join(doubts)}", Verdict.open) if doubts else None


def judged(
    says: str, told: str, curves: Sequence[Curve], batch_sizes: Array | None = None, **shares: Share
) -> Finding:  # fmt: skip
    """The finding from the share of each part, which is named by its key; ``batch_sizes`` are those that it rests on."""
    if found := undecided(says, told, curves, batch_sizes):
        return found
    if any(math.isnan(share.low) for share in shares.values()):
        return Finding(says, f"{told}: the batch sizes of this study do not tell", Verdict.open)
    parts = ", ".join(f"{name.replace('_', ' ')} in {share}" for name, share in shares.items())
    return Finding(says, f"{told}; {parts} of resampled curves", verdict_of(*(s.decided for s in shares.values())))


@dataclass(frozen=True, eq=False)
class Ratio:
    """Steps of one optimizer over those of another at a batch size: the least and the largest that the steps allow.

    The two differ where an optimizer ran out of steps. ``drawn`` has both for each pair of resampled curves.
    """

    values: tuple[float, float]
    drawn: tuple[Array, Array]

    @classmethod
    def at(cls, a: Curve, b: Curve, batch_size: float) -> Ratio:
        """Steps of a over steps of b at a batch size that both have."""
        i, j = (int(np.flatnonzero(c.batch_sizes == batch_size)[0]) for c in (a, b))
        value = cls._limits(a.typical[i], a.least[i], b.typical[j], b.least[j])
        low, high = cls._limits(a.resampled[:, i], a.least[i], b.resampled[:, j], b.least[j])
        known = ~(np.isnan(low) | np.isnan(high))
        return cls((float(value[0]), float(value[1])), (low[known], high[known]))

    @staticmethod
    def _limits(a: Array, a_least: Array, b: Array, b_least: Array) -> tuple[Array, Array]:
        """The least and the largest ratio, where infinitely many steps are only known to be more than a bound."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(a), a_least, a) / b, a / np.where(np.isinf(b), b_least, b)

    def __str__(self) -> str:
        """In words: a value with its interval, or a bound."""
        (low, high), (lows, highs) = self.values, self.drawn
        if not np.isfinite([low, high]).any() or (low == 0 and math.isinf(high)):
            return "not known, as both ran out of steps"
        value, drawn, bound = (low, lows, "at least ") if math.isinf(high) else (high, highs, "at most ")
        return ("" if low == high else bound) + shown(estimate(value, drawn))

    def between(self, low: float, high: float) -> Share:
        """The share of resampled curves whose ratio lies from ``low`` to below ``high``."""
        least, largest = self.drawn
        below = np.full(largest.shape, True) if math.isinf(high) else largest < high
        return Share.of((least >= low) & below, (largest >= low) & (least < high))


def shown(found: Estimate) -> str:
    """A ratio in words."""
    return f"{found.value:.4g} (not known)" if math.isnan(found.low) else str(found)


def shared_sizes(a: Curve, b: Curve) -> Array:
    """Batch sizes at which both optimizers were measured, and one of them at least reached the target."""
    both = np.intersect1d(a.batch_sizes[~np.isnan(a.steps)], b.batch_sizes[~np.isnan(b.steps)])
    arrived = np.union1d(a.batch_sizes[np.isfinite(a.steps)], b.batch_sizes[np.isfinite(b.steps)])
    return np.intersect1d(both, arrived)


def beyond(estimate: Estimate, largest: float) -> str:
    """A critical batch size in words; infinity is shown as more than the study's largest batch."""
    if math.isnan(estimate.value):
        return "not measured"
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (f">{largest:,.0f}" if math.isinf(x) else f"{x:,.0f}" for x in ends)
    return f"{value} (not known)" if math.isnan(estimate.low) else f"{value} ({low} to {high})"


def critical_size(curve: Curve, definition: Definition) -> str:
    """The critical batch size of a curve in words, and whether it is a bound."""
    bound = "at least " if curve.bounded(definition) else ""
    return bound + beyond(curve.critical_batch_size(definition), curve.largest)


def order(small: Curve, large: Curve, definition: Definition) -> Finding:
    """Whether one critical batch size is larger than another."""
    says = f"the critical batch size of {large.name} is larger than that of {small.name}"
    told = ", ".join(f"{c.name} {critical_size(c, definition)}" for c in (small, large))
    return judged(says, told, (small, large), larger=_larger(small, large, definition))


def _larger(small: Curve, large: Curve, definition: Definition) -> Share:
    """The share of resampled curves in which the second critical batch size is larger; NaN if too few tell."""
    (a_low, a_high), (b_low, b_high) = (curve.critical_resampled(definition) for curve in (small, large))
    known = ~(np.isnan(a_low) | np.isnan(b_low)) & ~(np.isinf(a_low) & np.isinf(b_low))
    if known.mean() < AGREEMENT:
        return Share(math.nan, math.nan)
    return Share.of((b_low > a_high)[known], (b_high > a_low)[known])


def _preconditioning(heavy_ball: Curve, curve: Curve, definition: Definition) -> Finding:
    """Whether a preconditioned optimizer scales further than momentum alone: the factor in critical batch size."""
    both = (heavy_ball, curve)
    factor = curve.critical_batch_size(definition).value / heavy_ball.critical_batch_size(definition).value
    told = f"its critical batch size over that of {heavy_ball.name}: {_factor(factor)}"
    says = f"the preconditioning of {curve.name} extends scaling beyond that of {heavy_ball.name}"
    return judged(says, told, both, more_than_1=_larger(heavy_ball, curve, definition))


def _factor(factor: float) -> str:
    return f"{factor:.3g}" if math.isfinite(factor) else "beyond what the batch sizes show"


def momentum(sgd: Curve, heavy_ball: Curve) -> tuple[list[Finding], list[Finding]]:
    """Momentum at the smallest and at the largest batch size that both have."""
    both, sizes = (sgd, heavy_ball), shared_sizes(sgd, heavy_ball)
    first, last = (Ratio.at(heavy_ball, sgd, B) for B in (sizes[0], sizes[-1]))
    told = [
        f"steps with momentum over without: {ratio} at B = {B:,.0f}"
        for ratio, B in ((first, sizes[0]), (last, sizes[-1]))
    ]
    alike = first.between(1 / EQUAL_WITHIN, EQUAL_WITHIN)
    small, large = (
        "momentum takes as many steps as SGD at small batch",
        "momentum takes fewer steps than SGD at large batch",
    )
    return (
        [judged(small, told[0], both, sizes[:1], equal_within_a_quarter=alike)],
        [judged(large, told[1], both, sizes[-1:], fewer=last.between(0, 1))],
    )


def _average(plain: Curve, averaged: Curve) -> Finding:
    both, sizes = (plain, averaged), shared_sizes(plain, averaged)
    says = f"an average of the weights helps {plain.name} at small batch only"
    if len(sizes) < 2:
        return Finding(says, "fewer than two batch sizes reached the target", Verdict.open)
    first, last = (Ratio.at(averaged, plain, B) for B in (sizes[0], sizes[-1]))
    told = f"steps with over without: {first} at B = {sizes[0]:,.0f}, {last} at B = {sizes[-1]:,.0f}"
    helps, not_later = first.between(0, HELPFUL), last.between(HELPFUL, math.inf)
    if helps.decided is False:  # An average that does not help at small batch does not help there only.
        return judged(says, told, both, sizes[:1], helps_at_small=helps)
    return judged(says, told, both, sizes[[0, -1]], helps_at_small=helps, does_not_at_large=not_later)


def _rates(curve: Curve) -> Finding:
    """Slopes of the best effective learning rate over batch size, both as logarithms, at the smallest and largest batches."""
    says = f"the best effective learning rate of {curve.name} grows linearly with the batch size, then stays flat"
    sizes = curve.batch_sizes[curve.rated]
    some = max(
        2, math.ceil(len(sizes) / 3)
    )  # The slopes are those of the smallest and of the largest third of the batch
    places = (slice(0, some), slice(-some, None))  # sizes, each of two batch sizes at least.
    slopes = [estimate(*_slope(np.log(sizes[place]), curve, place)) for place in places]
    ends = [f"{sizes[place][0]:,.0f} to {sizes[place][-1]:,.0f}" for place in places]
    told = "; ".join(
        f"slope {_two_digits(slope)} from B = {end}{_law(slope)}" for slope, end in zip(slopes, ends, strict=True)
    )
    used = np.union1d(sizes[places[0]], sizes[places[1]])
    if found := undecided(says, told, (curve,), used):
        return found
    if any(math.isnan(slope.low) for slope in slopes):
        return Finding(says, f"{told}: {ONE_SEARCH}", Verdict.open)
    parts = (_agrees(slope, law, rival) for slope, law, rival in zip(slopes, (1.0, 0.0), (0.5, 0.5), strict=True))
    return Finding(says, told, verdict_of(*parts))


def _agrees(slope: Estimate, law: float, rival: float) -> bool | None:
    """Whether a slope agrees with a law and not with its rival; None if its interval contains both."""
    if not slope.low <= law <= slope.high:
        return False
    return None if slope.low <= rival <= slope.high else True


def _law(slope: Estimate) -> str:
    """The laws that an interval of a slope contains, in words; or between which it lies."""
    if math.isnan(slope.low):
        return ""
    inside = [name for law, name in SLOPES.items() if slope.low <= law <= slope.high]
    if inside:
        return f", {' or '.join(inside)}"
    below, above = (
        [law for law in SLOPES if side(law)] for side in (lambda x: x < slope.low, lambda x: x > slope.high)
    )
    if not above:
        return ", steeper than linear"
    return f", between {SLOPES[max(below)]} and {SLOPES[min(above)]}" if below else ", falling"


def _two_digits(found: Estimate) -> str:
    """A slope in words."""
    interval = "not known" if math.isnan(found.low) else f"{found.low:.2f} to {found.high:.2f}"
    return f"{found.value + 0.0:.2f} ({interval})"


def _slope(x: Array, curve: Curve, place: slice) -> tuple[float, Array]:
    """The least-squares slope of the logarithm of the rates over x, and that of each resampled curve."""
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    drawn = curve.rates_resampled[:, place] @ weights
    return float(curve.log_rates[place] @ weights), drawn[~np.isnan(drawn)]
