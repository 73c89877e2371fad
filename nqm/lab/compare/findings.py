"""The paper's findings on real networks, each held against what a study measured.

Every number has its interval over seeds; a comparison is decided where 95% of the resampled curves agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...nets.estimates import Estimate
from ...search.sweeps import Definition
from ...show.verdict import Finding, Verdict
from .curves import LEVELS, Curve

ORDER = ("SGD", "HeavyBall", "Adam", "KFAC")  # of their critical batch sizes, smallest first
SURE = 0.95
ALIKE = 1.25  # ratios of steps within this factor count as equal: a tuned lr is found to some ten per cent
NO_SEEDS = "not every batch size was tried with fresh seeds"
HELPS = 0.9  # steps with an average over steps without


def findings(curves: Sequence[Curve], definition: Definition = "2x") -> list[Finding]:
    """What the study has to say about the order of critical batch sizes, momentum and averaging."""
    by_name = _by_optimizer(curves)
    found = [_order(by_name[a], by_name[b], definition) for a, b in _pairs(by_name)]
    if "SGD" in by_name and "HeavyBall" in by_name:
        found += _momentum(by_name["SGD"], by_name["HeavyBall"])
    for curve in curves:
        plain = [c for c in curves if c.label == curve.label and not c.averaged]
        if curve.averaged and plain:
            found.append(_average(plain[0], curve))
    return found


def _by_optimizer(curves: Sequence[Curve]) -> dict[str, Curve]:
    """The curve of each optimizer's own weights: the one that is labelled with its name, or the first."""
    found: dict[str, Curve] = {}
    for curve in curves:
        if not curve.averaged and (curve.optimizer not in found or curve.label == curve.optimizer):
            found[curve.optimizer] = curve
    return found


def ratio(a: Curve, b: Curve, batch_size: float) -> Estimate:
    """Steps of a over steps of b at a batch size that both have."""
    i, j = (int(np.flatnonzero(c.batch_sizes == batch_size)[0]) for c in (a, b))
    with np.errstate(invalid="ignore"):
        drawn = a.resampled[:, i] / b.resampled[:, j]
    drawn = drawn[~np.isnan(drawn)]
    if not len(drawn):
        return Estimate(math.nan, math.nan, math.nan)
    low, high = np.quantile(drawn, LEVELS, method="nearest")
    return Estimate(float(a.steps[i] / b.steps[j]), float(low), float(high))


def beyond(estimate: Estimate, largest: float) -> str:
    """A critical batch size for reading; infinity is more than the study's largest batch."""
    if math.isnan(estimate.value):
        return "not measured"
    parts = [
        f">{largest:,.0f}" if math.isinf(x) else f"{x:,.0f}" for x in (estimate.value, estimate.low, estimate.high)
    ]
    return f"{parts[0]} (not known)" if math.isnan(estimate.low) else f"{parts[0]} ({parts[1]} to {parts[2]})"


def _pairs(by_name: dict[str, Curve]) -> list[tuple[str, str]]:
    present = [name for name in ORDER if name in by_name]
    return list(pairwise(present))


def _order(small: Curve, large: Curve, definition: Definition) -> Finding:
    says = f"the critical batch size of {large.name} is larger than that of {small.name}"
    a, b = small.critical_resampled(definition), large.critical_resampled(definition)
    known = ~(np.isnan(a) | np.isnan(b)) & ~(np.isinf(a) & np.isinf(b))
    told = ", ".join(f"{c.name} {beyond(c.critical_batch_size(definition), c.largest)}" for c in (small, large))
    if not (small.certain and large.certain):
        return Finding(says, f"{told}: {NO_SEEDS}", Verdict.open)
    if known.mean() < SURE:
        return Finding(says, f"{told}: the batch sizes of this study do not tell", Verdict.open)
    share = float((b[known] > a[known]).mean())
    verdict = Verdict.holds if share >= SURE else Verdict.open if share > 1 - SURE else Verdict.fails
    return Finding(says, f"{told}; larger in {100 * share:.0f}% of resampled seeds", verdict)


def _momentum(sgd: Curve, heavy_ball: Curve) -> list[Finding]:
    sizes = np.intersect1d(
        sgd.batch_sizes[np.isfinite(sgd.steps)], heavy_ball.batch_sizes[np.isfinite(heavy_ball.steps)]
    )
    if len(sizes) < 2:
        return []
    first, last = (ratio(heavy_ball, sgd, B) for B in (sizes[0], sizes[-1]))
    certain = sgd.certain and heavy_ball.certain
    apart = first.low > ALIKE or first.high < 1 / ALIKE
    alike = (
        Verdict.holds if first.low >= 1 / ALIKE and first.high <= ALIKE else Verdict.fails if apart else Verdict.partly
    )
    helps = Verdict.holds if last.high < 1 / ALIKE else Verdict.partly if last.low < 1 else Verdict.fails
    return [
        Finding(
            "momentum takes as many steps as SGD at small batch",
            f"steps with momentum over without: {first} at B = {sizes[0]:,.0f}",
            alike if certain else Verdict.open,
        ),
        Finding(
            "momentum takes fewer steps than SGD at large batch",
            f"steps with momentum over without: {last} at B = {sizes[-1]:,.0f}",
            helps if certain else Verdict.open,
        ),
    ]


def _average(plain: Curve, averaged: Curve) -> Finding:
    sizes = np.intersect1d(
        plain.batch_sizes[np.isfinite(plain.steps)], averaged.batch_sizes[np.isfinite(averaged.steps)]
    )
    says = f"an average of the weights helps {plain.name} at small batch only"
    if len(sizes) < 2:
        return Finding(says, "fewer than two batch sizes arrived", Verdict.open)
    first, last = (ratio(averaged, plain, B) for B in (sizes[0], sizes[-1]))
    told = f"steps with over without: {first} at B = {sizes[0]:,.0f}, {last} at B = {sizes[-1]:,.0f}"
    if not (plain.certain and averaged.certain):
        return Finding(says, f"{told}: {NO_SEEDS}", Verdict.open)
    if first.low >= HELPS:  # it does not help where it should
        return Finding(says, told, Verdict.fails)
    return Finding(says, told, Verdict.holds if first.high < HELPS <= last.low else Verdict.partly)
