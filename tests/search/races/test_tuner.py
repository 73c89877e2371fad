"""Tuning by races: against exact tuning where there is one, against sampled runs where there is none; and how it fails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    Adam,
    Clipped,
    DiagonalPreconditioned,
    HeavyBall,
    Lookahead,
    NormalisedSGD,
    Optimizer,
    Outcome,
    Polyak,
    Preconditioned,
    Quadratic,
    RMSProp,
    Sign,
    Spectrum,
    free,
    steps_to_target,
    sweep,
    tune,
)
from nqm.search.answer import Goal, Sampling, Tuned
from nqm.search.races import track
from nqm.search.races.ladder import RaceTuner
from nqm.search.races.settings import RaceSettings
from nqm.search.races.track import Track
from nqm.types import Wrong

SMALL = Quadratic(Spectrum.power_law(100))
TARGET = 0.2  # of an initial loss of 2.6
QUICK = RaceSettings(race_work=2**22, measured_work=2**23)  # a quarter of the usual work, which doubles standard errors


def raced(
    problem: Quadratic,
    optimizer: Optimizer,
    batch_size: float,
    target: float | None = None,
    noise: str = "gaussian",
    seed: int = 0,
    rotation: int | None = None,
    settings: RaceSettings = QUICK,
    **goal: int,
) -> Tuned:
    """`tune` by races, with a quarter of the usual work."""
    sampling = Sampling.of(optimizer, noise, seed, rotation)
    return RaceTuner(problem, optimizer, sampling, settings).solve(Goal.of(batch_size, target, **goal))


def sampled(optimizer: Optimizer, batch_size: float, steps: int) -> tuple[float, float]:
    """Loss after so many steps, on every mode and with other noise than the tuner's."""
    run = SMALL.sample(optimizer, batch_size, [steps], replicas=400, seed=99)
    assert run.stderr is not None
    return float(run.loss[0]), float(run.stderr[0])


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [4.0, 256.0, math.inf])
def test_races_find_what_exact_tuning_finds(batch_size: float) -> None:
    found, exact = raced(SMALL, SGD(), batch_size, TARGET), tune(SMALL, SGD(), batch_size, TARGET)
    assert found.steps is not None
    assert exact.steps is not None
    own = steps_to_target(SMALL, found.optimizer, batch_size, TARGET).steps
    assert own is not None
    assert found.stderr is not None
    # Four standard errors, and the grain of whole steps and of looks at the loss.
    assert abs(found.steps - own) < 4 * found.stderr + 2 + 0.02 * own
    assert own < 1.05 * exact.steps + 1


def test_two_parameters_are_tuned_jointly() -> None:
    found = raced(SMALL, HeavyBall(), 256, TARGET)
    exact = tune(SMALL, HeavyBall(), 256, TARGET)
    own = steps_to_target(SMALL, found.optimizer, 256, TARGET).steps
    assert own is not None
    assert exact.steps is not None
    assert own < 1.1 * exact.steps + 1


@pytest.mark.parametrize("optimizer", [SGD(), HeavyBall(momentum=0.8)])
def test_budgets_find_what_exact_tuning_finds(optimizer: Optimizer) -> None:
    found = raced(SMALL, optimizer, 16, steps=400)
    exact = tune(SMALL, optimizer, 16, steps=400)
    run = SMALL.run(found.optimizer, 16, [400])
    assert run.loss[0] < 1.02 * exact.loss
    assert found.stderr is not None
    assert abs(found.loss - run.loss[0]) < 4 * found.stderr


@pytest.mark.parametrize("optimizer", [Adam(beta1=free), RMSProp(), EMA(Sign(), 0.5)])
def test_the_answer_is_what_a_sampled_run_reaches(optimizer: Optimizer) -> None:
    found = raced(SMALL, optimizer, 64, TARGET)
    assert found.outcome is Outcome.reached
    assert found.steps is not None
    assert found.stderr is not None
    loss, stderr = sampled(found.optimizer, 64, found.steps)
    before, _ = sampled(found.optimizer, 64, max(1, math.floor(0.8 * found.steps - 4 * found.stderr)))
    assert loss < TARGET + 4 * stderr + 0.03 * TARGET  # the nodes, and the looks, are some percent apart
    assert before > TARGET
    assert f"+- {found.stderr:.2g}" in found.message
    assert found.to_dict()["stderr"] == found.stderr


