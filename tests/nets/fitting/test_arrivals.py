"""Arrivals of Adam on a fit in its metric, its sampled trainings, and critical batch sizes by first hits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from models import Trained, adamw_regression, mlp

from nqm import EMA, SGD, AdamW, Clipped, HeavyBall, Quadratic, Spectrum, sweep
from nqm.nets import Fit, Network, fit
from nqm.nets.fitting.adam_state import read_state
from nqm.nets.fitting.adaptive import AdaptiveRun, AdaptiveTrainings
from nqm.nets.fitting.arrivals import FARTHEST_RATE, Arrivals, _tamed, arrivals_of, decayed_steps
from nqm.nets.fitting.hits import FirstHits
from nqm.nets.fitting.stepwise import family_in_metric
from nqm.nets.fitting.validation import check, settings
from nqm.nets.fitting.verifying import continued, verify
from nqm.nets.training.loop import Batches
from nqm.types import Wrong

REPLICAS = 4000


@cache
def quadratic() -> tuple[Trained, Network, Fit]:
    """A linear adamw_regression in the metric of AdamW: the plain quadratic is exact."""
    trained = adamw_regression()
    model, optimizer, data = trained
    network = Network(model, torch.nn.functional.mse_loss, data)
    return trained, network, fit(network, optimizer=optimizer, descent=0)


@cache
def bent() -> tuple[Network, Fit]:
    """A small MLP in the metric of an AdamW that starts here."""
    network = mlp()
    return network, fit(network, optimizer=AdamW(1e-2, beta2=0.99), batch_size=8, descent=60, test=False)


def test_the_mean_over_sampled_trainings_is_the_expected_loss() -> None:
    """Without a descent both are exact; noise that is 30% louder is seen."""
    _, _, found = quadratic()
    for louder in (1.0, 1.3):
        setting = found, Clipped(AdamW(0.02, beta2=0.9999999, weight_decay=0.1), norm=30.0), 2
        path = AdaptiveRun(*setting)
        sampled = AdaptiveTrainings(AdaptiveRun(*setting), REPLICAS, np.random.default_rng(3))
        sampled.c = sampled.c * louder
        for _ in range(150):
            path.step()
            sampled.step()
        losses = sampled.losses()
        z = (losses.mean() - path.loss) / (losses.std() / math.sqrt(REPLICAS))
        assert (abs(z) < 4) == (louder == 1.0)


def test_tuned_steps_of_adamw_are_those_of_its_prediction() -> None:
    _, found = bent()
    target = 0.8 * found.loss
    family = family_in_metric(found)
    assert family is not None
    arrived = arrivals_of(found, family, [4, 32], target, searched=True)
    for tuned, steps, size in zip(arrived.expected.optimizers, arrived.expected.steps, (4, 32), strict=True):
        assert isinstance(tuned, AdamW)
        loss = found.predict(tuned, size, [int(steps) - 1, int(steps)]).loss
        assert loss[1] <= target < loss[0]
        for factor in (0.6, 1.7):  # another rate of those that are searched is not sooner
            if factor * float(tuned.lr) > FARTHEST_RATE * 1e-2:
                continue
            other = AdamW(factor * float(tuned.lr), beta2=0.99)
            assert (found.predict(other, size, list(range(int(steps)))).loss > target).all()
    assert all(
        hit is not None and hit.steps <= 1.2 * t for hit, t in zip(arrived.hits, arrived.expected.steps, strict=True)
    )
    assert arrivals_of(found, AdamW(0.01), [32], target).expected.lr.tolist() == [0.01]
    with pytest.raises(Wrong, match="only the learning rate"):
        arrivals_of(found, AdamW(0.01, weight_decay="free"), [32], target)  # type: ignore[arg-type]


def test_the_search_starts_elsewhere_where_the_rate_of_the_fit_does_not_arrive() -> None:
    """At 0.8, and at half of it, noise keeps the loss above the target; the search finds what it finds from a rate that arrives."""
    _, found = bent()
    target = 0.8 * found.loss
    assert found.metric is not None
    steps = []
    for lr in (0.8, 0.1):
        family = AdamW(beta2=0.99)
        given = replace(found, metric=replace(found.metric, optimizer=AdamW(lr, beta2=0.99)))  # type: ignore[arg-type]
        steps.append(arrivals_of(given, family, [4], target).expected.steps[0])
    assert (found.predict(AdamW(0.4, beta2=0.99), 4, 500).loss > target).all()
    assert steps[0] == pytest.approx(steps[1], abs=1)


def test_a_momentum_averages_no_more_gradients_than_there_are_steps() -> None:
    """What is set in the family stays; a momentum that is small enough stays too."""
    wild = HeavyBall(0.1, 0.99999)
    assert _tamed(wild, HeavyBall(), 4.0) == HeavyBall(0.1, 0.75)
    assert _tamed(wild, HeavyBall(), 1.0) == HeavyBall(0.1, 0.5)
    assert _tamed(wild, HeavyBall(momentum=0.99999), 4.0) == wild
    assert _tamed(EMA(HeavyBall(0.1, 0.7), 0.9), EMA(HeavyBall()), 4.0) == EMA(HeavyBall(0.1, 0.7), 0.9)
    assert _tamed(SGD(0.1), SGD(), 4.0) == SGD(0.1)


def test_decay_of_adamw_saves_steps_and_arrives() -> None:
    _, found = bent()
    advice = found.advise(4, 0.6 * found.loss, batch_sizes=[4, 32])
    tuned = advice.arrivals[0].expected
    assert advice.decay_steps == decayed_steps(found, tuned.optimizers[0], float(tuned.steps[0]), 4, advice.target)
    assert advice.decay_steps is not None
    assert advice.decay_steps <= tuned.steps[0]
    assert "AdamW" in advice.sentences[0]
    assert any("a straight line to zero" in sentence for sentence in advice.sentences)


def test_advice_for_adamw_is_trained_from_the_start_of_its_state() -> None:
    network, found = bent()
    advice = found.advise(8, 0.8 * found.loss, batch_sizes=[8])
    verified = verify(network, found, advice, seeds=3)
    assert 1 / 3 <= verified.ratio <= 3


@pytest.mark.parametrize("groups", [False, True])
def test_a_training_goes_on_from_a_state_as_torch_does(groups: bool) -> None:
    """Full gradients, clipped; rates and decays of the groups; the second route is torch's own AdamW."""
    model, optimizer, data = adamw_regression(groups)
    network = Network(model, torch.nn.functional.mse_loss, data)
    first = optimizer.param_groups[0]
    setting = Clipped(AdamW(0.02, beta2=0.9999999, weight_decay=0.1), norm=0.5), math.inf, [1, 5]
    found = dict(continued(network, read_state(network, optimizer), setting, Batches(network.examples, (0,))))
    scale = 0.02 / first["lr"]
    for group in optimizer.param_groups:
        group["lr"] *= scale
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data[0]), data[1]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    theirs = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    ours = torch.cat([part.reshape(-1) for part in network.unflatten(found[5]).values()])
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6)  # torch adds 1e-6 to the norm by which it clips
    assert not torch.allclose(found[1], found[5])


