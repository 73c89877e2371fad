"""Tuning by races: against exact tuning where there is one, against sampled runs where there is none; and how it fails."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    Adam,
    Clipped,
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
    steps_to_target,
    sweep,
    tune,
)
from nqm.search import races
from nqm.search.quasi import QuasiTuner
from nqm.search.races import Races, looks, spread_out

SMALL = Quadratic(Spectrum.power_law(100))
TARGET = 0.2  # of an initial loss of 2.6


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the usual work, which doubles standard errors."""
    monkeypatch.setattr(races, "WORK", 2**23)
    monkeypatch.setattr(races, "RACE", 2**22)


def sampled(optimizer: Optimizer, batch_size: float, steps: int) -> tuple[float, float]:
    """Loss after so many steps, on every mode and with other noise than the tuner's."""
    run = SMALL.sample(optimizer, batch_size, [steps], replicas=400, seed=99)
    assert run.stderr is not None
    return float(run.loss[0]), float(run.stderr[0])


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [4.0, 256.0, math.inf])
def test_races_find_what_exact_tuning_finds(batch_size: float) -> None:
    tuner = QuasiTuner(SMALL, SGD())
    raced, exact = tuner.solve(batch_size, TARGET), tune(SMALL, SGD(), batch_size, TARGET)
    assert raced.steps is not None
    assert exact.steps is not None
    own = steps_to_target(SMALL, raced.optimizer, batch_size, TARGET).steps
    assert own is not None
    assert raced.stderr is not None
    # Four standard errors, and the grain of whole steps and of looks at the loss.
    assert abs(raced.steps - own) < 4 * raced.stderr + 2 + 0.02 * own
    assert own < 1.05 * exact.steps + 1


def test_two_parameters_are_tuned_jointly() -> None:
    raced = QuasiTuner(SMALL, HeavyBall()).solve(256, TARGET)
    exact = tune(SMALL, HeavyBall(), 256, TARGET)
    own = steps_to_target(SMALL, raced.optimizer, 256, TARGET).steps
    assert own is not None
    assert exact.steps is not None
    assert own < 1.1 * exact.steps + 1


@pytest.mark.parametrize("optimizer", [SGD(), HeavyBall(momentum=0.8)])
def test_budgets_find_what_exact_tuning_finds(optimizer: Optimizer) -> None:
    raced = QuasiTuner(SMALL, optimizer).solve(16, steps=400)
    exact = tune(SMALL, optimizer, 16, steps=400)
    run = SMALL.run(raced.optimizer, 16, [400])
    assert run.loss[0] < 1.02 * exact.loss
    assert raced.stderr is not None
    assert abs(raced.loss - run.loss[0]) < 4 * raced.stderr


@pytest.mark.parametrize("optimizer", [Adam(), RMSProp(), EMA(Sign(), 0.5)])
def test_the_answer_is_what_a_sampled_run_reaches(optimizer: Optimizer) -> None:
    found = tune(SMALL, optimizer, 64, TARGET)
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
    found = tune(SMALL, Adam(), 64, TARGET)
    plain = tune(SMALL, SGD(), 64, TARGET)
    assert found.steps is not None
    assert plain.steps is not None
    assert found.steps < plain.steps
    best, stderr = sampled(found.optimizer, 64, found.steps)
    lr, beta1 = found.optimizer.lr, found.optimizer.beta1  # type: ignore[attr-defined]
    for factor in (0.6, 1.6):
        assert sampled(Adam(lr * factor, beta1), 64, found.steps)[0] > best - 3 * stderr


def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    answers = []
    for cores in (1, 3):
        tuner = QuasiTuner(SMALL, Adam(beta1=0.9))
        tuner.races.cores = cores
        answers.append(tuner.solve(16, TARGET))
    assert answers[0].optimizer == answers[1].optimizer
    assert answers[0].steps == answers[1].steps
    assert answers[0].stderr == answers[1].stderr


def test_nothing_to_tune_is_measured() -> None:
    found = tune(SMALL, Adam(0.05, 0.9), 64, TARGET)
    assert found.optimizer == Adam(0.05, 0.9)
    assert found.steps is not None
    loss, stderr = sampled(found.optimizer, 64, found.steps)
    assert abs(loss - TARGET) < 4 * stderr + 0.03 * TARGET
    budget = tune(SMALL, Adam(0.05, 0.9), 64, steps=found.steps)
    assert budget.stderr is not None
    assert abs(budget.loss - loss) < 4 * math.hypot(stderr, budget.stderr)