def test_adam_beats_sgd_and_no_setting_nearby_beats_its_best() -> None:
    found = raced(SMALL, Adam(beta1=free), 64, TARGET)
    plain = tune(SMALL, SGD(), 64, TARGET)
    assert found.steps is not None
    assert plain.steps is not None
    assert found.steps < plain.steps
    best, stderr = sampled(found.optimizer, 64, found.steps)
    lr, beta1 = found.optimizer.lr, found.optimizer.beta1  # type: ignore[attr-defined]
    for factor in (0.6, 1.6):
        assert sampled(Adam(lr * factor, beta1), 64, found.steps)[0] > best - 3 * stderr


@pytest.mark.slow
def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    answers = []
    for cores in (1, 3):
        tuner = RaceTuner(SMALL, Adam(), settings=QUICK)
        tuner.races.track.cores = cores
        answers.append(tuner.solve(Goal.of(16, TARGET)))
    assert answers[0].optimizer == answers[1].optimizer
    assert answers[0].steps == answers[1].steps
    assert answers[0].stderr == answers[1].stderr


def test_nothing_to_tune_is_measured() -> None:
    found = raced(SMALL, Adam(0.05, 0.9), 64, TARGET)
    assert found.optimizer == Adam(0.05, 0.9)
    assert found.steps is not None
    loss, stderr = sampled(found.optimizer, 64, found.steps)
    assert abs(loss - TARGET) < 4 * stderr + 0.03 * TARGET
    budget = raced(SMALL, Adam(0.05, 0.9), 64, steps=found.steps)
    assert budget.stderr is not None
    assert abs(budget.loss - loss) < 4 * math.hypot(stderr, budget.stderr)


def test_budgets_of_examples() -> None:
    found = raced(SMALL, Sign(), 8, examples=800)
    assert found.steps == 100
    assert found.outcome is Outcome.finished
    assert found.stderr is not None
    loss, stderr = sampled(found.optimizer, 8, 100)
    assert abs(found.loss - loss) < 4 * math.hypot(stderr, found.stderr)


def test_settings_that_cannot_share_arrays() -> None:
    found = raced(SMALL, Lookahead(Sign(), 0.8), 64, TARGET)
    assert found.steps is not None
    assert found.optimizer.period >= 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("optimizer", [NormalisedSGD(), Clipped(SGD()), Preconditioned(Sign())])
def test_norms_and_powers_are_tuned(optimizer: Optimizer) -> None:
    problem = Quadratic(Spectrum.power_law(30))
    found = raced(problem, optimizer, 64, 0.3)
    assert found.steps is not None
    run = problem.sample(found.optimizer, 64, [found.steps], replicas=300)
    assert run.stderr is not None
    assert run.loss[0] < 0.3 + 4 * run.stderr[0] + 0.01


@pytest.mark.slow
def test_a_target_out_of_reach_is_said() -> None:
    found = raced(SMALL, Adam(beta1=free), 1, 1e-6, max_steps=300)
    assert found.outcome is Outcome.out_of_steps
    assert found.steps is None
    assert "even tuned, still at" in found.message
    assert "after 300 steps, above 1e-06" in found.message
    run = SMALL.sample(found.optimizer, 1, 300, replicas=200)
    assert run.loss.min() > 0.5 * found.loss  # it tells of the batch size that was asked for
    assert raced(SMALL, Adam(50.0, 0.9), 1, 0.01, max_steps=50).steps is None


def test_an_average_over_a_part_of_the_run_has_a_budget_and_no_target() -> None:
    average = Polyak(Sign(0.03), 0.5)
    with pytest.raises(ValueError, match="depends on the length of the run"):
        raced(SMALL, average, 64, TARGET)
    assert raced(SMALL, average, 64, steps=50).loss < 1
    assert raced(SMALL, Polyak(Sign(0.05), 5), 64, TARGET).steps is not None


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(Wrong, match="exactly one goal"):
        tune(SMALL, Adam(), 64)
    for goal, name in ({"steps": 10**8}, "steps"), ({"examples": 64 * 10**8}, "examples"):
        with pytest.raises(Wrong, match="steps at most") as error:
            tune(SMALL, Adam(), 64, sampled=True, **goal)  # type: ignore[arg-type]
        assert error.value.argument == name
    with pytest.raises(Wrong, match="tune needs a problem such as Quadratic") as error:
        tune("problem", Adam(), 64, 0.1)  # type: ignore[arg-type]
    assert error.value.argument == "problem"


