"""Measured curves: medians, intervals over seeds, critical batch sizes; against closed forms and a planted order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from lab_curves import SIZES, curve, hyperbola, never_at

from benchmarks.lab_coverage import SIZES as SIZES_OF_STUDIES
from benchmarks.lab_coverage import direct
from nqm import SGD, Quadratic, Spectrum, sweep
from nqm.lab import Point, Trial
from nqm.lab.compare import curves_of
from nqm.lab.compare.curves import SHARED_ERROR, critical
from nqm.lab.compare.verdicts import Ratio, beyond
from nqm.search.bend import ScalingCurve
from nqm.search.sweeps import EXCESS, Definition


def point(batch_size: int, steps: int) -> Point:
    trial = Trial("digits", {}, "SGD", {"lr": 0.1}, (), batch_size, "train_loss", 0.1, 10**6, 0.02, seed=0)
    return Point(
        "SGD", "SGD", batch_size, trial, "raw", None, steps, (steps, steps), 20, 0, 0, {"lr": "low"}, 0, "done", "",
        ((steps, steps), (steps, steps)),
    )  # fmt: skip


def test_a_point_of_a_study_becomes_one_of_a_curve() -> None:
    (found,) = curves_of([point(64, 300), point(8, 2000)])
    assert found.batch_sizes.tolist() == [8, 64]
    assert found.steps.tolist() == [2000, 300]
    assert found.at_edge == (("lr low",), ("lr low",))
    assert found.table()[0]["lr"] == 0.1


def test_a_median_over_seeds_and_its_interval() -> None:
    curve = hyperbola("SGD", 64, 100)
    low, high = curve.interval
    assert curve.steps.tolist() == [float(np.median(s)) for s in curve.seeds]
    assert np.all(low <= curve.steps)
    assert np.all(curve.steps <= high)
    assert np.all(low >= [s.min() for s in curve.seeds])
    assert np.all(curve.searched <= curve.steps)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Of the median of a lognormal: 95% intervals from 15 seeds (96.5%, for ranks are whole) in 400 draws, z < 3."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        drawn = (np.round(np.exp(0.3 * rng.normal(size=15)) * 100_000),)
        (low,), (high,) = curve("SGD", np.array([1.0]), drawn).interval
        hits += low <= 100_000 <= high
    assert abs(hits - 400 * 0.9648) < 3 * math.sqrt(400 * 0.9648 * 0.0352)


def test_a_seed_that_did_not_arrive_counts_as_never() -> None:
    seeds = (np.array([10.0, math.inf, 12.0]), np.array([math.inf, math.inf, 3.0]))
    found = curve("SGD", np.array([9.0, 3.0]), seeds)
    assert found.steps.tolist() == [12, math.inf]
    assert found.table()[1]["steps"] is None


@pytest.mark.parametrize("definition", ["20%", "2x", "ratio"])
def test_without_noise_it_is_the_critical_batch_size_of_a_sweep(definition: str) -> None:
    found = sweep(Quadratic(Spectrum.power_law(100)), SGD(), SIZES.tolist(), target=0.1, most_added=0)
    points = [point(int(B), int(s)) for B, s in zip(SIZES, found.steps, strict=True)]
    (curve,) = curves_of(reversed(points))
    estimate = curve.critical_batch_size(definition)  # type: ignore[arg-type]
    assert estimate.low <= estimate.value <= estimate.high
    # The resolution of whole steps is left, and what searches miss alike.
    assert estimate.high < 1.1 * math.exp(2 * SHARED_ERROR) * estimate.low
    if definition == "ratio":  # a study has no batch without end: its largest stands for it
        assert estimate.value == pytest.approx(np.min(found.examples) / np.min(found.steps))
    else:
        measured = ScalingCurve.of(SIZES, found.steps, math.nan).crossing(EXCESS[definition])  # type: ignore[index]
        assert estimate.value == pytest.approx(measured.value)
        solved = found.critical_batch_size(definition)  # type: ignore[arg-type]
        assert (
            abs(math.log(estimate.value / solved)) < 0.1
        )  # which knows at which batch size each number of steps begins


def test_an_interval_holds_what_all_searches_miss_alike() -> None:
    """Three equal searches that overestimate the fewest steps by 7%: without the shared error the interval would be empty."""
    true = 60 * (1 + 500 / SIZES)
    missed = np.where(SIZES[-1] == SIZES, 1.07, 1.0) * true
    repeats = [[np.array([steps])] * 3 for steps in missed]
    found = curve("SGD", missed, [np.array([steps]) for steps in missed], repeats=repeats).critical_batch_size("ratio")
    truth = float(critical(SIZES, true, "ratio"))
    assert found.low < found.value < 0.95 * truth < truth < found.high


def test_a_curve_that_scales_perfectly_has_no_critical_batch_size_here() -> None:
    assert critical(SIZES, 4096 / SIZES, "2x") == math.inf
    assert critical(SIZES, np.full(len(SIZES), 40), "ratio") == SIZES[0]  # whole numbers of steps
    assert math.isnan(critical(SIZES, np.full(len(SIZES), math.inf), "2x"))
    steps = tuple(np.array([4096.0 / B]) for B in SIZES)
    found = curve("KFAC", 4096 / SIZES, steps)
    assert beyond(found.critical_batch_size("2x"), found.largest) == ">1,024 (not known)"  # one seed has no interval


def test_draws_of_two_curves_are_apart_whatever_their_names() -> None:
    one = hyperbola("Adam", 64, 100)
    other = replace(one, name="KFAC", label="KFAC", optimizer="KFAC")
    low, high = np.quantile(Ratio.at(one, other, 8.0).drawn[0], (0.05, 0.95))
    assert low < 1 < high


@pytest.mark.parametrize("name", ["HeavyBall", "Nesterov", "RMSProp", "KFAC", "torch.SGD"])
def test_the_effective_learning_rate_counts_a_momentum_that_adds_gradients_up(name: str) -> None:
    found = hyperbola(name, 30, 100)
    assert found.effective_lr == pytest.approx(found.lr / 0.1, rel=1e-12)
    plain = replace(found, settings=({"lr": 0.5}, {}, *found.settings[2:]))
    assert plain.effective_lr[0] == 0.5  # Without a momentum it is the learning rate.
    assert math.isnan(plain.effective_lr[1])  # No trial arrived here, so nothing was set.


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Sign", "NormalisedSGD", "Muon", "RAdam", "EMA"])
def test_the_effective_learning_rate_is_the_rate_where_momentum_averages_gradients(name: str) -> None:
    found = hyperbola("mine", 30, 100)
    assert replace(found, optimizer=name).effective_lr.tolist() == found.lr.tolist()


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="knee"):
        hyperbola("SGD", 30, 100).critical_batch_size("knee")


# Batch sizes that never arrive.


def test_a_critical_batch_size_lies_below_a_batch_that_never_arrives() -> None:
    whole = hyperbola("KFAC", 2000, 10)  # which scales to the largest batch size, 1,024
    assert whole.critical_batch_size("2x").value == math.inf
    cut = never_at(whole, 6, 7)
    found = cut.critical_batch_size("2x")
    assert SIZES[5] >= found.value
    assert found.high <= SIZES[6]
    hole = never_at(whole, 5)  # it arrives again beyond, which does not help
    assert hole.critical_batch_size("2x").high <= SIZES[5]


def test_a_search_that_sometimes_does_not_arrive_is_infinite_in_as_many_draws() -> None:
    made = hyperbola("SGD", 30, 100, searches=2)
    half = replace(made, repeats=(*made.repeats[:-1], (made.repeats[-1][0], np.array([math.inf]))))
    share = np.isinf(half.resampled[:, -1]).mean()
    assert abs(share - 0.5) < 3 * math.sqrt(0.25 / len(half.resampled))
    assert not np.isinf(made.resampled).any()


def test_what_has_not_been_searched_is_not_infinite() -> None:
    unknown = replace(point(1024, 1), trial=None, steps=None, seeds=(), searches=(), state="search")
    (found,) = curves_of([point(8, 2000), point(64, 300), unknown])
    assert math.isnan(found.steps[-1])
    assert found.critical_batch_size("2x").value == math.inf
    (ended,) = curves_of([point(8, 2000), point(64, 300), replace(unknown, state="done")])
    assert ended.critical_batch_size("2x").value == 64


def test_intervals_hold_the_luck_of_searches() -> None:
    """Seeded: 90% intervals of 8 batch sizes and 3 searches with scatter .2 cover 85 to 95% of 120, within three errors."""
    truth = critical(SIZES, 100 * (1 + 60 / SIZES), "2x")
    hits, narrow = [], []
    for luck in range(120):
        rng = np.random.default_rng([7, luck])
        medians = 100 * (1 + 60 / SIZES[:, None]) * np.exp(0.2 * rng.normal(size=(len(SIZES), 3)))
        repeats = [[np.array([m]) for m in own] for own in medians]
        one = curve("SGD", medians.min(axis=1), [own[0] for own in repeats], None, repeats)
        found = one.critical_batch_size("2x")
        hits.append(found.low <= truth <= found.high)
        tight = np.quantile(one.critical_resampled("2x"), [0.3, 0.7])  # the planted bug: intervals that are too narrow
        narrow.append(tight[0] <= truth <= tight[1])
    error = 3 * math.sqrt(0.09 / len(hits))
    assert 0.85 - error <= np.mean(hits) <= 0.95 + error
    assert np.mean(narrow) < 0.85 - error


@pytest.mark.parametrize("definition", ["20%", "2x", "ratio"])
def test_many_curves_at_once_are_each_alone(definition: Definition) -> None:
    """Held against one plain loop over the batch sizes of one curve; some batch sizes never arrive, and one was not searched."""
    rng = np.random.default_rng(5)
    steps = 150 * (1 + 60 / SIZES) * np.exp(0.5 * rng.normal(size=(300, len(SIZES))))
    steps[rng.random(steps.shape) < 0.15] = math.inf
    steps[:, 2] = math.nan
    steps[0] = math.inf
    for found, one in zip(critical(SIZES, steps, definition), steps, strict=True):
        assert found == pytest.approx(plainly(one, definition), nan_ok=True)


def plainly(steps: np.ndarray, definition: str) -> float:
    """The critical batch size of one curve, by a loop."""
    curve = [(B, t * B, t) for B, t in zip(SIZES, steps, strict=True) if not math.isnan(t)]
    arrived = [point for point in curve if math.isfinite(point[2])]
    if len(arrived) < 2:
        return math.nan
    least = min(examples for _, examples, _ in arrived)
    if definition == "ratio":
        return least / min(t for _, _, t in arrived)
    factor, before = {"20%": 1.2, "2x": 2.0}[definition], None
    begun, last_known = False, math.nan
    for B, examples, t in curve:
        if begun and math.isinf(t):
            return last_known
        if begun and examples > factor * least:
            at, excess = before or (B, 1.0)
            share = math.log(factor / excess) / math.log(examples / least / excess)
            return math.exp(math.log(at) + share * math.log(B / at))
        last_known = B
        if math.isfinite(t):
            begun, before = begun or examples == least, (B, examples / least)
    return math.inf


@pytest.mark.slow
def test_intervals_hold_where_many_batch_sizes_scale_perfectly() -> None:
    """Given scatter, eight batch sizes: 85 to 95%, within three standard errors; uncorrected quantiles cover far less."""
    found = direct((60.0, 1500.0), SIZES_OF_STUDIES[8], 0.2, 60)
    for hits in found.covered.values():
        assert abs(hits.mean() - 0.9) <= 0.05 + 3 * math.sqrt(0.09 / len(hits))
