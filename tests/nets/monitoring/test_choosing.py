"""The batch size to use: the law against a plain count, the optimum against a fine search, the interval by simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nqm.nets import BatchChoice
from nqm.nets.monitoring.choosing import Setting, steps_ratio
from nqm.types import Wrong

GROWING = BatchChoice(noise_scale=700, devices=8, per_device=32, seconds=0.2, training_steps=10_000, low=400, high=1200)
TIMED = replace(GROWING, other=(64, 0.25))  # 0.15 s, and 1/640 s for each example on a device


def counted(b: float, B: float) -> float:
    """Steps until gains of 1 / (1 + b / B) add up to a thousand."""
    gained, steps = 0.0, 0
    while gained < 1000:
        gained += 1 / (1 + b / B)
        steps += 1
    return steps


@pytest.mark.parametrize(("b", "B"), [(700, 512), (3, 32), (1e4, 64)])
def test_the_law_counts_steps_that_each_gain_less(b: float, B: float) -> None:
    assert steps_ratio(b, B, 256) == pytest.approx(
        counted(b, B) / counted(b, 256), rel=2e-3
    )  # a thousand steps or more
    assert steps_ratio(np.inf, B, 256) == pytest.approx(steps_ratio(1e12, B, 256), rel=1e-6)


def test_time_and_cost_are_steps_times_seconds_times_devices() -> None:
    for known, setting in ((GROWING, (16, 32)), (TIMED, (8, 128))):
        devices, m = setting
        steps = 10_000 * (1 + 700 / (devices * m)) / (1 + 700 / 256)
        seconds = 0.2 if known is GROWING else 0.15 + m / 640
        found = known.at(*setting)
        assert found.hours == pytest.approx(steps * seconds / 3600, rel=1e-12)
        assert found.device_hours == pytest.approx(devices * steps * seconds / 3600, rel=1e-12)
        assert known.present.hours == pytest.approx(10_000 * 0.2 / 3600, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("known", [GROWING, TIMED], ids=["devices", "same devices"])
@pytest.mark.parametrize("b", [90, 700, 20_000])
def test_the_best_batch_size_has_the_smallest_product(known: BatchChoice, b: float) -> None:
    known = replace(known, noise_scale=b, low=None, high=None)
    sizes = np.geomspace(32, 2**20, 200_001)
    settings = [known.at(B / 32, 32) if known.other is None else known.at(8, B / 8) for B in sizes]
    product = np.array([one.hours * one.device_hours for one in settings])
    assert known.best_batch_size(b) == pytest.approx(
        sizes[product.argmin()], rel=1e-3
    )  # the spacing is 5e-5, the minimum flat
    chosen = known.chosen
    assert chosen.hours * chosen.device_hours <= 1.07 * product.min()  # at most sqrt(2) from the optimum
    assert np.log2(chosen.batch_size / 256) == int(np.log2(chosen.batch_size / 256))


@pytest.mark.slow
def test_a_law_without_the_one_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nqm.nets.monitoring.choosing.steps_ratio", lambda b, B, reference: reference / B)
    with pytest.raises(AssertionError):
        test_time_and_cost_are_steps_times_seconds_times_devices()
    with pytest.raises(AssertionError):
        test_the_best_batch_size_has_the_smallest_product(GROWING, 700)


@pytest.mark.parametrize("known", [GROWING, TIMED], ids=["devices", "same devices"])
def test_the_interval_covers_the_choice_as_often_as_that_of_the_noise_scale(known: BatchChoice) -> None:
    rng, truth, covered = np.random.default_rng(0), 700.0, 0
    wanted, trials = replace(known, noise_scale=truth, low=None, high=None).chosen.batch_size, 400
    for measured in truth * np.exp(0.3 * rng.standard_normal(trials)):
        wide = np.exp(1.645 * 0.3)
        seen = replace(known, noise_scale=measured, low=measured / wide, high=measured * wide)
        low, high = seen.interval()
        assert low is not None
        assert high is not None
        assert low <= seen.chosen.batch_size <= high
        covered += low <= wanted <= high
    z = (covered - 0.9 * trials) / np.sqrt(trials * 0.9 * 0.1)
    assert z > -3  # it may cover more often, because choices are a factor of two apart


def test_the_sentence_has_the_numbers() -> None:
    def of(known: BatchChoice) -> str:
        return known.sentence()

    speed = (1 + 700 / 256) / (1 + 700 / 512)
    cost = 2 / speed
    assert of(GROWING) == (
        f"Use batch size 512 (interval 512 to 1,024) on 16 devices: {speed:.2g} times as fast as 256 for {cost:.2g} times the cost."
    )
    assert of(TIMED).startswith(
        "Use batch size 1,024 (interval 512 to 1,024) on the same 8 devices: 1.3 times as fast as 256"
    )
    assert of(replace(GROWING, noise_scale=3, low=None, high=None)) == (
        "Use batch size 32 on 1 device: 0.14 times the cost of 256 for 1.1 times the time."
    )
    sure = replace(GROWING, low=600, high=710)  # beyond 724 the choice is 1,024
    assert of(sure).startswith("Use batch size 512 (the same over the whole interval) on 16 devices")
    kept = replace(GROWING, noise_scale=256, low=200, high=None)
    assert of(kept) == (
        "Keep batch size 256 (interval 256 to no upper end) on 8 devices: 512 would be 1.3 times as fast for 1.5 times the cost."
    )


def test_what_it_rests_on_says_what_is_not_known() -> None:
    told = " ".join(GROWING.rests_on())
    assert "slower communication is not counted" in told
    assert "does not cover errors of the law" in told
    assert "lie outside the range that was timed, 32 to 64" in " ".join(TIMED.rests_on())
    assert "has no interval" in " ".join(replace(GROWING, low=None, high=None).rests_on())
    assert "no overhead" in " ".join(replace(GROWING, other=(64, 0.5)).rests_on())
    small = replace(GROWING, noise_scale=3, low=None, high=None)
    assert "may cost less still" in " ".join(small.rests_on())


def test_a_curve_goes_through_the_choice() -> None:
    hours = np.array([[one.device_hours, one.hours] for one in GROWING.by_devices()])
    assert np.interp(GROWING.chosen.device_hours, *hours.T) == pytest.approx(GROWING.chosen.hours, rel=1e-2)
    assert GROWING.by_batch() == []
    best: Setting = min(TIMED.by_batch(), key=lambda one: one.hours)
    assert best.hours == pytest.approx(TIMED.at(8, TIMED.best_batch_size(700) / 8).hours, rel=1e-3)
    same = min(TIMED.by_devices(), key=lambda one: abs(np.log(one.devices / 8)))
    assert same.hours == pytest.approx(best.hours, rel=0.05)  # the grid of devices is 6% apart


@pytest.mark.parametrize(
    ("change", "argument", "words"),
    [({"low": 900}, "noise_scale", "not between the ends 900 and 1200"), ({"low": None}, "low", "needs the lower end"),
     ({"other": (32, 0.3)}, "other_per_device", "time another"), ({"other": (64, 0.1)}, "other_seconds", "0.1 s at 64")],
)  # fmt: skip
def test_what_cannot_be_is_refused(change: dict[str, Any], argument: str, words: str) -> None:
    with pytest.raises(Wrong, match=words) as caught:
        replace(GROWING, **change)
    assert caught.value.argument == argument
