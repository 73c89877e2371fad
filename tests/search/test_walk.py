"""First hits and tuned settings on least squares, against brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nqm import (  # fmt: skip
    EMA,
    SGD,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Outcome,
    Polyak,
    Quadratic,
    ScheduleFree,
    Spectrum,
    constant,
    cosine,
    optimal_schedule,
    steps_to_target,
    sweep,
    tune,
)
from nqm.problems.base import Nodes
from nqm.search.settings import HIT_SETTINGS

PAPER = LeastSquares(Spectrum.power_law(10_000))
SMALL = LeastSquares(Spectrum.power_law(60), 0.5)


def curve(problem: LeastSquares, optimizer: Any, B: float, steps: int, schedule: Any = None) -> Any:
    return problem.run(optimizer, B, range(steps + 1), schedule).loss


@pytest.mark.parametrize(
    ("optimizer", "B", "target"),
    [
        (SGD(0.5), 16, 0.2),
        (HeavyBall(0.4, 0.95), 400, 0.02),  # oscillates through the target
        (EMA(HeavyBall(0.2, 0.9), 0.8), 64, 0.1),
        (Lookahead(SGD(0.8), 0.5, 7), 64, 0.1),
        (ScheduleFree(0.5, 0.9), 64, 0.1),
        (Polyak(SGD(0.5), 20), 16, 0.1),
    ],
    ids=str,
)
@pytest.mark.parametrize("scheduled", [False, True])
def test_hits_are_those_of_the_curve(optimizer: Any, B: float, target: float, scheduled: bool) -> None:
    schedule = cosine(300, 0.2) if scheduled else None
    loss = curve(SMALL, optimizer, B, 800, schedule)
    below = np.flatnonzero(loss <= target)
    first = steps_to_target(SMALL, optimizer, B, target, schedule)
    assert first.steps == below[0]
    assert first.loss == pytest.approx(loss[below[0]], rel=1e-9)
    settled = steps_to_target(SMALL, optimizer, B, target, schedule, until="settled", max_steps=800)
    assert settled.steps == np.flatnonzero(loss > target)[-1] + 1


def test_a_dip_on_the_way_to_divergence_is_a_hit() -> None:
    problem, B = LeastSquares(Spectrum([1.0, 0.3], s=[1e-6, 1.0]), 1e-6), 64
    limit = problem.stability_limit(SGD(), B)
    optimizer = SGD(1.01 * limit)
    loss = curve(problem, optimizer, B, 60)
    assert loss.argmin() not in (0, 60)
    target = float(loss.min()) * 1.0001
    assert steps_to_target(problem, optimizer, B, target).steps == np.flatnonzero(loss <= target)[0]
    missed = steps_to_target(problem, optimizer, B, loss.min() * 0.999)
    assert missed.outcome is Outcome.diverged
    assert f"below {limit:.6g}" in missed.message


def test_hits_on_nodes_are_those_of_the_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = LeastSquares(Spectrum.power_law(3000))
    optimizer, B, target = HeavyBall(0.1, 0.9), 64, 0.2
    fast = steps_to_target(problem, optimizer, B, target)
    monkeypatch.setattr(Nodes, "fine", problem)
    assert steps_to_target(problem, optimizer, B, target) == fast
    assert len(problem.nodes.coarse.features) < 300


def test_a_floor_above_the_target_is_seen_at_once() -> None:
    hit = steps_to_target(PAPER, SGD(0.3), 64, 0.005)
    assert hit.outcome is Outcome.above_floor
    assert hit.steps is None
    assert "0.01209" in hit.message
    assert steps_to_target(PAPER, SGD(0.3), 64, 0.005, until="settled").outcome is Outcome.above_floor
    schedule = constant(50, 0.5) + constant(50)
    assert steps_to_target(PAPER, SGD(0.3), 64, 0.005, schedule).outcome is Outcome.above_floor
    assert steps_to_target(SMALL, SGD(1e-3), 4, 0.01, max_steps=100).outcome is Outcome.out_of_steps
    assert HIT_SETTINGS.most_coupled >= 10**6


def test_tuned_sgd_is_the_best_of_a_fine_grid() -> None:
    """The smallest horizon at which some rate of a grid of ratio 1.005 is at the target."""
    for B, target in ((4, 0.3), (64, 0.1)):
        found = tune(SMALL, SGD(), B, target)
        assert found.steps is not None
        grid = np.geomspace(0.01, 2.0, 1060)[:, None]
        coupled = SMALL.motion(SGD(grid), B)
        with np.errstate(all="ignore"):
            _, signal, noise = coupled.walk(coupled.start(), 0, found.steps + 5)
        best = 1 + int(np.argmax(np.nanmin(signal + noise / B, axis=0) <= target))
        assert abs(found.steps - best) <= 1
        assert found.loss <= target
        assert found.loss == pytest.approx(SMALL.run(found.optimizer, B, [found.steps]).loss[0], rel=1e-9)


@pytest.mark.slow
def test_tuned_momentum_is_not_beaten_by_its_neighbours() -> None:
    B, target = 1024, 0.01
    found = tune(PAPER, HeavyBall(), B, target)
    assert found.steps is not None
    rng = np.random.default_rng(1)
    spread = rng.normal(size=(2, 200, 1)) * 2.0 ** -rng.integers(0, 8, (200, 1))
    lr = found.optimizer.lr * np.exp(spread[0])  # type: ignore[attr-defined]
    momentum = 1 - (1 - found.optimizer.momentum) * np.exp(spread[1])  # type: ignore[attr-defined]
    early = math.floor(found.steps * (1 - 2e-3))
    losses = PAPER.nodes.coarse.curve(HeavyBall(lr, np.clip(momentum, 0, 1)), B)(early)
    assert np.nanmin(losses) > target
    assert PAPER.loss(found.optimizer, found.steps, B) == pytest.approx(found.loss, rel=1e-5)
    assert found.loss <= target


@pytest.mark.slow
def test_sampling_noise_costs_steps_at_small_batch() -> None:
    """Reference figures by independent stepping: the additive model needs 95,937 and 10,353 steps."""
    for B, additive in ((64, 95_937), (1024, 10_353)):
        found = tune(PAPER, SGD(), B, 0.01).steps
        assert found is not None
        assert 1.005 * additive < found < 1.03 * additive


def test_budgets() -> None:
    steps = tune(SMALL, SGD(), 8, steps=500)
    grid = np.geomspace(0.005, 2.0, 2000)[:, None]
    coupled = SMALL.motion(SGD(grid), 8)
    with np.errstate(all="ignore"):
        _, signal, noise = coupled.walk(coupled.start(), 0, 500)
    best = np.nanmin(signal[:, -1] + noise[:, -1] / 8)
    assert steps.loss == pytest.approx(best, rel=1e-4)
    assert tune(SMALL, SGD(), 8, examples=4000).loss == pytest.approx(steps.loss, rel=1e-6)
    nothing = tune(SMALL, SGD(), 1, 1e-4, max_steps=50)
    assert nothing.outcome is Outcome.out_of_steps


@pytest.mark.slow
def test_other_families_tune() -> None:
    alone = tune(SMALL, SGD(), 16, 0.1).steps
    for family in (EMA(SGD()), Lookahead(SGD(), 0.5, 5), Lookahead(SGD(), 0.5), Polyak(SGD(), 0.5), ScheduleFree()):
        found = tune(SMALL, family, 16, 0.1)
        assert found.outcome is Outcome.reached
        assert found.steps is not None
        assert alone is not None
        assert found.steps < 1.5 * alone
        assert SMALL.run(found.optimizer, 16, [found.steps]).loss[0] <= 0.1 * (1 + 1e-9)


def test_a_sweep_falls_with_the_batch() -> None:
    found = sweep(SMALL, SGD(), [1, 8, 64, 512], target=0.1)
    assert np.all(np.diff(found.steps) < 0)
    assert np.all(np.diff(found.lr) > 0)
    assert found.smallest_steps <= found.steps[-1]
    assert found.lr[0] < SMALL.stability_limit(SGD(), 1)
    additive = sweep(Quadratic(SMALL.spectrum), SGD(), [1, 8, 64, 512], target=0.1)
    assert np.all(found.steps >= additive.steps)
    assert found.steps[0] > 1.2 * additive.steps[0]
    assert found.bounds()["bayes"][0] < found.steps[0]


def test_without_label_noise_the_rate_stays_large() -> None:
    """Noise that dies with the loss needs no small rate: the best one is a fixed part of the limit of stability."""
    silent = LeastSquares(Spectrum.power_law(60), 0.0)
    rates = [tune(silent, SGD(), 4, target).optimizer.lr for target in (0.1, 1e-3, 1e-5)]  # type: ignore[attr-defined]
    assert max(rates) < 1.5 * min(rates)
    assert 0.2 < rates[-1] / silent.stability_limit(SGD(), 4) < 0.9


def test_a_problem_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a problem"):
        tune(Spectrum([1.0]), SGD(), 4, 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got LeastSquares.*\.additive"):
        optimal_schedule(SMALL, SGD(), 4, 0.1)  # type: ignore[arg-type]


def test_a_search_leaves_warnings_as_they_were() -> None:
    before = np.geterr()
    tune(SMALL, SGD(), 8, 0.5 * SMALL.spectrum.initial_loss)
    assert np.geterr() == before
