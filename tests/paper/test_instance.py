"""A study answers each question once, whoever asks and whoever works on it."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from nqm import EMA, SGD, HeavyBall, Preconditioned, Quadratic, Spectrum, sweep, tune
from nqm.paper.instance import POWERS, WITH_AVERAGE, PaperStudy, instance, preconditioned
from nqm.show.verdict import JUDGED, Verdict

SIZES = (16.0, 1024.0)


def test_a_sweep_is_that_of_the_library() -> None:
    study = PaperStudy(SIZES, dim=100)
    found = study.sweep(SGD(), 0.1)
    assert found.steps.tolist() == sweep(Quadratic(Spectrum.power_law(100)), SGD(), SIZES, target=0.1).steps.tolist()
    assert study.sweep(SGD(), 0.1) is found  # not searched for again
    assert study.sweep(SGD(), 0.1, [16.0]) is not found
    one = tune(study.problem, SGD(), 16, 0.1).steps
    assert study.sweep(SGD(), 0.1, [16.0]).steps.tolist() == [one]


def test_questions_are_told_apart_by_their_problem_and_answers_shared() -> None:
    study = PaperStudy(SIZES, dim=100)
    other = study.on(2.0)
    assert study.on(1.0).to_sweep(SGD()) == study.to_sweep(SGD())
    assert other.to_sweep(SGD()) != study.to_sweep(SGD())
    assert other.sweep(SGD()).steps[0] != study.sweep(SGD()).steps[0]
    assert other.on(1.0).sweep(SGD()) is study.sweep(SGD())
    noisier = study.on(noise_exponent=0.0)
    assert noisier.to_sweep(SGD()) != study.to_sweep(SGD())
    assert noisier.about != study.about
    spectrum = noisier.problem.spectrum
    assert np.allclose(spectrum.h, study.problem.spectrum.h)
    assert np.all(spectrum.c == 1)


def test_a_tuned_point_is_that_of_the_library() -> None:
    study = PaperStudy(SIZES, dim=100)
    (found,) = study.ask([study.to_tune(SGD(), 16)])
    assert found.steps == tune(study.problem, SGD(), 16, 0.01).steps
    assert study.ask([study.to_tune(SGD(), 16)])[0] is found  # not searched for again


def test_a_pool_searches_all_of_a_table_at_once() -> None:
    """Each of four searches waits until the others have begun."""
    together = Barrier(len(POWERS), timeout=600)

    class Waiting(ThreadPoolExecutor):
        def submit(self, function: Any, /, *args: Any) -> Future[Any]:  # type: ignore[override]
            return super().submit(lambda: (together.wait(), function(*args))[1])

    with Waiting(len(POWERS)) as pool:
        table = PaperStudy(SIZES, pool, dim=50).table({"SGD": SGD()})
    alone = PaperStudy(SIZES, dim=50).table({"SGD": SGD()})
    assert table == alone
    assert [row["power"] for row in table] == [p for p in POWERS for _ in SIZES]


def test_workers_do_not_start_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with PaperStudy().shared(1) as alone:
        assert alone.pool is None
    with PaperStudy().shared(2) as study:
        assert study.pool is not None
        assert study.pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
    assert "OMP_NUM_THREADS" not in os.environ


def test_equal_modes_are_one() -> None:
    flat = instance(64, 0.0)
    assert len(flat.spectrum) == 1
    assert flat.spectrum.dim == 64
    many = Quadratic(Spectrum(np.ones(64)))
    assert flat.run(HeavyBall(0.1, 0.9), 4, [50]).loss == pytest.approx(many.run(HeavyBall(0.1, 0.9), 4, [50]).loss)


def test_preconditioned_averages_are_averages_of_the_preconditioned() -> None:
    assert preconditioned(SGD(), 0.0) == SGD()
    problem = instance(100)
    for power in POWERS[1:]:
        outside = preconditioned(EMA(SGD(0.5), 0.9), power)
        inside = EMA(Preconditioned(SGD(0.5), power), 0.9)
        assert problem.run(outside, 8, [100]).loss == pytest.approx(problem.run(inside, 8, [100]).loss, rel=1e-13)
    assert str(preconditioned(WITH_AVERAGE["SGD with EMA"], 0.5)) == "Preconditioned(EMA(SGD()), power=0.5)"


def test_verdicts() -> None:
    assert [Verdict.of(*c) for c in ([True, True], [True, False], [False])] == list(JUDGED)


def heavy_ball_loss(lr: float, momentum: float, steps: int) -> float:
    """Loss on the paper's instance without noise, from the roots of the recursion on each of its 10^4 modes."""
    h = 1 / np.arange(1.0, 10_001)
    a = 1 + momentum - lr * h
    root = np.sqrt((a * a - 4 * momentum).astype(complex))
    first, second = (a + root) / 2, (a - root) / 2
    weight = (1 - 1 / second) / (1 / first - 1 / second)  # both the first and the step before it are 1
    theta = (weight * first**steps + (1 - weight) * second**steps).real
    return float((h * theta**2).sum() / 2)


@pytest.mark.slow
def test_heavy_ball_needs_147_steps_at_least() -> None:
    """One number wherever it is asked for: by a sweep, by tuning without noise, on the page, and by a search of our own."""
    problem = instance()
    fewest = sweep(problem, HeavyBall(), [1024.0], target=0.01).smallest_steps
    best = tune(problem, HeavyBall(), np.inf, 0.01)
    assert (fewest, best.steps) == (147, 147)
    assert heavy_ball_loss(best.optimizer.lr, best.optimizer.momentum, 147) <= 0.01
    page = (Path(__file__).parents[2] / "docs" / "choose.md").read_text()
    assert "plain SGD needs 6,673 steps,\n  and heavy ball 147." in page
    assert "| HeavyBall | 55,834 | 24,207 | 35,092 | 147 |" in page

    def loss(at: np.ndarray) -> float:
        lr, momentum = at
        return heavy_ball_loss(lr, momentum, 146) if 0 < momentum < 1 and 0 < lr < 2 * (1 + momentum) else 1e3

    rng = np.random.default_rng(0)
    starts = [np.array([rng.uniform(3.4, 3.92), rng.uniform(0.945, 0.97)]) for _ in range(24)]
    found = []
    for at in starts:
        around = {"initial_simplex": at + np.array([[0, 0], [0.02, 0], [0, 0.002]]), "maxiter": 120}
        found.append(minimize(loss, at, method="Nelder-Mead", options=around))
    assert 0.01 < min(one.fun for one in found) < 0.0105
