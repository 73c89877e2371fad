"""One race and one measurement: what is dropped and what is not, and the nodes that stand for all modes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import SGD, Adam, Clipped, Optimizer, Quadratic, Sign, Spectrum, tune
from nqm.search.answer import PLAIN, Goal
from nqm.search.races.settings import RaceSettings
from nqm.search.races.track import Track, spread_out

SMALL = Quadratic(Spectrum.power_law(100))
TARGET = 0.2  # of an initial loss of 2.6


def on(problem: Quadratic, optimizer: Optimizer) -> Track:
    """The track of an optimizer, with a quarter of the usual work."""
    return Track(problem, optimizer, PLAIN, RaceSettings(race_work=2**22, measured_work=2**23))


def test_nodes_stand_for_all_modes_of_a_rule_that_treats_each_by_itself() -> None:
    many = Quadratic(Spectrum.power_law(2000))
    nodes = on(many, Adam()).measure_on
    assert nodes.modes < 400
    assert nodes.initial_loss == pytest.approx(many.spectrum.initial_loss, rel=1e-6)
    steps = [20, 100]
    for row in (Adam(0.02, 0.9), Sign(0.01, 0.5)):
        whole = many.sample(row, 32, steps, replicas=48)
        few = Quadratic(spread_out(many.nodes.smooth.spectrum, 256)).sample(row, 32, steps, replicas=400, seed=1)
        assert whole.stderr is not None
        assert few.stderr is not None
        z = (whole.loss - few.loss) / np.hypot(whole.stderr, few.stderr)
        assert np.abs(z).max() < 4


def test_a_plateau_is_no_floor() -> None:
    longer = Quadratic(Spectrum([1.0, 2.5e-5], s=[1.0, 12_000.0]))
    track = on(longer, Clipped(SGD(), 1e9))
    exact = tune(longer, SGD(), 64, 0.05)
    assert exact.steps is not None
    points = track.family.point(Clipped(exact.optimizer, 1e9)) + np.array([[-0.2], [0.0], [0.1]])
    found = track.race(points, Goal(64, 0.05, 400_000), exact.steps)
    assert found.steps is not None
    assert 0.5 < found.steps / exact.steps < 2  # a few replicas of one slow mode start from far and near


def test_a_floor_is_no_plateau() -> None:
    track = on(SMALL, SGD(0.5))
    found = track.race(np.empty((1, 0)), Goal(4, 0.5 * SMALL.floor(SGD(0.5), 4), 2**20), 2**20)
    assert found.all_dropped
    assert found.within < 20_000


def test_nan_is_not_the_best_of_two() -> None:
    track = on(SMALL, Clipped(SGD(), 1e300))
    good, bad = track.family.point(Clipped(SGD(0.5), 1e300)), track.family.high
    for goal in (Goal(64, None, 1500), Goal(64, TARGET, 1500)):
        found = track.measure(np.array([bad, good]), goal, 1500)
        assert np.array_equal(found.u, good)
        assert math.isfinite(found.loss)
