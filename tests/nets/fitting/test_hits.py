"""First hits: sampled trainings against exact moments, a plain loop, and the words about them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from nqm import EMA, SGD, Adam, HeavyBall, Polyak, linear
from nqm.engine.trajectory import Trajectory
from nqm.nets.estimates import Measure
from nqm.nets.fitting.descent import Descent
from nqm.nets.fitting.edge import excess
from nqm.nets.fitting.following import followed
from nqm.nets.fitting.hits import MOST_NOISE, SLOWED, FirstHits, Sampled, first_hits, looks, tuned_for_hits
from nqm.nets.fitting.model import Fit
from nqm.optimizers import Optimizer
from nqm.types import Wrong

REPLICAS = 4000


@cache
def given(sharpness: tuple[float, ...] | None = None) -> Fit:
    """A fit with signal and noise on the largest curvature, signal alone and noise alone on others."""
    h, g2 = np.array([2.0, 0.5, 0.05]), np.array([0.5, 0.2, 0.05])
    signal, noise = Measure.of([(h, g2)]), Measure.of([(np.array([2.0, 1.0]), np.array([1.5, 0.8]))])
    plain = Fit(signal, noise, 1.0, 100)
    steps = np.array([0, 10, 20, 40, 80])
    q = plain.problem.run(HeavyBall(0.5, 0.5), math.inf, steps.tolist()).signal + plain.offset
    sharp = None if sharpness is None else np.array(sharpness)
    noises = np.array([1.0, 0.7, 0.5, 0.4, 0.2])
    descent = Descent(0.5, 0.5, steps, (q / q[0]) ** 1.5, noises, sharpness=sharp)
    return Fit(signal, noise, 1.0, 100, descent=descent)


@pytest.mark.parametrize("optimizer", [SGD(0.3), HeavyBall(0.1, 0.8), EMA(SGD(0.3), 0.9)], ids=str)
def test_the_mean_over_trainings_is_the_expected_loss(optimizer: Optimizer) -> None:
    """Exact only while the noise hardly depends on the loss, so the batch is large; a noise 10% too loud is seen."""
    fit, plan = given(), linear(60, end=0.5)
    assert fit.bend is not None
    path = Trajectory(optimizer, fit.spectrum.h, plan)
    walk = Sampled(fit, path, 64, REPLICAS, np.random.default_rng(1))
    for _ in range(30):
        walk.step()
    losses = walk.losses()
    signal, noise, _ = (
        float(part[0]) for part in followed(fit.bend, fit.spectrum, optimizer, 64, np.array([30]), plan)
    )
    error = losses.std() / math.sqrt(REPLICAS)
    assert abs(losses.mean() - signal - noise / 64) < 4 * error
    assert abs(losses.mean() - signal - 1.1 * noise / 64) > 4 * error if isinstance(optimizer, SGD) else True


@pytest.mark.parametrize("optimizer", [SGD(0.6), HeavyBall(0.1, 0.8), EMA(SGD(0.3), 0.9)], ids=str)
def test_the_mean_over_trainings_is_the_expected_loss_where_curvature_changes(optimizer: Optimizer) -> None:
    """The same with a largest curvature that rises up to the edge of SGD(0.6); without the rise the mean is another one."""
    fit, plain = given((1.0, 1.5, 2.0, 2.5, 3.0)), given()
    assert fit.bend is not None
    assert plain.bend is not None
    walk = Sampled(fit, Trajectory(optimizer, fit.spectrum.h), 64, REPLICAS, np.random.default_rng(1))
    for _ in range(40):
        walk.step()
    losses, error = walk.losses(), walk.losses().std() / math.sqrt(REPLICAS)
    signal, noise, _ = (float(part[0]) for part in followed(fit.bend, fit.spectrum, optimizer, 64, np.array([40])))
    assert abs(losses.mean() - signal - noise / 64) < 4 * error
    signal, noise, _ = (float(part[0]) for part in followed(plain.bend, fit.spectrum, optimizer, 64, np.array([40])))
    assert abs(losses.mean() - signal - noise / 64) > 4 * error


def test_hits_are_those_of_a_plain_loop() -> None:
    """Without noise every training arrives when the loss of the descent by hand does, at the cadence."""
    fit = given()
    assert fit.bend is not None
    theta, step, loss = np.sqrt(fit.spectrum.s), 0, 1.0
    while loss > 0.9:
        theta, step = theta * (1 - 0.01 * fit.spectrum.h), step + 1
        loss = float(fit.bend(np.array(fit.offset + (fit.spectrum.h * theta**2).sum() / 2)))
    found = first_hits(fit, SGD(0.01), math.inf, 0.9, replicas=3)
    assert found.hits.tolist() == [step] * 3
    assert first_hits(fit, SGD(0.01), math.inf, 0.9, replicas=2, cadence=7).steps == 7 * math.ceil(step / 7)


def test_the_rate_to_take_has_the_earliest_end_with_the_error_of_the_fit() -> None:
    """By hand from sampled trainings, noise and interval of each rate; a search of real trainings takes the smallest median."""
    fit, factors = given(), (0.5, 1.0, 2.0, 4.0)
    ends, medians, shares = list[float](), list[float](), list[float]()
    for factor in factors:
        setting = SGD(0.02 * factor), 8
        hit = first_hits(fit, *setting, 0.7, most=300)
        ahead = fit.predict(*setting, list(range(1000)))
        usual, late = (float(np.argmax(curve <= 0.7)) for curve in (ahead.loss, ahead.high))
        assert ahead.run.noise is not None
        shares.append(float(ahead.run.noise[int(hit.steps)] / 8 / ahead.loss[int(hit.steps)]))
        ends.append(math.ceil(math.ceil((1 + SLOWED * shares[-1]) * hit.high) * late / usual) if late else math.inf)
        medians.append(hit.steps)
    safe, soon = (tuned_for_hits(fit, SGD(0.02), 100, 8, 0.7, factors=factors, searched=s) for s in (False, True))
    quiet = max(MOST_NOISE, min(shares))
    assert safe.late == min(end for end, share in zip(ends, shares, strict=True) if share <= quiet)
    assert soon.steps == min(medians)
    assert soon.error == (1.0, 1.0)


def test_first_hits_come_before_the_expected_loss_arrives() -> None:
    fit = given()
    assert fit.bend is not None
    signal, noise, _ = followed(fit.bend, fit.spectrum, SGD(0.1), 4, np.arange(400))
    losses = signal + noise / 4
    target = float(losses[100])
    expected = int(np.argmax(losses <= target))
    found = first_hits(fit, SGD(0.1), 4, target)
    assert 0 < found.low <= found.steps <= found.high
    assert found.steps < expected
    assert first_hits(fit, SGD(0.1), 4, target).hits.tolist() == found.hits.tolist()
    assert tuned_for_hits(fit, SGD(0.1), expected, 4, target, searched=True).steps <= found.steps


def test_only_sgd_is_tried_past_the_edge_and_only_if_asked() -> None:
    fit = given()
    edge = fit.problem.stability_limit(SGD(1.0))
    for tuned, past, beyond in (
        (EMA(SGD(0.9 * edge), 0.9), True, 0),
        (SGD(0.9 * edge), False, 0),
        (SGD(0.9 * edge), True, 1),
    ):
        tried = [tuned_for_hits(fit, tuned, 50, 1e6, 0.8, factors=(f,), searched=past) for f in (1.0, 1.3)]
        assert sum(excess(fit.spectrum, one.optimizer, None) > 1 for one in tried) == beyond
    assert tuned_for_hits(fit, SGD(0.1), 50, 64, 0.8).most == 150
    assert tuned_for_hits(fit, SGD(0.1), 1, 64, 0.8).most == 64


def test_looks_are_those_of_a_study() -> None:
    """Steps that grow by 30% are 1, 2, 3, 4, 6, 8, 11, ...; a hit at every step is seen at the next of them."""
    fit = given()
    every = first_hits(fit, SGD(0.05), 8, 0.7, most=200)
    grown = first_hits(fit, SGD(0.05), 8, 0.7, most=200, growth=0.3)
    seen = np.array(list(looks(1, 0.3, 200)))
    assert seen[:7].tolist() == [1, 2, 3, 4, 6, 8, 11]
    assert set(grown.hits) <= set(seen.astype(float)) | {np.inf}
    assert (grown.hits >= every.hits).all()
    assert "looked at at steps" not in grown.message
    assert "steps that grow by 30%" in grown.message


def test_what_is_said() -> None:
    hits = FirstHits(SGD(0.1), 64, 0.5, 10, np.array([10.0, 20, 20, 30, 40, 50, 60, 70, 80, 90]))
    assert (hits.low, hits.steps, hits.high) == (20, 50, 90)
    assert "looked at every 10 steps, first dips below 0.5 after 50 steps (80% of trainings between 20 and 90)" in str(
        hits
    )
    never = first_hits(given(), SGD(100.0), 64, 0.5, replicas=4)
    assert math.isinf(never.steps)
    assert never.to_dict()["steps"] is None
    assert "0% of trainings dip below 0.5" in never.message
    for wrong in (Adam(0.1), Polyak(SGD(0.1), 0.5)):
        with pytest.raises(Wrong, match=r"fit in its own metric|are not predicted"):
            first_hits(given(), wrong, 64, 0.5)
