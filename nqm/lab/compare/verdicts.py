"""The paper's findings on real networks, each compared with what a study measured.

A finding has one part or two. A part is a comparison that each resampled curve answers with yes or no (`curves` says how curves are
resampled), and its *share* is that of the curves that say yes. A part is decided if its share is at least 95% or at most 5%: of two
equal optimizers a one-sided comparison is said to hold in 5% of studies at most. A finding *holds* if all its parts do, is *not
supported* if none does, holds *in part* otherwise, and is *not decided* while one of its parts is not. The findings name optimizers
as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
BETWEEN = 0.5  # A slope of log lr over log B is called linear above this value and flat below: the middle of 1 and 0.
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


def verdict_of(*shares: float) -> Verdict:
    """The verdict from the share of each part; a share of NaN means that nothing is known of a part.

    >>> [verdict_of(*shares).name for shares in ((0.97, 0.99), (0.97, 0.02), (0.01,), (0.97, 0.6), (float("nan"),))]
    ['holds', 'partly', 'fails', 'open', 'open']
    """
    if not all(share >= AGREEMENT or share <= 1 - AGREEMENT for share in shares):
        return Verdict.open
    return Verdict.of(*(share >= AGREEMENT for share in shares))


def judged(says: str, told: str, curves: Sequence[Curve], **shares: float) -> Finding:
    """The finding from the share of each part, which is named by its key; undecided if a curve has a single search."""
    if not all(curve.certain for curve in curves):
        return Finding(says, f"{told}: {ONE_SEARCH}", Verdict.open)
    if any(math.isnan(share) for share in shares.values()):
        return Finding(says, f"{told}: the batch sizes of this study do not tell", Verdict.open)
    parts = ", ".join(f"{name.replace('_', ' ')} in {100 * share:.0f}%" for name, share in shares.items())
    return Finding(says, f"{told}; {parts} of resampled curves", verdict_of(*shares.values()))


def drawn_ratio(a: Curve, b: Curve, batch_size: float) -> tuple[float, Array]:
    """Steps of a over steps of b at a batch size that both have, and the same in each pair of resampled curves."""
    i, j = (int(np.flatnonzero(c.batch_sizes == batch_size)[0]) for c in (a, b))
    with np.errstate(invalid="ignore"):
        drawn = a.resampled[:, i] / b.resampled[:, j]
    return float(a.typical[i] / b.typical[j]), drawn[~np.isnan(drawn)]


def ratio(a: Curve, b: Curve, batch_size: float) -> Estimate:
    """Steps of a over steps of b at a batch size that both have; infinity if a never reaches the target there, 0 if b."""
    return estimate(*drawn_ratio(a, b, batch_size))


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


def order(small: Curve, large: Curve, definition: Definition) -> Finding:
    """Whether one critical batch size is larger than another."""
    says = f"the critical batch size of {large.name} is larger than that of {small.name}"
    told = ", ".join(f"{c.name} {beyond(c.critical_batch_size(definition), c.largest)}" for c in (small, large))
    return judged(says, told, (small, large), larger=_larger(small, large, definition))


def _larger(small: Curve, large: Curve, definition: Definition) -> float:
    """The share of resampled curves in which the second critical batch size is larger; NaN if too few tell."""
    a, b = small.critical_resampled(definition), large.critical_resampled(definition)
    known = ~(np.isnan(a) | np.isnan(b)) & ~(np.isinf(a) & np.isinf(b))
    return float((b[known] > a[known]).mean()) if known.mean() >= AGREEMENT else math.nan


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
    (first, early), (last, late) = (drawn_ratio(heavy_ball, sgd, B) for B in (sizes[0], sizes[-1]))
    told = [
        f"steps with momentum over without: {shown(estimate(value, drawn))} at B = {B:,.0f}"
        for value, drawn, B in ((first, early, sizes[0]), (last, late, sizes[-1]))
    ]
    alike = _share((early <= EQUAL_WITHIN) & (early >= 1 / EQUAL_WITHIN))
    return (
        [judged("momentum takes as many steps as SGD at small batch", told[0], both, equal_within_a_quarter=alike)],
        [judged("momentum takes fewer steps than SGD at large batch", told[1], both, fewer=_share(late < 1))],
    )


def _average(plain: Curve, averaged: Curve) -> Finding:
    both, sizes = (plain, averaged), shared_sizes(plain, averaged)
    says = f"an average of the weights helps {plain.name} at small batch only"
    if len(sizes) < 2:
        return Finding(says, "fewer than two batch sizes reached the target", Verdict.open)
    (first, early), (last, late) = (drawn_ratio(averaged, plain, B) for B in (sizes[0], sizes[-1]))
    told = (
        f"steps with over without: {shown(estimate(first, early))} at B = {sizes[0]:,.0f}, "
        f"{shown(estimate(last, late))} at B = {sizes[-1]:,.0f}"
    )
    helps, not_later = _share(early < HELPFUL), _share(late >= HELPFUL)
    if helps <= 1 - AGREEMENT:  # An average that does not help at small batch does not help there only.
        return judged(says, told, both, helps_at_small=helps)
    return judged(says, told, both, helps_at_small=helps, does_not_at_large=not_later)


def _rates(curve: Curve) -> Finding:
    """Slopes of the best effective learning rate over batch size, both as logarithms, at the smallest and largest batches."""
    says = f"the best effective learning rate of {curve.name} grows linearly with the batch size, then stays flat"
    B = np.log(curve.batch_sizes[curve.rated])
    some = math.ceil(len(B) / 3)  # The slopes are those of the smallest and of the largest third of the batch sizes,
    places = (slice(0, max(2, some)), slice(-max(2, some), None))  # each of two batch sizes at least.
    (first, early), (last, late) = (_slope(B[place], curve, place) for place in places)
    told = (
        f"slope {_two_digits(estimate(first, early))} from B = {np.exp(B[places[0]][0]):,.0f} to {np.exp(B[places[0]][-1]):,.0f}, "
        f"{_two_digits(estimate(last, late))} from {np.exp(B[places[1]][0]):,.0f} to {np.exp(B[places[1]][-1]):,.0f}"
    )
    if not len(early):
        return Finding(says, f"{told}: {ONE_SEARCH}", Verdict.open)
    return judged(
        says, told, (curve,), above_a_half_first=_share(early > BETWEEN), below_it_last=_share(late < BETWEEN)
    )


def _two_digits(found: Estimate) -> str:
    """A slope in words."""
    interval = "not known" if math.isnan(found.low) else f"{found.low:.2f} to {found.high:.2f}"
    return f"{found.value + 0.0:.2f} ({interval})"


def _slope(x: Array, curve: Curve, place: slice) -> tuple[float, Array]:
    """The least-squares slope of the logarithm of the rates over x, and that of each resampled curve."""
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    drawn = curve.rates_resampled[:, place] @ weights
    return float(curve.log_rates[place] @ weights), drawn[~np.isnan(drawn)]


def _share(agree: Array) -> float:
    """The share of resampled curves that agree; NaN if there are none."""
    return float(agree.mean()) if len(agree) else math.nan
