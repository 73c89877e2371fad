"""A study answers each question once, whoever asks and whoever works on it."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from nqm import EMA, SGD, HeavyBall, Preconditioned, Quadratic, Spectrum, sweep, tune
from nqm.paper.instance import POWERS, WITH_AVERAGE, PaperStudy, instance, preconditioned
from nqm.paper.pool import workers
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
    assert study.on(1.0) is study
    assert other.to_sweep(SGD()) != study.to_sweep(SGD())
    assert other.sweep(SGD()).steps[0] != study.sweep(SGD()).steps[0]
    assert other.on(1.0).sweep(SGD()) is study.sweep(SGD())


def test_a_pool_works_ahead() -> None:
    with ThreadPoolExecutor(1) as pool:
        study = PaperStudy(SIZES, dim=50).sharing(pool)
        questions = study.to_table({"SGD": SGD()}, powers=(0.0, 0.5))
        study.prepare(questions)
        known = [study._known[q] for q in questions]
        assert all(isinstance(k, Future) for k in known)
        table = study.table({"SGD": SGD()}, powers=(0.0, 0.5))
        assert [study._known[q] for q in questions] == known
    assert study.sharing(None) is study
    alone = PaperStudy(SIZES, dim=50).table({"SGD": SGD()}, powers=(0.0, 0.5))
    assert table == alone
    assert [row["power"] for row in table] == [0.0, 0.0, 0.5, 0.5]


def test_workers_do_not_start_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with workers(1) as pool:
        assert pool is None
    with workers(2) as pool:
        assert pool is not None
        assert pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
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