def test_budgets_of_examples() -> None:
    found = tune(SMALL, Sign(), 8, examples=800)
    assert found.steps == 100
    assert found.outcome is Outcome.finished
    assert found.stderr is not None
    loss, stderr = sampled(found.optimizer, 8, 100)
    assert abs(found.loss - loss) < 4 * math.hypot(stderr, found.stderr)


def test_settings_that_cannot_share_arrays() -> None:
    found = tune(SMALL, Lookahead(Sign(), 0.8), 64, TARGET)
    assert found.steps is not None
    assert found.optimizer.period >= 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("optimizer", [NormalisedSGD(), Clipped(SGD()), Preconditioned(Sign())])
def test_norms_and_powers_are_tuned(optimizer: Optimizer) -> None:
    problem = Quadratic(Spectrum.power_law(30))
    found = tune(problem, optimizer, 64, 0.3)
    assert found.steps is not None
    run = problem.sample(found.optimizer, 64, [found.steps], replicas=300)
    assert run.stderr is not None
    assert run.loss[0] < 0.3 + 4 * run.stderr[0] + 0.01


@pytest.mark.slow
def test_a_target_out_of_reach_is_said() -> None:
    found = tune(SMALL, Adam(), 1, 1e-6, max_steps=300)
    assert found.outcome is Outcome.out_of_steps
    assert found.steps is None
    assert "even tuned, still at" in found.message
    assert "after 300 steps, above 1e-06" in found.message
    run = SMALL.sample(found.optimizer, 1, 300, replicas=200)
    assert run.loss.min() > 0.5 * found.loss  # it tells of the batch size that was asked for
    assert tune(SMALL, Adam(50.0, 0.9), 1, 0.01, max_steps=50).steps is None


def test_an_average_over_a_part_of_the_run_has_a_budget_and_no_target() -> None:
    average = Polyak(Sign(0.03), 0.5)
    with pytest.raises(ValueError, match="depends on the length of the run"):
        tune(SMALL, average, 64, TARGET)
    assert tune(SMALL, average, 64, steps=50).loss < 1
    assert tune(SMALL, Polyak(Sign(0.05), 5), 64, TARGET).steps is not None


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="exactly one goal"):
        tune(SMALL, Adam(), 64)
    with pytest.raises(ValueError, match="steps at most"):
        tune(SMALL, Adam(), 64, steps=10**8)
    with pytest.raises(TypeError, match="Quadratic problem only"):
        tune("problem", Adam(), 64, 0.1)  # type: ignore[arg-type]


def test_sweeps_have_error_bars() -> None:
    found = sweep(SMALL, Adam(beta1=0.9), TARGET, [8, 64, 512])
    assert found.steps_stderr is not None
    assert (np.diff(found.steps) < 0).all()
    assert (found.steps_stderr >= 0).all()
    assert found.smallest_steps <= found.steps[-1]
    assert found.table()[0]["steps_stderr"] == found.steps_stderr[0]
    assert found.to_dict()["steps_stderr"] == found.steps_stderr.tolist()
    assert math.isnan(found.critical_batch_size("knee"))
    assert len(found.plot().axes[0].collections) >= 1  # the bars
    exact = sweep(SMALL, SGD(), TARGET, [8, 64])
    assert exact.steps_stderr is None
    assert "steps_stderr" not in exact.table()[0]


def test_nodes_stand_for_all_modes_of_a_rule_that_treats_each_by_itself() -> None:
    many = Quadratic(Spectrum.power_law(2000))
    nodes = Races(many, Adam()).measure_on
    assert nodes.modes < 400
    assert nodes.initial_loss == pytest.approx(many.spectrum.initial_loss, rel=1e-6)
    steps = [20, 100]
    for row in (Adam(0.02, 0.9), Sign(0.01, 0.5)):
        whole = many.sample(row, 32, steps, replicas=48)
        few = Quadratic(spread_out(many.coarse_smooth.spectrum, 256)).sample(row, 32, steps, replicas=400, seed=1)
        assert whole.stderr is not None
        assert few.stderr is not None
        z = (whole.loss - few.loss) / np.hypot(whole.stderr, few.stderr)
        assert np.abs(z).max() < 4


def test_looks_are_dense_and_end_at_the_end() -> None:
    seen = list(looks(5000))
    assert seen[:300] == list(range(1, 301))
    assert seen[-1] == 5000
    assert max(b / a for a, b in pairwise(seen[300:])) < 1.01
