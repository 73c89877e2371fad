"""A forecast is a problem: its losses are those of `predict` and of a plain loop, and every search takes it or says why not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from known_laws import KINDS, LAST, WARMUP, Kind, known_forecast

from nqm import EMA, SGD, Adam, HeavyBall, optimal_schedule, phase_map, steps_to_target, sweep, tune
from nqm.engine.run import Outcome
from nqm.engine.schedule import Schedule, constant, cosine, step, warmup
from nqm.logs import Forecast
from nqm.logs.problem import MOST_RATE, LoggedProblem
from nqm.search import Axis
from nqm.types import Array, Wrong

SCHEDULES = {
    "constant": None,
    "cosine": warmup(500) + cosine(9500),
    "drops": step(10_000, 0.3, at=[4000, 8000]),
    "cooldown": warmup(500) + constant(6000) + Schedule([3000, 500], lr=[0.5, 0.01]),
    "batch size": warmup(500) + step(9500, 2.0, at=[3000, 6000]).on("batch_size"),
}


def beyond(kind: Kind) -> LoggedProblem:
    """A problem that answers beyond the reach of its logs."""
    return replace(known_forecast(kind).problem, extrapolate=True)


def looped(forecast: Forecast, lr: float, schedule: Schedule | None, batch_size: float, last: int) -> float:
    """The loss after the last step, summed step by step from the equations of the law."""
    law, metric = forecast.law, forecast.metric
    assert forecast.batch_size is not None
    S, R2, etas, sizes = [0.0], law["r0"], [], []
    peak = lr * (1.0 if schedule is None else float(schedule.lr.max()))
    for t in range(last):
        m, _, b = (min(1.0, (t + 1) / forecast.warmup), 1.0, 1.0) if schedule is None else schedule.at(t)
        ratio = b * batch_size / forecast.batch_size
        rate = lr * m
        before, R2 = R2, R2 * (1 - rate * metric.weight_decay) ** 2 + rate**2
        norm = {"norm": math.sqrt((before + R2) / 2), "half": math.sqrt(peak), "plain": 1.0}[metric.kind]
        etas.append(rate / norm * (math.sqrt(ratio) if metric.adaptive else 1.0))
        sizes.append(ratio)
        S.append(S[-1] + etas[-1])
    z = 0.0
    for j in range(last):  # The integral of K over each step, as an average of K within it.
        grid = np.linspace(S[-1] - S[j + 1], S[-1] - S[j], 400)
        z += law["N"] * etas[j] ** 2 / sizes[j] * float(np.mean(1 / (1 + 2 * law["C"] * (grid[1:] + grid[:-1]) / 2)))
    return law["floor"] + law["A"] * (1 + S[-1] / law["s0"]) ** -law["alpha"] + z / (1 + law["k"] * z)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_has_the_losses_of_predict(kind: Kind, name: str) -> None:
    forecast, schedule, lr = known_forecast(kind), SCHEDULES[name], known_forecast(kind).peaks[1]
    for batch_size in (64, 256):
        run = beyond(kind).run(SGD(lr), batch_size, LAST, schedule)
        asked = {} if schedule is None else {"peak": lr}
        outlook = forecast.predict(lr if schedule is None else schedule, run.steps, batch_size=batch_size, **asked)
        assert run.loss == pytest.approx(outlook.loss, rel=1e-6)
        assert run.signal == pytest.approx(forecast.law["floor"] + outlook.signal, rel=1e-6)
        assert run.loss == pytest.approx(run.signal + run.noise / batch_size, rel=1e-12)
        assert run.floor == forecast.law["floor"]
        assert run.outcome is Outcome.finished


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_is_a_plain_loop_over_the_equations(kind: Kind, name: str) -> None:
    forecast, schedule = known_forecast(kind), SCHEDULES[name]
    lr, last = forecast.peaks[0], 1500
    found = beyond(kind).run(SGD(lr), 128, [last], schedule).loss[0]
    # Blocks have the mean of rates that differ by 2%; the norm of a block is that of its middle.
    tolerance = 1e-4 if kind == "norm" else 1e-5
    assert found == pytest.approx(looped(forecast, lr, schedule, 128, last), rel=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_walk_goes_through_the_losses_of_a_run(kind: Kind, name: str) -> None:
    problem, schedule, last = beyond(kind), SCHEDULES[name], 3 * LAST
    lr = problem.forecast.peaks[1]
    walked = np.concatenate(list(problem.walk(SGD(lr), 128, schedule, last)))
    times = np.unique(np.rint(np.geomspace(1, last, 60)).astype(int))
    run = problem.run(SGD(lr), 128, times, schedule)
    late = times[times > WARMUP]  # Before, the blocks of a run that ends in its warm-up are others.
    exact = [problem.loss(SGD(lr), int(t), 128, schedule) for t in late]
    assert len(walked) == last
    assert walked[late - 1] == pytest.approx(exact, rel=1e-6)
    assert walked[times - 1] == pytest.approx(run.loss, rel=1e-4)  # Blocks of rates that differ by 2% end elsewhere.


@pytest.mark.parametrize("kind", KINDS)
def test_a_walk_is_interpolated_far_beyond_the_logs(kind: Kind) -> None:
    problem, last = beyond(kind), 2_000_000
    lr = problem.forecast.peaks[1]
    walked = np.concatenate(list(problem.walk(SGD(lr), 64, None, last)))
    times = np.array([30_011, 200_003, 1_500_007, last])
    exact = [problem.loss(SGD(lr), int(t), 64) for t in times]
    assert walked[times - 1] == pytest.approx(exact, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_first_hit_is_where_the_loss_crosses_the_target(kind: Kind, name: str) -> None:
    problem, schedule = known_forecast(kind).problem, SCHEDULES[name]
    lr = problem.forecast.peaks[1]
    target = problem.loss(SGD(lr), 2345, 64, schedule) * (1 + 1e-9)
    hit = steps_to_target(problem, SGD(lr), 64, target, schedule)
    assert hit.outcome is Outcome.reached
    assert hit.steps is not None
    losses = np.array([problem.loss(SGD(lr), t, 64, schedule) for t in range(1, 2400)])
    assert hit.steps == 1 + int(np.argmax(losses <= target))
    assert hit.loss == losses[hit.steps - 1]


def test_a_target_below_the_floor_is_never_reached() -> None:
    problem = known_forecast("half").problem
    hit = steps_to_target(problem, SGD(1e-3), 64, 2.4)
    assert hit.outcome is Outcome.above_floor
    assert hit.message == "never reaches 2.4: the floor of these logs is 2.5, whatever the learning rate"
    with pytest.raises(Wrong, match=r"target 4\.4 is not below the initial loss, 4\.3"):
        steps_to_target(problem, SGD(1e-3), 64, 4.4)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_may_keep_a_constant_rate_above_the_target(kind: Kind) -> None:
    problem = beyond(kind)
    lr = problem.forecast.peaks[1]
    walked = np.concatenate(list(problem.walk(SGD(lr), 0.25, None, 50_000)))
    hit = steps_to_target(problem, SGD(lr), 0.25, float(walked.min()) - 1e-3, max_steps=50_000)
    assert hit.outcome is Outcome.out_of_steps
    assert hit.loss == pytest.approx(walked[-1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_tuning_finds_the_best_rate_of_a_fine_grid(kind: Kind) -> None:
    problem, steps = beyond(kind), 4000
    batch_size = 8  # so noisy that the best rate is inside of the box
    tuned = tune(problem, SGD(), batch_size, steps=steps)
    grid = np.geomspace(1e-3, 1, 400) * problem.largest_rate
    losses = [problem.loss(SGD(lr), steps, batch_size) for lr in grid]
    assert tuned.loss <= min(losses) * (1 + 1e-7)
    assert tuned.optimizer.lr < 0.9 * problem.largest_rate
    assert tuned.loss == pytest.approx(problem.run(tuned.optimizer, batch_size, [steps]).loss[0], rel=1e-9)
    best = tune(problem, SGD(), batch_size, target=min(losses) * (1 + 1e-6))
    assert best.steps is not None
    assert 0.98 * steps <= best.steps <= steps


def test_searches_go_no_further_than_twice_the_logged_rates_and_say_so() -> None:
    problem = known_forecast("half").problem
    tuned = tune(problem, SGD(), 64, target=3.0)
    assert 0.99 * MOST_RATE * 2e-3 < tuned.optimizer.lr <= MOST_RATE * 2e-3
    assert "its peak rate 0.004 is 2 times the largest of the logs, 0.002" in tuned.message
    assert tuned.message.endswith("searches try rates up to 0.004")
    assert problem.stability_limit(SGD()) == 0.004
    assert "outside the logs" not in problem.run(SGD(2e-3), 64, 5000).message
    assert "its peak rate 0.003 is 1.5 times the largest of the logs, 0.002" in problem.run(SGD(3e-3), 64, 5000).message
    assert "3 times as long as the longest log" in problem.run(SGD(2e-3), 64, 30_000).message


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_tunes_at_each_batch_size(kind: Kind) -> None:
    problem, target = beyond(kind), 2.8
    found = sweep(problem, SGD(), [2, 8, 32], target=target)
    assert np.all(np.diff(found.steps) < 0)
    for lr, steps, batch_size in zip(found.lr, found.steps, found.batch_sizes, strict=True):
        assert steps_to_target(problem, SGD(lr), batch_size, target).steps == pytest.approx(steps, abs=1)
        alone = tune(problem, SGD(), batch_size, target=target).steps
        assert alone == pytest.approx(steps, abs=1)
    assert math.isnan(found.smallest_steps)  # No run is without noise, so no bound and no knee are known.
    assert np.isnan(found.bounds()["bayes"]).all()
    assert math.isnan(found.critical_batch_size("knee"))


@pytest.mark.slow
def test_pictures_are_drawn(tmp_path: object) -> None:
    problem = known_forecast("norm").problem
    for name, result in {
        "run": problem.run(SGD(1e-3), 64, 1000),
        "sweep": sweep(problem, SGD(), [16, 32], target=3.0),
    }.items():
        path = f"{tmp_path}/{name}.png"
        result.plot(path)
        with open(path, "rb") as file:
            assert len(file.read()) > 1000
    assert "LoggedProblem(2 logs, AdamW with weight decay 0.1" in repr(problem)


def test_without_batch_sizes_one_stands_for_that_of_the_logs() -> None:
    forecast = known_forecast("half", None)
    run = forecast.problem.run(SGD(1e-3), 1, 5000)
    assert run.loss == pytest.approx(forecast.predict(1e-3, run.steps).loss, rel=1e-6)
    tuned = tune(forecast.problem, SGD(), 1, target=3.0)
    assert tuned.steps
    assert tuned.examples is tuned.to_dict()["examples"] is None
    swept = sweep(forecast.problem, SGD(), [1], target=3.0)
    assert swept.steps[0] == tuned.steps
    assert swept.table()[0]["examples"] is swept.to_dict()["examples"][0] is None
    assert all(value is None for value in swept.to_dict()["critical_batch_size"].values())
    with pytest.raises(Wrong, match="examples cannot be counted; give steps"):
        tune(forecast.problem, SGD(), 1, examples=1000)
    with pytest.raises(Wrong, match="these logs have no batch size: batch_size=1 stands for theirs"):
        forecast.problem.run(SGD(1e-3), 64, 5000)
    with pytest.raises(Wrong, match="these logs have no batch size"):
        sweep(forecast.problem, SGD(), [32, 64], target=3.0)


def test_with_batch_sizes_examples_are_counted() -> None:
    problem = known_forecast("half").problem
    tuned = tune(problem, SGD(), 64, target=3.0)
    assert tuned.steps is not None
    assert tuned.examples == tuned.to_dict()["examples"] == 64 * tuned.steps
    assert sweep(problem, SGD(), [64], target=3.0).examples.tolist() == [64 * tuned.steps]


def test_without_noise_only_sgd_has_a_loss() -> None:
    plain, adaptive = beyond("plain"), beyond("half")
    run = plain.run(SGD(0.1), math.inf, 1000)
    assert np.array_equal(run.loss, run.signal)
    with pytest.raises(Wrong, match="finite batch size"):
        adaptive.run(SGD(1e-3), math.inf, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_other_optimizers_are_refused(kind: Kind) -> None:
    problem = known_forecast(kind).problem
    sentence = r"a forecast answers for the optimizer of its logs, and SGD\(lr\) stands for its learning rate; got"
    for optimizer in (HeavyBall(1e-3, 0.9), EMA(SGD(1e-3), 0.9), Adam(1e-3)):
        for ask in (
            lambda o=optimizer: problem.run(o, 64, 100),
            lambda o=optimizer: problem.losses(o, [100], 64),
            lambda o=optimizer: problem.sample(o, 64, 100),
            lambda o=optimizer: problem.floor(o, 64),
            lambda o=optimizer: problem.stability_limit(o, 64),
            lambda o=optimizer: steps_to_target(problem, o, 64, 3.0),
            lambda o=optimizer: tune(problem, o, 64, target=3.0),
            lambda o=optimizer: sweep(problem, o, [64], target=3.0),
        ):
            with pytest.raises(Wrong, match=sentence) as refused:
                ask()
            assert refused.value.argument == "optimizer"
    with pytest.raises(Wrong, match="lr of SGD"):
        problem.run(SGD(), 64, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_what_needs_modes_is_refused_with_what_to_use_instead(kind: Kind) -> None:
    problem = known_forecast(kind).problem
    with pytest.raises(Wrong, match=r"optimal_schedule needs .*; use Forecast.optimal_schedule for the best schedule"):
        optimal_schedule(problem, SGD(), 64, steps=1000)
    with pytest.raises(Wrong, match=r"phase_map needs .* steps_to_target for each point of a map"):
        phase_map(problem, SGD(), Axis("lr", 1e-4, 1e-3, 3), Axis("batch_size", 16, 64, 3), target=3.0)
    with pytest.raises(Wrong, match="nothing to sample"):
        problem.sample(SGD(1e-3), 64, 10)
    with pytest.raises(Wrong, match="not the moments of the weights"):
        problem.moments(SGD(1e-3), [10], 64)
    with pytest.raises(Wrong, match="positive somewhere"):
        problem.run(SGD(1e-3), 64, 10, Schedule([10], lr=0.0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exponent", [1.0, 0.8, 1.5])
def test_the_curvatures_sum_to_the_law(kind: Kind, exponent: float) -> None:
    forecast = known_forecast(kind)
    fitted = replace(forecast.fitted, law=replace(forecast.law, exponent=exponent))
    problem = replace(forecast, fitted=fitted).problem
    law, modes = problem.law, problem.spectrum
    S = np.append(0.0, np.geomspace(1e-4, 1e4, 50))
    fade = np.exp(-2 * np.outer(S, modes.h))
    assert fade @ modes.signal_mass == pytest.approx(
        law["A"] * (1 + S / law["s0"]) ** -law["alpha"], abs=1e-8 * law["A"]
    )
    noise = fade @ modes.noise_mass / 64
    assert noise == pytest.approx(law["N"] * (1 + 2 * law["C"] * S) ** -exponent, abs=1e-8 * law["N"])
    assert problem.initial_loss == pytest.approx(law["floor"] + modes.initial_loss, rel=1e-8)


def test_losses_are_those_of_a_run() -> None:
    problem: LoggedProblem = known_forecast("norm").problem
    times: Array = np.array([0, 10, 5000])
    run = problem.run(SGD(1e-3), 32, times)
    signal, noise = problem.losses(SGD(1e-3), times, 32)
    assert np.array_equal(signal + noise / 32, run.loss)
    assert run.loss[0] == problem.initial_loss
    assert float(problem.losses(SGD(1e-3), 5000, 32)[0]) == pytest.approx(run.signal[-1], rel=1e-6)
