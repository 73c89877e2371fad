"""Measured curves: medians, intervals over seeds, critical batch sizes; against closed forms and a planted order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from lab_curves import SIZES, curve, hyperbola

from benchmarks.lab_coverage import SIZES as SIZES_OF_STUDIES
from benchmarks.lab_coverage import direct
from nqm import SGD, Quadratic, Spectrum, sweep
from nqm.lab import Point, Trial
from nqm.lab.compare import Curve, curves_of, findings
from nqm.lab.compare.curves import critical
from nqm.lab.compare.verdicts import beyond, ratio
from nqm.search.sweeps import Definition
from nqm.show.verdict import Verdict


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
    found = sweep(Quadratic(Spectrum.power_law(100)), SGD(), SIZES.tolist(), target=0.1)
    points = [point(int(B), int(s)) for B, s in zip(SIZES, found.steps, strict=True)]
    (curve,) = curves_of(reversed(points))
    estimate = curve.critical_batch_size(definition)  # type: ignore[arg-type]
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.high < 1.1 * estimate.low  # Only the resolution of whole steps is left.
    if definition == "ratio":  # a study has no batch without end: its largest stands for it
        assert estimate.value == pytest.approx(np.min(found.examples) / np.min(found.steps))
    else:
        assert estimate.value == pytest.approx(found.critical_batch_size(definition))  # type: ignore[arg-type]


def test_a_curve_that_scales_perfectly_has_no_critical_batch_size_here() -> None:
    assert critical(SIZES, 4096 / SIZES, "2x") == math.inf
    assert critical(SIZES, np.full(len(SIZES), 40), "ratio") == SIZES[0]  # whole numbers of steps
    assert math.isnan(critical(SIZES, np.full(len(SIZES), math.inf), "2x"))
    steps = tuple(np.array([4096.0 / B]) for B in SIZES)
    found = curve("KFAC", 4096 / SIZES, steps)
    assert beyond(found.critical_batch_size("2x"), found.largest) == ">1,024 (not known)"  # one seed has no interval


def test_without_fresh_seeds_nothing_is_decided() -> None:
    made = [hyperbola("SGD", 30, 100), hyperbola("HeavyBall", 300, 10), hyperbola("EMA(SGD)", 25, 110)]
    bare = [replace(curve, seeds=tuple(np.empty(0) for _ in SIZES), repeats=((),) * len(SIZES)) for curve in made]
    assert {finding.verdict for finding in findings(bare)} == {Verdict.open}
    assert math.isnan(bare[0].critical_batch_size("2x").low)


def test_a_label_is_judged_as_the_optimizer_it_names() -> None:
    small, large = hyperbola("SGD", 30, 100), replace(hyperbola("mine", 300, 10), optimizer="HeavyBall")
    assert findings([small, large])[0].verdict is Verdict.holds
    signs = replace(hyperbola("Sign", 30, 100), optimizer="Sign")
    assert signs.effective_lr == pytest.approx(signs.lr)  # it averages gradients


def test_draws_of_two_curves_are_apart_whatever_their_names() -> None:
    one = hyperbola("Adam", 64, 100)
    other = replace(one, name="KFAC", label="KFAC", optimizer="KFAC")
    assert ratio(one, other, 8.0).low < 1 < ratio(one, other, 8.0).high


def test_the_order_of_critical_batch_sizes_is_found_and_its_reverse_is_not() -> None:
    small, large = hyperbola("SGD", 30, 100), hyperbola("HeavyBall", 300, 10)
    order = findings([small, large])[0]
    assert order.verdict is Verdict.holds
    swapped = [hyperbola("SGD", 300, 10), hyperbola("HeavyBall", 30, 100)]
    assert findings(swapped)[0].verdict is Verdict.fails


def test_momentum_alike_at_small_batch_and_ahead_at_large() -> None:
    sgd, momentum = hyperbola("SGD", 30, 100), hyperbola("HeavyBall", 350, 10)
    small, large = findings([sgd, momentum])[1:]
    assert small.verdict is Verdict.holds
    assert large.verdict is Verdict.holds
    assert ratio(momentum, sgd, 8.0).value == pytest.approx(momentum.typical[0] / sgd.typical[0])
    slower = hyperbola("HeavyBall", 30, 300)
    assert [f.verdict for f in findings([sgd, slower])[1:]] == [Verdict.fails, Verdict.fails]


def test_an_average_that_helps_everywhere_is_not_one_that_helps_at_small_batch_only() -> None:
    plain = hyperbola("SGD", 60, 100)
    small_only, everywhere = hyperbola("EMA(SGD)", 25, 110), hyperbola("EMA(SGD)", 60, 30)
    assert findings([plain, small_only])[-1].verdict is Verdict.holds
    assert findings([plain, everywhere])[-1].verdict is Verdict.partly
    assert findings([plain, hyperbola("EMA(SGD)", 150, 200)])[-1].verdict is Verdict.fails  # worse everywhere


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


def never_at(curve_: Curve, *places: int) -> Curve:
    """The curve, of which no search arrives at some batch sizes."""
    lost = np.array([math.inf])
    seeds = tuple(lost if i in places else s for i, s in enumerate(curve_.seeds))
    repeats = tuple((lost, lost) if i in places else found for i, found in enumerate(curve_.repeats))
    searched = np.array([math.inf if i in places else s for i, s in enumerate(curve_.searched)])
    return replace(curve_, seeds=seeds, repeats=repeats, searched=searched)


def test_a_critical_batch_size_lies_below_a_batch_that_never_arrives() -> None:
    whole = hyperbola("KFAC", 2000, 10)  # which scales to the largest batch size, 1,024
    assert whole.critical_batch_size("2x").value == math.inf
    cut = never_at(whole, 6, 7)
    found = cut.critical_batch_size("2x")
    assert SIZES[5] >= found.value
    assert found.high <= SIZES[6]
    hole = never_at(whole, 5)  # it arrives again beyond, which does not help
    assert hole.critical_batch_size("2x").high <= SIZES[5]


def test_an_optimizer_that_never_arrives_at_large_batch_is_not_credited() -> None:
    sgd, large = hyperbola("SGD", 100, 100), hyperbola("HeavyBall", 2000, 10)
    assert findings([sgd, large])[0].verdict is Verdict.holds
    lost = never_at(large, 3, 4, 5, 6, 7)
    assert findings([sgd, lost])[0].verdict is Verdict.fails
    assert findings([sgd, lost])[2].verdict is Verdict.fails  # nor does it take fewer steps there
    other = never_at(sgd, 6, 7)
    assert findings([other, large])[2].verdict is Verdict.holds  # SGD takes infinitely many
    assert ratio(large, other, 1024.0).value == 0


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
