"""The paper's findings on real networks, each compared with what a study measured.

Every number has its interval over repeated searches. A comparison is one-sided: it *holds* if 95% of the resampled curves
agree, so that of two equal optimizers it is said to hold in 5% of studies at most. It is *not supported* if 95% disagree. The
findings name optimizers as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...nets.estimates import Estimate
from ...search.sweeps import Definition
from ...show.verdict import Finding, Verdict
from ...types import Array
from .curves import Curve, estimate

PAPER_ORDER = ("SGD", "HeavyBall", "Adam", "KFAC")  # The paper's order of critical batch sizes, the smallest first.
AGREEMENT = 0.95  # A comparison is decided if this share of the resampled curves agrees.
EQUAL_WITHIN = 1.25  # Steps within this factor count as equal, because a tuned lr is found to some ten per cent.
HELPFUL = 0.9  # An average of the weights helps if it takes less than this share of the steps.
ONE_SEARCH = "one search does not tell what another would find"


def findings(curves: Sequence[Curve], definition: Definition = "2x") -> list[Finding]:
    """What the study has to say about the order of critical batch sizes, momentum and averaging."""
    by_name: dict[str, Curve] = {}  # Curves of the weights; of several for one optimizer, that labelled with its name.
    for curve in curves:
        if not curve.averaged and (curve.optimizer not in by_name or curve.label == curve.optimizer):
            by_name[curve.optimizer] = curve
    ordered = [by_name[name] for name in PAPER_ORDER if name in by_name]
    found = [order(small, large, definition) for small, large in pairwise(ordered)]
    if "SGD" in by_name and "HeavyBall" in by_name:
        found += _momentum(by_name["SGD"], by_name["HeavyBall"])
    for curve in curves:
        plain = [c for c in curves if c.label == curve.label and not c.averaged]
        if curve.averaged and plain:
            found.append(_average(plain[0], curve))
    return found


def ratio(a: Curve, b: Curve, batch_size: float) -> Estimate:
    """Steps of a over steps of b at a batch size that both have; infinity if a never reaches the target there, 0 if b."""
    i, j = (int(np.flatnonzero(c.batch_sizes == batch_size)[0]) for c in (a, b))
    with np.errstate(invalid="ignore"):
        drawn = a.resampled[:, i] / b.resampled[:, j]
    return estimate(a.typical[i] / b.typical[j], drawn)


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
    says = f"the critical batch size of {large.name} is larger than that of {small.name}"
    a, b = small.critical_resampled(definition), large.critical_resampled(definition)
    known = ~(np.isnan(a) | np.isnan(b)) & ~(np.isinf(a) & np.isinf(b))
    told = ", ".join(f"{c.name} {beyond(c.critical_batch_size(definition), c.largest)}" for c in (small, large))
    if not (small.certain and large.certain):
        return Finding(says, f"{told}: {ONE_SEARCH}", Verdict.open)
    if known.mean() < AGREEMENT:
        return Finding(says, f"{told}: the batch sizes of this study do not tell", Verdict.open)
    share = float((b[known] > a[known]).mean())
    verdict = Verdict.holds if share >= AGREEMENT else Verdict.open if share > 1 - AGREEMENT else Verdict.fails
    return Finding(says, f"{told}; larger in {100 * share:.0f}% of resampled curves", verdict)


def _momentum(sgd: Curve, heavy_ball: Curve) -> list[Finding]:
    sizes = shared_sizes(sgd, heavy_ball)
    if len(sizes) < 2:
        return []
    first, last = (ratio(heavy_ball, sgd, B) for B in (sizes[0], sizes[-1]))
    apart = first.low > EQUAL_WITHIN or first.high < 1 / EQUAL_WITHIN
    inside = first.low >= 1 / EQUAL_WITHIN and first.high <= EQUAL_WITHIN
    alike = Verdict.holds if inside else Verdict.fails if apart else Verdict.partly
    helps = Verdict.holds if last.high < 1 / EQUAL_WITHIN else Verdict.partly if last.low < 1 else Verdict.fails
    if not (sgd.certain and heavy_ball.certain):
        alike = helps = Verdict.open
    told = [
        f"steps with momentum over without: {shown(r)} at B = {B:,.0f}"
        for r, B in ((first, sizes[0]), (last, sizes[-1]))
    ]
    return [
        Finding("momentum takes as many steps as SGD at small batch", told[0], alike),
        Finding("momentum takes fewer steps than SGD at large batch", told[1], helps),
    ]


def _average(plain: Curve, averaged: Curve) -> Finding:
    sizes = shared_sizes(plain, averaged)
    says = f"an average of the weights helps {plain.name} at small batch only"
    if len(sizes) < 2:
        return Finding(says, "fewer than two batch sizes reached the target", Verdict.open)
    first, last = (ratio(averaged, plain, B) for B in (sizes[0], sizes[-1]))
    told = f"steps with over without: {shown(first)} at B = {sizes[0]:,.0f}, {shown(last)} at B = {sizes[-1]:,.0f}"
    if not (plain.certain and averaged.certain):
        return Finding(says, f"{told}: {ONE_SEARCH}", Verdict.open)
    if first.low >= HELPFUL:  # The average does not help at small batch, where the paper says that it does.
        return Finding(says, told, Verdict.fails)
    return Finding(says, told, Verdict.holds if first.high < HELPFUL <= last.low else Verdict.partly)
