"""Walks side by side: when a mean that swings comes to a target, and what of a loss is noise."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from nqm import EMA, SGD, HeavyBall, Optimizer, Quadratic, Spectrum, steps_to_target
from nqm.sampling.laws import GAUSSIAN
from nqm.sampling.sources import Additive, Streams
from nqm.sampling.stepping import Walk
from nqm.search.races.lockstep import Crossing, Lockstep, noise_part, observation_times

SMALL = Quadratic(Spectrum.power_law(20))
FLOOR = SMALL.floor(SGD(0.5), 4)


def walk(optimizer: Optimizer, batch_size: float, replicas: int, seed: int, settings: int | None = None) -> Walk:
    source = Additive(SMALL.spectrum, optimizer, GAUSSIAN)
    return Walk(source, optimizer, batch_size, Streams(seed, [(0, replicas)]), settings=settings)


def crossing(target: float, seed: int, replicas: int = 64, limit: int = 2000) -> Crossing | None:
    found = Crossing(target, SMALL.spectrum.initial_loss)
    lockstep = Lockstep([walk(SGD(0.5), 4, replicas, seed)])
    with lockstep.pool:
        for t in observation_times(limit):
            middle, (losses,) = lockstep.to(t)
            since, _, (last,) = lockstep.window[-1]
            if found.observe(middle, losses, since, last, t):
                return found
    return None


@pytest.mark.parametrize("factor", [1.2, 1.5, 3.0])
def test_crossings_are_where_the_exact_loss_crosses_though_the_mean_swings(factor: float) -> None:
    exact = steps_to_target(SMALL, SGD(0.5), 4, factor * FLOOR).steps
    assert exact is not None
    found = [crossing(factor * FLOOR, seed) for seed in range(24)]
    hits = np.array([one.hit for one in found if one is not None])
    errors = np.array([one.stderr for one in found if one is not None])
    assert len(hits) == 24
    spread = hits.std(ddof=1) / math.sqrt(24)
    assert abs(hits.mean() - exact) < 4 * spread + 0.5  # half a step: whole steps are counted upwards
    assert 0.4 < np.median(errors) / max(hits.std(ddof=1), 0.29) < 2.5  # stated errors are those seen


@pytest.mark.slow
def test_a_dip_below_the_floor_is_no_hit() -> None:
    assert not any(crossing(0.99 * FLOOR, seed) for seed in range(6))
    assert not any(crossing(FLOOR, seed, replicas=16) for seed in range(12, 18))


def test_a_step_has_a_grain() -> None:
    one = Crossing(0.5, 1.0)
    steady = np.full(8, 0.1) + np.linspace(0, 1e-9, 8)
    assert one.observe(1.0, steady, 0, steady, 1)
    assert one.hit == 1
    assert one.stderr == pytest.approx(1 / math.sqrt(12))


def test_a_dip_that_ends_is_forgotten() -> None:
    one, jitter = Crossing(0.5, 1.0), np.linspace(-1e-3, 1e-3, 8)
    levels = [0.9] * 64 + [0.4999] + [0.9] * 20 + [0.2] * 6
    seen = [one.observe(t, level + jitter, t - 1, level + jitter, t) for t, level in enumerate(levels, 1)]
    assert seen.index(True) >= 85
    assert one.hit == 86


def test_overflow_is_above_every_target() -> None:
    one = Crossing(0.5, 1.0)
    lost = np.array([math.nan, math.inf, 1.0])
    assert not one.observe(1.0, lost, 0, lost, 1)
    assert one.above[1:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("optimizer", [SGD(0.5), HeavyBall(0.1, 0.8), EMA(SGD(0.5), 0.9)])
@pytest.mark.parametrize("replicas", [4, 400])
def test_the_noise_part_is_that_of_the_moments(optimizer: Optimizer, replicas: int) -> None:
    for t in (3, 60):
        exact = SMALL.run(optimizer, 4, [t])
        z = []
        for seed in range(400 // replicas):
            one = walk(optimizer, 4, replicas, seed, settings=1)
            start = one.weights()[0]
            one.to(t)
            noise, stderr = noise_part(one.weights(), start, one.source.mass)
            z.append((noise[0] - exact.noise[0] / 4, stderr[0]))
        off, errors = np.array(z).T
        assert abs(off.mean()) < 4 * math.sqrt((errors**2).mean() / len(z))


def test_without_noise_there_is_no_noise_part() -> None:
    one = walk(SGD(0.5), math.inf, 4, 0, settings=1)
    start = one.weights()[0]
    one.to(40)
    assert noise_part(one.weights(), start, one.source.mass)[0][0] < 1e-25


def test_observations_are_dense_and_end_at_the_end() -> None:
    seen = list(observation_times(5000))
    assert seen[:300] == list(range(1, 301))
    assert seen[-1] == 5000
    assert max(b / a for a, b in pairwise(seen[300:])) < 1.01
