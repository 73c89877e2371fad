"""Advice: tuned steps to a target over batch sizes, what is said about them, and the same trained for real."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from html import escape

import numpy as np
import pytest
from fitted import digits
from reading import check_reads_well

from nqm import EMA, SGD, Adam, HeavyBall
from nqm.nets.fitting.advice import Advice, _sentences, advise
from nqm.nets.fitting.hits import SLOWED, first_hits
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.verifying import measured_seconds, verify
from nqm.nets.training.loop import train
from nqm.nets.workloads import workload
from nqm.types import Wrong


@cache
def one_family() -> Advice:
    return digits()[1].advise(64, 0.12, SGD(), batch_sizes=[16, 256], seconds_per_step={64: 0.1, 128: 0.3})


@pytest.mark.slow
def test_advice_reads_well() -> None:
    fit, target = digits()[1], 0.9 * digits()[1].loss
    advice = advise(fit, 64, target, batch_sizes=[64, 256])
    html = check_reads_well(advice, f"loss {target:g} at batch_size=64: ", " soonest, in ", rows=len(advice.table()))
    assert all(escape(sentence) in html for sentence in advice.sentences)
    hopeless = advise(fit, 64, 1e-9)
    assert hopeless.sentences[0] in repr(hopeless)


@pytest.mark.slow
def test_advice_is_what_the_engine_finds() -> None:
    network, found = digits()
    advice = advise(found, 64, 0.1, batch_sizes=[16, 256, 1024])
    assert advice.reachable
    assert advice.critical_batch_size is not None
    critical = advice.critical_batch_size
    assert 20 < critical.low <= critical.value <= critical.high < 1.2 * critical.low
    text = " ".join(advice.sentences)
    for phrase in ("of the critical size", "soonest", "heavy ball", "Nesterov", "decaying", "doubling the batch saves"):
        assert phrase in text
    expected = advice.arrivals[0].expected
    here = expected.batch_sizes.tolist().index(64)
    sgd, steps = expected.optimizers[here], int(expected.steps[here])
    assert sgd is not None
    predicted = found.predict(sgd, 64, [steps])
    assert 0.092 < predicted.loss[0] < 0.1005  # linearised at the target, where there is more noise: on the safe side
    real = train(network, sgd, 64, [steps], seeds=4)
    assert real.stderr is not None
    assert abs(real.loss[0] - predicted.loss[0]) < 0.05 * predicted.loss[0] + 3 * real.stderr[0]


@pytest.mark.slow
def test_progress_goes_on_within_a_family_and_ctrl_c_ends_it() -> None:
    found, shares, families = digits()[1], list[float](), 4
    asked = {"batch_sizes": [16, 256]}
    advice = advise(found, 64, 0.12, **asked, progress=lambda done, total: shares.append(done / total))  # type: ignore[arg-type]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    sizes, parts = len(advice.sweeps[0].batch_sizes), families + 2  # with the critical size, and with decay
    within = np.searchsorted(np.arange(1, parts) / parts, sorted(set(shares[:-1])), side="right")
    assert np.all(np.bincount(within, minlength=parts)[:families] > 2 * sizes)
    assert np.bincount(within)[families] > 10  # the interval of the critical size
    for last in (0.0, 0.3, 0.7):

        def stop(done: int, total: int, last: float = last) -> None:
            if done >= last * total:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            advise(found, 64, 0.12, **asked, progress=stop)  # type: ignore[arg-type]


@pytest.mark.slow
def test_targets_out_of_reach() -> None:
    _, found = digits()
    beyond = advise(found, 64, 1e-4)
    assert not beyond.reachable
    assert "beyond the descent" in beyond.sentences[0]
    plain = Fit(found.signal, found.noise, found.loss, found.examples, found.top)
    assert "the minimum of the quadratic" in advise(plain, 64, 1e-4).sentences[0]
    with pytest.raises(ValueError, match="not below the loss"):
        advise(found, 64, 1.0)


@pytest.mark.slow
def test_one_family_alone_is_tuned_and_what_is_set_in_it_stays() -> None:
    advice = one_family()
    assert [type(one.family) for one in advice.arrivals] == [SGD]
    assert {row["batch_size"] for row in advice.table()} == {16, 64, 128, 256}
    assert advice.steps == advice.arrivals[0].hits[1].steps  # type: ignore[union-attr]
    held = digits()[1].advise(64, 0.12, HeavyBall(0.05, 0.9), batch_sizes=[64])
    assert str(held.optimizer) == "HeavyBall(lr=0.05, momentum=0.9)"
    half = digits()[1].advise(64, 0.12, HeavyBall(momentum=0.5), batch_sizes=[64])
    assert half.optimizer is not None
    assert half.optimizer.momentum == 0.5  # type: ignore[attr-defined]


@pytest.mark.slow
def test_seconds_are_steps_times_seconds_per_step_on_straight_lines() -> None:
    advice = one_family()
    each = {16: 0.1, 64: 0.1, 128: 0.3, 256: 0.7}
    for row in advice.table():
        assert row["seconds"] == pytest.approx(row["steps"] * each[row["batch_size"]])  # type: ignore[operator, index]
    assert f"at 0.1 s per step this takes {advice.steps * 0.1:.3g} s" in advice.sentences[1]  # type: ignore[operator]
    plain = digits()[1].advise(64, 0.12, SGD(), batch_sizes=[64], seconds_per_step=2.0)
    assert set(plain.seconds_per_step.values()) == {2.0}


@pytest.mark.slow
def test_the_band_holds_the_scatter_of_trainings_and_the_error_of_the_fit() -> None:
    """Both ends by hand, from the interval of the prediction."""
    advice, found = one_family(), digits()[1]
    best = advice.best
    assert best is not None
    ahead = found.predict(best.optimizer, 64, list(range(1000)))
    early, usual, late = (float(np.argmax(curve <= 0.12)) for curve in (ahead.low, ahead.loss, ahead.high))
    raw = first_hits(found, best.optimizer, 64, 0.12, most=best.most)
    assert ahead.run.noise is not None
    slowed = 1 + SLOWED * float(ahead.run.noise[int(raw.steps)] / 64 / ahead.loss[int(raw.steps)])
    np.testing.assert_array_equal(best.hits, np.ceil(slowed * raw.hits))
    assert advice.low == math.floor(best.low * early / usual / slowed)
    assert advice.high == math.ceil(best.high * late / usual)
    assert advice.low < best.low < best.high < advice.high
    again = found.first_hits(best.optimizer, 64, 0.12, most=best.most)  # as nqm predict --target gives it
    assert (again.early, again.steps, again.late) == (advice.low, advice.steps, advice.high)
    worse = replace(found, tested=None)
    assert worse.advise(64, 0.12, SGD(), batch_sizes=[64]).high > advice.high  # type: ignore[operator]


def test_the_setting_to_take_is_the_one_whose_band_ends_first() -> None:
    """A smaller median with a later end is not taken, at one batch size and in the table; the sentences tell of it."""
    advice = one_family()
    (sgd,) = advice.arrivals
    daring = HeavyBall(0.3, 0.9)
    hits = tuple(
        replace(hit, optimizer=daring, hits=np.where(np.arange(len(hit.hits)) % 4 == 0, 9.0, 0.9) * hit.hits)
        for hit in sgd.hits
        if hit is not None
    )
    both = replace(advice, arrivals=(sgd, replace(sgd, hits=hits)))
    here = both.hits[1]
    assert here is not None
    assert here.steps < advice.steps  # type: ignore[operator]
    assert here.late > advice.high  # type: ignore[operator]
    assert both.optimizer == advice.optimizer
    assert [row["optimizer"] for row in both.soonest()] == [row["optimizer"] for row in advice.table()]
    told = list(_sentences(digits()[1], both))[1]
    assert told.startswith(f"{daring} is promised after {here.steps:,.0f}, but one training in ten may take")
    early = replace(both, arrivals=(sgd, replace(sgd, hits=tuple(replace(h, hits=0.9 * h.hits / 9) for h in hits))))
    assert early.optimizer == daring


def test_what_is_said() -> None:
    text = "; ".join(one_family().sentences)
    for phrase in (
        "soonest",
        "by first hits the critical size",
        "doubling the batch saves",
        "by their own scatter and the error of the fit",
    ):
        assert phrase in text, phrase
    advice = one_family()
    assert f"(80% of trainings between {advice.low:,.0f} and {advice.high:,.0f}, by" in advice.sentences[0]
    assert text.count("80% of trainings") == 1
    assert "so expect" not in text
    plain = json.loads(json.dumps(one_family().to_dict()))
    assert plain["critical_by_hits"]["low"] <= plain["critical_by_hits"]["value"] <= plain["critical_by_hits"]["high"]
    assert len(plain["table"]) == 4


def test_wrong_calls_are_refused() -> None:
    found = digits()[1]
    with pytest.raises(Wrong, match="is predicted from a fit in its own metric"):
        found.advise(64, 0.1, Adam())
    with pytest.raises(Wrong, match="seconds_per_step must be positive"):
        found.advise(64, 0.1, SGD(), batch_sizes=[64], seconds_per_step=0.0)
    with pytest.raises(Wrong, match="cadence"):
        found.advise(64, 0.1, SGD(), cadence=0)


def test_advice_is_verified_by_training() -> None:
    """Real first hits by a loop over `train`, which has other batches, are those of the promise within a third."""
    network, found = digits()
    advice = one_family()
    verified = verify(network, found, advice, seeds=3)
    assert len(verified.hits) == 3
    assert 1 / 1.5 < verified.ratio < 1.5
    assert "3 trainings first dipped below 0.12 after" in verified.message
    assert verified.to_dict()["promised"] == advice.steps
    assert advice.optimizer is not None
    real = train(network, advice.optimizer, 64, list(range(1, 3 * int(advice.steps))), seeds=1)  # type: ignore[arg-type]
    assert 1 / 1.6 < (np.argmax(real.loss <= 0.12) + 1) / verified.steps < 1.6
    with pytest.raises(Wrong, match="not of the same checkpoint"):
        verify(workload("digits").network(10), found, advice)
    hopeless = advise(found, 64, 1e-9)
    with pytest.raises(Wrong, match="there is nothing to verify"):
        verify(network, found, hopeless)


def test_a_promise_that_is_wrong_is_seen() -> None:
    network, found = digits()
    quiet = replace(found, noise=replace(found.noise, weight=found.noise.weight / 100))
    verified = verify(network, found, quiet.advise(4, 0.12, EMA(SGD()), batch_sizes=[4]), seeds=2)
    assert not verified.ratio < 1.5


def test_steps_are_timed_up_to_the_number_of_examples() -> None:
    found = measured_seconds(digits()[0], [4.0, 16384.0])
    assert list(found) == [4.0, 1797.0]
    assert all(seconds > 0 for seconds in found.values())
