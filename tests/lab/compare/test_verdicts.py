"""Verdicts on the paper's findings, on simulated studies whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from lab_curves import SIZES, curve, hyperbola, never_at, with_rates

from nqm.lab.compare import Curve, Topic, by_topic, findings, read_curves
from nqm.lab.compare.verdicts import Ratio, momentum
from nqm.paper.network_studies import table_of
from nqm.show.verdict import Finding, Verdict
from nqm.types import Array


def averages(curves: list[Curve]) -> Finding:
    return by_topic(curves)[Topic.average][0]


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


def test_the_order_of_critical_batch_sizes_is_found_and_its_reverse_is_not() -> None:
    small, large = hyperbola("SGD", 30, 100), hyperbola("HeavyBall", 300, 10)
    order = findings([small, large])[0]
    assert order.verdict is Verdict.holds
    swapped = [hyperbola("SGD", 300, 10), hyperbola("HeavyBall", 30, 100)]
    assert findings(swapped)[0].verdict is Verdict.fails


def test_momentum_alike_at_small_batch_and_ahead_at_large() -> None:
    sgd, fast = hyperbola("SGD", 30, 100), hyperbola("HeavyBall", 350, 10)
    small, large = findings([sgd, fast])[1:3]
    assert small.verdict is Verdict.holds
    assert large.verdict is Verdict.holds
    assert Ratio.at(fast, sgd, 8.0).values == pytest.approx((fast.typical[0] / sgd.typical[0],) * 2)
    slower = hyperbola("HeavyBall", 30, 300)
    assert [f.verdict for f in findings([sgd, slower])[1:3]] == [Verdict.fails, Verdict.fails]


def test_an_average_that_helps_everywhere_is_not_one_that_helps_at_small_batch_only() -> None:
    plain = hyperbola("SGD", 60, 100)
    small_only, everywhere = hyperbola("EMA(SGD)", 25, 110), hyperbola("EMA(SGD)", 60, 30)
    assert averages([plain, small_only]).verdict is Verdict.holds
    assert averages([plain, everywhere]).verdict is Verdict.partly
    assert averages([plain, hyperbola("EMA(SGD)", 150, 200)]).verdict is Verdict.fails  # worse everywhere


def test_an_optimizer_that_never_arrives_at_large_batch_is_not_credited() -> None:
    sgd, large = hyperbola("SGD", 100, 100), hyperbola("HeavyBall", 2000, 10)
    assert findings([sgd, large])[0].verdict is Verdict.holds
    lost = never_at(large, 3, 4, 5, 6, 7)
    assert findings([sgd, lost])[0].verdict is Verdict.fails
    assert findings([sgd, lost])[2].verdict is Verdict.fails  # nor does it take fewer steps there
    other = never_at(sgd, 6, 7)
    assert findings([other, large])[2].verdict is Verdict.holds  # SGD takes more than a million


@pytest.mark.parametrize(
    ("allowed", "verdict"), [(100, Verdict.holds), (50, Verdict.open), (20, Verdict.open), (0, Verdict.open)]
)
def test_a_run_that_ran_out_decides_what_its_lower_bound_decides(allowed: float, verdict: Verdict) -> None:
    """Heavy ball takes 50 steps at the largest batch size. SGD needs more than 100, than 50, than 20, or all diverged."""
    sgd = never_at(hyperbola("SGD", 100, 400), 7, allowed=allowed)
    fast = hyperbola("HeavyBall", 1000, 25.3, spread=0.2)
    large = findings([sgd, fast])[2]
    assert large.verdict is verdict
    bound = fast.typical[-1] / max(allowed, 1)
    assert f"steps with momentum over without: at most {bound:.4g} (" in large.measured
    assert " 0 (0 to 0)" not in large.measured
    assert sgd.ran_out.tolist() == [False] * 7 + [allowed > 1]
    row = sgd.table()[-1]
    assert (row["steps"], row["more_than"]) == (None, allowed or None)
    slow = findings([hyperbola("SGD", 1000, 25.3), never_at(hyperbola("HeavyBall", 100, 400), 7, allowed=allowed)])[2]
    assert slow.verdict is (Verdict.fails if allowed == 100 else Verdict.open)
    assert f"at least {allowed / 50 if allowed else 0.02:.1g}"[:10] in slow.measured


def test_a_bound_on_steps_bounds_a_critical_batch_size() -> None:
    """The crossing lies between 64 and 128, where more than 160 steps were needed: the bound leaves both ends open."""
    whole = hyperbola("SGD", 64, 100, spread=0.0)
    lost = never_at(whole, 4, 5, 6, 7, allowed=160)
    assert lost.bounded()
    assert not whole.bounded()
    found, before = lost.critical_batch_size(), whole.critical_batch_size()
    assert found.value == 64 <= before.value <= found.high
    generous = never_at(whole, 4, 5, 6, 7, allowed=1e6)
    assert generous.critical_batch_size().high < 80
    order_ = findings([lost, hyperbola("HeavyBall", 58, 90)])[0]
    assert "SGD at least 64 (" in order_.measured
    assert order_.verdict is Verdict.open


def at_edge(made: Curve, *places: int) -> Curve:
    return replace(made, at_edge=tuple(("lr high",) if i in places else () for i in range(len(SIZES))))


@pytest.mark.parametrize("doubt", ["edge", "unfinished"])
def test_nothing_is_decided_that_rests_on_a_cell_at_an_edge_or_unfinished(doubt: str) -> None:
    knees = {"SGD": 30, "HeavyBall": 300, "Adam": 900, "EMA(SGD)": 25}
    made = [with_rates(hyperbola(name, knee, 3000 / knee), np.minimum(SIZES, 64)) for name, knee in knees.items()]
    sound = by_topic(made)
    assert sound[Topic.order][0].verdict is sound[Topic.momentum_large][0].verdict is Verdict.holds
    mark = lambda one, i: (  # noqa: E731
        at_edge(one, i) if doubt == "edge" else replace(one, unfinished=tuple(k == i for k in range(len(SIZES))))
    )
    said = (
        "the best lr of HeavyBall lies at an end of its range at B = 8"
        if doubt == "edge"
        else "HeavyBall is not finished at B = 8"
    )
    found = by_topic([made[0], mark(made[1], 0), *made[2:]])
    assert [one.verdict for one in found[Topic.order]] == [Verdict.open, Verdict.open]
    assert said in found[Topic.order][0].measured
    assert found[Topic.preconditioning][0].verdict is found[Topic.momentum_small][0].verdict is Verdict.open
    assert found[Topic.momentum_large] == sound[Topic.momentum_large]  # it rests on the largest batch size
    assert [one.verdict for one in found[Topic.rates]] == [Verdict.holds, Verdict.open]
    middle = by_topic([made[0], mark(made[1], 3), *made[2:]])
    assert middle[Topic.rates] == sound[Topic.rates]
    assert by_topic([mark(made[0], 0), *made[1:]])[Topic.average][0].verdict is Verdict.open


def test_a_study_of_all_optimizers_has_a_finding_on_every_topic() -> None:
    knees = {"SGD": 30, "HeavyBall": 100, "Adam": 300, "KFAC": 900, "EMA(SGD)": 25}
    found = by_topic([hyperbola(name, knee, 3000 / knee) for name, knee in knees.items()])
    assert [len(found[topic]) for topic in Topic] == [3, 1, 1, 1, 2, 2]
    assert {one.verdict for one in found[Topic.order]} == {Verdict.holds}
    assert {one.verdict for one in found[Topic.preconditioning]} == {Verdict.holds}
    assert "in 100% of resampled curves" in found[Topic.preconditioning][0].measured
    assert not any(by_topic([hyperbola("Lion", 30, 100)]).values())


def test_preconditioning_that_extends_nothing_is_not_supported() -> None:
    found = by_topic([hyperbola("HeavyBall", 300, 10), hyperbola("KFAC", 30, 100)])
    (finding,) = found[Topic.preconditioning]
    assert finding.verdict is Verdict.fails
    factor = (
        hyperbola("KFAC", 30, 100).critical_batch_size().value
        / hyperbola("HeavyBall", 300, 10).critical_batch_size().value
    )
    assert f"{factor:.3g}; more than 1 in 0% of resampled curves" in finding.measured


def rates(lr: Array, scatter: float = 0.1, luck: int = 0) -> Finding:
    return by_topic([with_rates(hyperbola("SGD", 30, 100), lr, scatter, luck=luck)])[Topic.rates][0]


def test_a_rate_that_is_linear_then_flat_is_told_from_others() -> None:
    assert rates(np.minimum(SIZES, 64)).verdict is Verdict.holds
    assert rates(SIZES).verdict is Verdict.partly  # linear everywhere
    assert rates(np.ones(8)).verdict is Verdict.partly  # flat everywhere
    assert rates(np.maximum(SIZES, 64)).verdict is Verdict.fails  # flat, then linear
    assert rates(np.minimum(SIZES, 64), scatter=1.0).verdict is Verdict.open
    one = with_rates(hyperbola("SGD", 30, 100), np.minimum(SIZES, 64), searches=1)
    assert by_topic([one])[Topic.rates][0].verdict is Verdict.open


@pytest.mark.parametrize(
    ("power", "law"),
    [
        (1, "linear"),
        (0.5, "the square root"),
        (0.75, "between the square root and linear"),
        (0.25, "between flat and the square root"),
        (1.3, "steeper than linear"),
        (-0.3, "falling"),
    ],
)
def test_a_slope_is_named_by_the_law_that_its_interval_holds(power: float, law: str) -> None:
    """Linear growth is a slope of 1: one of .75, which is above .5, does not hold as linear."""
    found = rates(np.where(SIZES <= 32, SIZES**power, 32.0**power), scatter=0.03)
    assert f" from B = 8 to 32, {law}; slope " in found.measured
    assert found.verdict is (Verdict.holds if power == 1 else Verdict.partly)  # it stays flat


def test_the_rate_of_sgd_on_digits_is_not_linear() -> None:
    """A slope of .61 (.50 to .72) does not hold 1."""
    (sgd, *_) = read_curves(table_of("digits"))
    found = by_topic([sgd])[Topic.rates][0]
    assert found.verdict is not Verdict.holds


def test_the_slope_of_a_rate_is_that_of_a_line_through_its_points() -> None:
    lr = np.array([1.0, 2.5, 3.0, 9.0, 9.0, 11.0, 10.0, 12.0])
    told = rates(lr, scatter=0.0).measured
    first, last = (np.polyfit(np.log(SIZES[part]), np.log(lr[part]), 1)[0] for part in (slice(0, 3), slice(5, 8)))
    assert f"slope {first:.2f} (" in told
    assert f"; slope {last:.2f} (" in told
    assert "from B = 8 to 32" in told
    assert "from B = 256 to 1,024" in told


def test_a_slope_of_a_half_is_seldom_called_linear_and_one_of_1_seldom_refused() -> None:
    """Seeded: a 90% interval excludes the truth in 10% of studies, within three errors; so .5 is seldom called linear."""
    half, linear = (np.where(SIZES <= 32, SIZES**power, 32.0**power) for power in (0.5, 1.0))
    studies = 200
    called = sum(rates(half, 0.2, luck).verdict is Verdict.holds for luck in range(studies))
    refused = sum(rates(linear, 0.2, luck).verdict in (Verdict.partly, Verdict.fails) for luck in range(studies))
    assert called / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert refused / studies <= 0.19 + 3 * math.sqrt(0.19 * 0.81 / studies)  # either of two intervals misses


def test_equal_optimizers_are_seldom_told_apart() -> None:
    """Seeded: of two equal optimizers momentum is said to take fewer steps in 5% of 200 studies at most, within three errors."""
    held = 0
    for luck in range(200):
        rng = np.random.default_rng([5, luck])
        medians = 100 * (1 + 60 / SIZES[:, None]) * np.exp(0.1 * rng.normal(size=(len(SIZES), 6)))
        repeats = [[[np.array([m]) for m in own[part]] for own in medians] for part in (slice(0, 3), slice(3, 6))]
        both = [
            curve(name, np.array([min(found)[0] for found in own]), [found[0] for found in own], None, own)
            for name, own in zip(("SGD", "HeavyBall"), repeats, strict=True)
        ]
        held += momentum(*both)[1][0].verdict is Verdict.holds
    assert held / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
