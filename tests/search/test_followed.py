"""First hits, tuning, sweeps, schedules and maps by mean field, against plain loops over settings and against sampled runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    Adam,
    Axis,
    Clipped,
    DriftingPreconditioned,
    HeavyBall,
    LeastSquares,
    Lion,
    Outcome,
    Polyak,
    Quadratic,
    Sign,
    Spectrum,
    Wrong,
    cosine,
    free,
    optimal_schedule,
    phase_map,
    steps_to_target,
    sweep,
    tune,
    warmup,
)
from nqm.engine.mean_field import Detail
from nqm.optimizers.base import fill
from nqm.problems.followed import Followed
from nqm.search.answer import Sampling
from nqm.search.exact.family import Family
from nqm.search.exact.tuning import tuner
from nqm.search.followed import Courses
from nqm.search.races.ladder import RaceTuner

PLAIN_SAMPLING: Any = {"noise": "gaussian", "seed": 0, "rotation": None}
PROBLEM = Quadratic(Spectrum.power_law(1000))
SINGLE_STEPS = Detail(part=0.0, starts=24)
FOUND = 1.01  # tuned steps are within 1% of a dense grid of settings


def walked_hit(optimizer: Any, batch_size: float, target: float, limit: int = 5000) -> int | None:
    """The first step at the target, by single steps on the nodes that `steps_to_target` uses."""
    field = PROBLEM.nodes.followed.field(optimizer, batch_size, detail=SINGLE_STEPS)
    return next((t for t, state in field.blocks(limit) if field.losses(state, t) <= target), None)


@pytest.mark.parametrize(
    ("optimizer", "batch_size", "target"),
    [
        (Adam(0.01), 64, 0.3),
        (Adam(0.1, 0.99), 2**14, 0.02),
        (EMA(Adam(0.01), 0.98), 64, 0.1),
        (Sign(0.01), 256, 0.1),
        (Clipped(SGD(0.5), 0.5), 64, 0.8),
    ],
)
def test_a_first_hit_is_that_of_single_steps(optimizer: Any, batch_size: float, target: float) -> None:
    hit, walked = steps_to_target(PROBLEM, optimizer, batch_size, target), walked_hit(optimizer, batch_size, target)
    assert hit.method == "mean field"
    assert "by mean field" in hit.message
    assert hit.steps is not None
    assert walked is not None
    # Blocks of 1/64 of the time passed are second order: their error is far below their length.
    assert abs(hit.steps - walked) <= 1 + 2e-3 * walked
    assert hit.loss <= target


def test_first_hits_that_are_none() -> None:
    above = steps_to_target(PROBLEM, Adam(0.03), 16, 0.01)
    assert (above.steps, above.outcome) == (None, Outcome.above_floor)
    assert above.loss == pytest.approx(PROBLEM.floor(Adam(0.03), 16))
    late = steps_to_target(PROBLEM, Adam(1e-5), 64, 0.5, max_steps=100)
    assert late.outcome is Outcome.out_of_steps


def test_a_loss_that_rises_to_its_floor_reaches_a_target_but_does_not_stay_there() -> None:
    first, settled = (
        steps_to_target(PROBLEM, Adam(0.03), 1024, 0.0125, until=until, max_steps=10**5)
        for until in ("first", "settled")
    )
    assert first.steps is not None
    assert (settled.steps, settled.outcome) == (None, Outcome.above_floor)


def dense_best(optimizer: Any, batch_size: float, target: float, points: Any, limit: int = 10**5) -> float:
    """The fewest steps over a dense grid of settings, by finer blocks and more starts than the search has."""
    family = Family(optimizer, PROBLEM.nodes.smooth.spectrum)
    courses = Courses(PROBLEM, family, batch_size, Detail(part=1 / 32, starts=24))
    return float(np.exp(courses.log_hits(points, target, limit).min()))


@pytest.mark.parametrize("batch_size", [16, 256, 2**12, 2**16])
def test_a_tuned_rate_is_the_best_of_a_dense_grid(batch_size: float) -> None:
    tuned = tune(PROBLEM, Adam(), batch_size, 0.02)
    assert tuned.method == "mean field"
    assert tuned.stderr is None
    best = dense_best(Adam(), batch_size, 0.02, np.linspace(-13.0, 1.0, 113)[:, None])
    assert tuned.steps is not None
    assert tuned.steps <= FOUND * best + 1


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [2**12, 2**16])
def test_two_tuned_settings_are_the_best_of_a_dense_grid(batch_size: float) -> None:
    tuned = tune(PROBLEM, Adam(beta1=free), batch_size, 0.02)
    assert tuned.steps is not None
    lr = math.log2(tuned.optimizer.lr)
    grid = np.stack(np.meshgrid(np.linspace(lr - 2, lr + 2, 21), np.linspace(0.0, 9.0, 19)), -1).reshape(-1, 2)
    best = dense_best(Adam(beta1=free), batch_size, 0.02, grid, limit=2 * tuned.steps)
    assert tuned.steps <= FOUND * best + 1


def test_a_tuned_setting_reaches_the_target_when_it_is_sampled() -> None:
    tuned = tune(PROBLEM, Adam(), 64, 0.05)
    sampled = PROBLEM.sample(tuned.optimizer, 64, [tuned.steps], replicas=100)
    assert sampled.stderr is not None
    assert abs(sampled.loss[0] - 0.05) < 5 * sampled.stderr[0] + 0.01 * 0.05  # The mean field is within 1% here.


@pytest.mark.slow
def test_the_least_loss_for_a_budget() -> None:
    tuned = tune(PROBLEM, Adam(), 64, steps=500)
    rates = np.geomspace(1e-3, 0.1, 20)
    losses = [PROBLEM.run(Adam(float(lr)), 64, [500]).loss[0] for lr in rates]
    assert tuned.loss <= min(losses) * FOUND
    assert tuned.steps == 500


@pytest.mark.slow
def test_an_average_over_part_of_the_run_is_tuned_over_horizons() -> None:
    family = Polyak(Adam(), 0.5)
    tuned = tune(PROBLEM, family, 64, 0.1)
    assert tuned.steps is not None
    assert PROBLEM.run(tuned.optimizer, 64, [tuned.steps]).loss[0] <= 0.1 * 1.001
    shorter = tune(PROBLEM, family, 64, steps=int(0.97 * tuned.steps))
    assert shorter.loss > 0.1 * 0.999


@pytest.mark.slow
def test_a_sweep_follows_and_is_sampled_only_where_asked() -> None:
    found = sweep(PROBLEM, Adam(), [64, 256, 1024], target=0.05)
    assert found.method == "mean field"
    assert found.steps_stderr is None
    assert (np.diff(found.steps) < 0).all()
    assert all("by mean field" in message for message in found.messages)
    small = Quadratic(Spectrum.power_law(30))
    for asked in ({"sampled": True}, {"noise": "laplace"}, {"rotation": 1}):
        assert isinstance(tuner(small, Adam(), Sampling.of(Adam(), **{**PLAIN_SAMPLING, **asked})), RaceTuner)
    assert tune(small, Adam(), 64, 0.3).method == "mean field"


def test_small_batches_make_adam_the_preconditioner_of_power_one_half() -> None:
    """With c = h and noise that dominates, v is h / B, so that Adam divides by sqrt(h): two routes to one number of steps."""
    from nqm import Preconditioned

    problem = Quadratic(Spectrum.power_law(10_000))
    adam, ideal = tune(problem, Adam(beta1=0.0), 4, 0.01), tune(problem, Preconditioned(SGD(), 0.5), 4, 0.01)
    assert adam.steps is not None
    assert ideal.steps is not None
    assert abs(adam.steps / ideal.steps - 1) < 2e-3


@pytest.mark.slow
def test_a_schedule_gains_what_random_ones_do_not() -> None:
    best = optimal_schedule(PROBLEM, Adam(), 64, steps=400, pieces=4)
    again = PROBLEM.run(best.optimizer, 64, [400], best.schedule)
    assert again.loss[0] == pytest.approx(best.loss, rel=2e-3)
    assert "by mean field" in best.message
    rng, constant = np.random.default_rng(0), tune(PROBLEM, Adam(), 64, steps=400)
    assert best.loss < 0.9 * constant.loss
    for _ in range(20):
        from nqm import Schedule

        other = Schedule([100] * 4, best.schedule.lr * np.exp(rng.normal(size=4) / 4))
        assert PROBLEM.run(best.optimizer, 64, [400], other).loss[0] > best.loss * 0.999


def test_a_schedule_to_a_target_is_shorter_than_a_constant_rate() -> None:
    constant, best = tune(PROBLEM, Adam(), 64, 0.05), optimal_schedule(PROBLEM, Adam(), 64, 0.05, pieces=3)
    assert constant.steps is not None
    assert best.steps < 0.8 * constant.steps
    assert best.loss <= 0.05


def test_schedules_of_batch_sizes_need_a_linear_optimizer() -> None:
    with pytest.raises(Wrong, match="linear"):
        optimal_schedule(PROBLEM, Adam(), 64, examples=1e5, pieces=3, on="batch_size")


def test_a_map_is_the_first_hits_of_its_cells() -> None:
    found = phase_map(PROBLEM, Adam(), Axis("lr", 0.001, 0.1, 4), Axis("batch_size", 16, 4096, 3), target=0.1)
    assert found.method == "mean field"
    for j, size in enumerate(found.y.values):
        for i, lr in enumerate(found.x.values):
            hit = steps_to_target(PROBLEM, Adam(float(lr)), float(size), 0.1)
            cell = found.steps[j, i]
            assert (hit.steps is None) == math.isnan(cell)
            # The map has four starts and blocks of 1/8, which are good to some percent.
            assert hit.steps is None or abs(cell - hit.steps) <= 1 + 0.06 * hit.steps


def test_least_squares_follows_what_closes_there() -> None:
    problem = LeastSquares(Spectrum.power_law(100))
    run, sampled = (verb(Adam(0.01), 8, [10, 100, 600]) for verb in (problem.run, problem.sample))
    assert sampled.stderr is not None
    assert (np.abs(run.loss - sampled.loss) < 5 * sampled.stderr + 0.02 * sampled.loss).all()
    for row in (Sign(0.01), EMA(Lion(0.01), 0.9)):
        with pytest.raises(Wrong, match="normal numbers"):
            problem.run(row, 8, 10)
    assert problem.run(Clipped(HeavyBall(0.1, 0.5), 1.0), 8, [10]).method == "mean field"


def test_a_schedule_that_changes_at_every_step_is_averaged_over_blocks() -> None:
    plan, optimizer = warmup(50) + cosine(950), Adam(0.02)
    run = PROBLEM.run(optimizer, 64, [100, 500, 1000], plan)
    field = PROBLEM.nodes.followed.field(optimizer, 64, plan, detail=SINGLE_STEPS)
    state, now = field.start(), 0
    for t, loss in zip([100, 500, 1000], run.loss, strict=True):
        state, now = field.move(state, now, t), t
        assert loss == pytest.approx(float(field.losses(state, t)), rel=3e-3)


def test_rules_without_a_mean_field_are_still_tuned_by_races() -> None:
    optimizer = fill(DriftingPreconditioned(SGD(), 0.5, 0.5, 7), {"lr": free})
    assert isinstance(tuner(PROBLEM, optimizer), RaceTuner)


def test_a_tuned_point_is_doubted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubts take a run of their own, and the message of a tuned point has them as that of its first hit does."""
    asked = []
    doubted = Followed.doubts
    monkeypatch.setattr(Followed, "doubts", lambda self, *steps: asked.append(steps) or doubted(self, *steps))
    found = tune(PROBLEM, Adam(beta2=0.5), 64, 0.3)
    assert asked == [(found.steps, found.steps)]
    hit = steps_to_target(PROBLEM, found.optimizer, 64, 0.3)
    assert (hit.steps, hit.loss) == (found.steps, found.loss)
    assert len(asked) == 2
    told = found.message.split("; by mean field; ")[1]
    assert "short" in told
    assert hit.message.endswith(told)
    missed = tune(PROBLEM, Adam(), 64, 0.3, max_steps=3)
    assert missed.outcome is Outcome.out_of_steps
    assert len(asked) == 2  # Nothing was reached, so nothing is doubted.