def test_a_state_is_asked_for_if_the_fit_had_one() -> None:
    (_, optimizer, _), network, found = quadratic()
    advice = found.advise(16, 0.95 * found.loss, batch_sizes=[16])
    with pytest.raises(Wrong, match="needs the state of the optimizer"):
        verify(network, found, advice)
    assert verify(network, found, advice, seeds=1, state=optimizer).promised == advice.steps


def test_the_critical_batch_size_by_hits_is_that_of_a_hyperbola() -> None:
    """T = S + E / B has twice the examples of perfect scaling near B = E / S; scattered hits give an interval around it."""
    sizes, S, E = np.array([1.0, 16, 64, 256, 1024, 4096]), 20.0, 5120.0
    rng = np.random.default_rng(0)
    hits = tuple(FirstHits(SGD(0.1), B, 0.1, 1, (S + E / B) * rng.uniform(0.9, 1.1, 64)) for B in sizes)
    swept = sweep(Quadratic(Spectrum([1.0, 0.1])), SGD(), sizes.tolist(), target=0.1)
    arrived = Arrivals(swept, hits)
    critical = arrived.critical_by_hits()
    assert critical is not None
    assert critical.low < E / S < critical.high
    assert critical.high < 1.3 * critical.low
    late = tuple(FirstHits(SGD(0.1), B, 0.1, 1, np.full(64, np.inf)) for B in sizes)
    assert Arrivals(swept, late).critical_by_hits() is None


@pytest.mark.slow
def test_a_fit_in_a_metric_is_checked_and_bounded() -> None:
    """A check predicts and trains the fit's own optimizer; and a prediction of a million steps is refused before it begins."""
    network, found = bent()
    pairs = settings(found, rates=[0.1], batch_sizes=[8])
    assert [(type(one).__name__, size) for one, size in pairs] == [("AdamW", 8)]
    row = check(network, found, [(AdamW(1e-3, beta2=0.99), 8)], steps=[3, 10], seeds=1).rows[0]
    assert row.prediction.run.outcome.ok
    assert np.abs(row.error).max() < 0.2
    with pytest.raises(Wrong, match=r"in the metric of AdamW.* takes too long; ask for at most 100,000 steps"):
        found.predict(AdamW(1e-3, beta2=0.99), 8, 10**6)
    continued = replace(found, metric=replace(found.metric, step=50))  # type: ignore[arg-type]
    with pytest.raises(Wrong, match=r"continues AdamW.* after 50 steps, and a check trains a fresh optimizer"):
        check(network, continued, pairs)