@pytest.mark.slow
def test_sweeps_have_error_bars() -> None:
    found = sweep(SMALL, Adam(), [8, 64, 512], target=TARGET, sampled=True)
    assert found.steps_stderr is not None
    assert (np.diff(found.steps) < 0).all()
    assert (found.steps_stderr >= 0).all()
    assert found.smallest_steps <= found.steps[-1]
    assert next(row for row in found.table() if row["batch_size"] == 8)["steps_stderr"] == found.steps_stderr[0]
    assert found.to_dict()["steps_stderr"] == found.steps_stderr.tolist()
    assert math.isnan(found.critical_batch_size("knee"))
    assert len(found.plot().axes[0].collections) >= 1  # the bars
    exact = sweep(SMALL, SGD(), [8, 64], target=TARGET)
    assert exact.steps_stderr is None
    assert "steps_stderr" not in exact.table()[0]


PLATEAU = Quadratic(
    Spectrum([1.0, 1e-4], s=[1.0, 3000.0])
)  # SGD rests at 0.15 from step 10 to step 1,000, and then falls


@pytest.mark.slow
def test_tuning_goes_beyond_a_plateau() -> None:
    found = raced(PLATEAU, Clipped(SGD(), 1e9), 64, 0.05, max_steps=40_000)
    exact = tune(PLATEAU, SGD(), 64, 0.05)
    assert found.steps is not None
    assert exact.steps is not None
    assert found.stderr is not None
    own = steps_to_target(PLATEAU, found.optimizer.inner, 64, 0.05).steps  # type: ignore[attr-defined]
    assert own is not None
    assert own < 1.05 * exact.steps
    assert abs(found.steps - own) < 4 * found.stderr


@pytest.mark.parametrize("batch_size", [4.0, 1e6])
def test_the_loss_of_a_budget_is_that_of_its_last_step(batch_size: float) -> None:
    found = raced(SMALL, Clipped(SGD(0.5), 1e9), batch_size, steps=500, settings=RaceSettings())
    exact = SMALL.loss(SGD(0.5), 500, batch_size)
    assert found.stderr is not None
    assert abs(found.loss - exact) < 3.5 * found.stderr
    assert found.stderr < 0.015 * exact  # a window over the last 1/32 of the run is 9% off at the large batch


def test_a_target_below_the_floor_is_not_reached() -> None:
    problem = Quadratic(Spectrum.power_law(20))
    floor = problem.floor(SGD(0.5), 4)
    same = DiagonalPreconditioned(SGD(0.5), 0.0)
    found = raced(problem, same, 4, 0.99 * floor, max_steps=3000)
    assert found.steps is None
    assert "even tuned" not in found.message
    assert found.loss == pytest.approx(floor, rel=0.1)
    above = raced(problem, same, 4, 1.1 * floor, max_steps=3000)
    exact = steps_to_target(problem, SGD(0.5), 4, 1.1 * floor).steps
    assert above.steps is not None
    assert exact is not None
    assert above.stderr is not None
    assert 0 < above.stderr < math.inf
    assert abs(above.steps - exact) < 4 * above.stderr + 1


@pytest.mark.slow
def test_a_setting_at_its_floor_is_told_soon() -> None:
    found = raced(SMALL, Adam(0.1, 0.9), 4, 0.001)
    assert found.outcome is Outcome.above_floor
    assert found.message.startswith("never reaches 0.001: the steady-state loss at batch size 4 is")
    loss, stderr = sampled(found.optimizer, 4, 1000)
    assert found.loss == pytest.approx(loss, abs=8 * stderr)


def test_the_loss_of_what_is_out_of_reach_is_that_after_the_steps_it_had() -> None:
    found = raced(SMALL, Clipped(SGD(0.5), 1e9), 256, 1e-3, max_steps=90)
    assert "still at" in found.message
    assert "after 90 steps" in found.message
    assert found.loss == pytest.approx(SMALL.loss(SGD(0.5), 90, 256), rel=0.05)


def test_what_diverges_says_so() -> None:
    for goal in ({"steps": 2000}, {"target": 0.1}):
        found = raced(SMALL, Clipped(SGD(5.0), 1e300), 4, **goal)  # type: ignore[arg-type]
        assert found.outcome is Outcome.diverged
        assert found.steps is None
        assert "diverges: the mean loss over replicas is" in found.message
        assert "nan" not in found.message


def test_few_steps_have_an_error_too() -> None:
    found = raced(SMALL, Adam(), 2**16, 1.0)
    assert found.steps is not None
    assert found.steps < 10
    assert found.stderr is not None
    assert 0.1 < found.stderr < 1


def test_measurements_have_noise_that_no_race_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, set[tuple[int, int]]] = {"race": set(), "measure": set()}
    now = "race"

    class Watched(track.Streams):
        def __init__(self, seed: int, blocks: Any) -> None:
            drawn[now].update((seed, key) for key, _ in blocks)
            super().__init__(seed, blocks)

    measure = Track.measure

    def watched(*args: Any) -> Any:
        nonlocal now
        now = "measure"
        found = measure(*args)
        now = "race"
        return found

    monkeypatch.setattr(track, "Streams", Watched)
    monkeypatch.setattr(Track, "measure", watched)
    raced(SMALL, Adam(), 64, TARGET)
    assert drawn["race"]
    assert drawn["measure"]
    assert not drawn["race"] & drawn["measure"]


def test_a_sweep_that_reaches_nothing_has_no_regimes() -> None:
    found = sweep(SMALL, Adam(0.1, 0.9), [4, 16], target=1e-3, max_steps=300)
    assert np.isnan(found.steps).all()
    assert np.isnan(list(found.regimes().values())).all()
    assert found.to_dict()["regimes"]["perfect"] == [None, None]


def test_the_law_of_the_noise_is_that_of_the_measurement() -> None:
    heavy = raced(SMALL, Sign(0.02), 16, steps=150, noise="student_t(2.5)")
    plain = raced(SMALL, Sign(0.02), 16, steps=150)
    run = SMALL.sample(Sign(0.02), 16, [150], replicas=400, seed=5, noise="student_t(2.5)")
    assert heavy.stderr is not None
    assert plain.stderr is not None
    assert run.stderr is not None
    assert abs(heavy.loss - run.loss[0]) < 4 * math.hypot(heavy.stderr, run.stderr[0])
    assert abs(heavy.loss - plain.loss) > 5 * math.hypot(heavy.stderr, plain.stderr)  # signs gain by heavy tails


def test_a_rotated_basis_is_that_of_the_measurement() -> None:
    problem = Quadratic(Spectrum.power_law(30))
    turned = raced(problem, Sign(0.03), 64, steps=80, rotation=3)
    plain = raced(problem, Sign(0.03), 64, steps=80)
    run = problem.sample(Sign(0.03), 64, [80], replicas=2000, seed=5, rotation=3)
    assert turned.stderr is not None
    assert plain.stderr is not None
    assert run.stderr is not None
    assert abs(turned.loss - run.loss[0]) < 4 * math.hypot(turned.stderr, run.stderr[0])
    assert abs(turned.loss - plain.loss) > 5 * math.hypot(turned.stderr, plain.stderr)
    found = raced(problem, Adam(), 64, 0.3, rotation=3)
    assert found.steps is not None
    run = problem.sample(found.optimizer, 64, [found.steps], replicas=500, seed=5, rotation=3)
    assert run.stderr is not None
    assert abs(run.loss[0] - 0.3) < 4 * run.stderr[0] + 0.03  # a step is worth some percent


def test_seeds_differ_within_their_errors() -> None:
    first, same, other = (raced(SMALL, Sign(0.02), 16, steps=100, seed=seed) for seed in (1, 1, 2))
    assert first.loss == same.loss != other.loss
    assert first.stderr is not None
    assert other.stderr is not None
    assert abs(first.loss - other.loss) < 4 * math.hypot(first.stderr, other.stderr)


def test_noise_without_a_variance_is_refused_where_it_would_be_ignored() -> None:
    with pytest.raises(ValueError, match="take a law with a variance"):
        tune(SMALL, SGD(), 16, TARGET, noise="cauchy")
    assert tune(SMALL, SGD(), 16, TARGET, noise="laplace", rotation=1).steps == tune(SMALL, SGD(), 16, TARGET).steps
    assert (
        "cauchy" in (said := raced(SMALL, Sign(0.02), 16, steps=10, noise="cauchy").message) or "student_t(1)" in said
    )
    with pytest.raises(ValueError, match="seed must be a whole number"):
        raced(SMALL, Sign(), 16, TARGET, seed=-1)


@pytest.mark.slow
def test_a_small_batch_is_reached_by_several_jumps() -> None:
    """From the batch of a wide race Adam's best rate falls many octaves, further than one narrow race looks."""
    problem = Quadratic(Spectrum.power_law(100))
    found = raced(problem, Adam(beta1=free), 1.0, 0.05)
    assert found.steps is not None
    easier = raced(problem, Adam(beta1=free), 64.0, 0.05)
    assert easier.steps is not None
    assert 4 * easier.steps < found.steps < 256 * easier.steps
