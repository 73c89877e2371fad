"""The exact engine and its Monte Carlo twin against each other, with planted bugs that must show; and the sampler itself."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS
from twin import second_moments

import nqm.sampling.replicas as sampler
import nqm.sampling.stepping as stepping
from nqm import (  # fmt: skip
    EMA,
    SGD,
    HeavyBall,
    Nesterov,
    Optimizer,
    Outcome,
    Polyak,
    Quadratic,
    Schedule,
    Spectrum,
    Wrapper,
    constant,
    cosine,
    step,
    warmup,
)
from nqm.sampling.laws import law
from nqm.sampling.replicas import Plan
from nqm.sampling.sources import Additive

H = np.append(np.geomspace(1.0, 1e-3, 28), [1e-4, 1e-6])
MODES = Spectrum(H, c=H * np.linspace(0.5, 2.0, 30), s=np.linspace(0.1, 1.5, 30) * H[::-1] ** 0.2)
TIMES = [1, 2, 5, 12, 30, 60]
B = 0.5  # loud enough that signal and noise both count
REPLICAS = 6_000
ROUNDING = 1e-11  # the same sums in another basis: 30 modes, 60 steps, preconditioners of condition 1e3

rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def exact(row: Optimizer, schedule: Schedule | None = None) -> Any:
    """Second moments of the reported weights by the exact engine, (times, modes)."""
    signal, noise = Quadratic(MODES).moments(row, TIMES, B, schedule)
    return signal + noise / B


def scores(row: Optimizer, expected: Any, schedule: Schedule | None = None, **options: Any) -> Any:
    """z-scores of sampled second moments, (times, modes)."""
    source = Additive(MODES, row, law(options.pop("noise", "gaussian")))
    mean, stderr = second_moments(Plan(source, row, B, TIMES, schedule, REPLICAS, **{"seed": 3} | options))
    return (mean - expected) / stderr


def rms(z: Any) -> float:
    return math.sqrt(float(np.mean(z**2)))


@rows
def test_sampled_moments_are_the_exact_ones(row: Optimizer) -> None:
    z = scores(row, exact(row))
    assert 0.8 < rms(z) < 1.2
    assert np.abs(z).max() < 5


SCHEDULE = warmup(10) + step(40, 0.5, at=[20]) & (constant(25) + constant(30, 4.0)).on("batch_size")


@pytest.mark.parametrize("name", ["sgd", "nesterov", "ema_heavy_ball", "lookahead_sgd", "schedule_free", "polyak_step"])
def test_sampled_moments_under_a_schedule(name: str) -> None:
    schedule = SCHEDULE & constant(15, 0.5).on("momentum")
    z = scores(ROWS[name], exact(ROWS[name], schedule), schedule)
    assert 0.8 < rms(z) < 1.2
    assert np.abs(z).max() < 5
    assert rms(scores(ROWS[name], exact(ROWS[name]), schedule)) > 2  # the schedule is felt


def _flipped(row: Optimizer, slot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = type(row).system

    def system(self: Any, h: Any, t: int) -> Any:
        G, b = right(self, h, t)
        return G, [-e if i == slot else e for i, e in enumerate(b)]

    monkeypatch.setattr(type(row), "system", system)


@pytest.mark.parametrize(
    ("name", "slot"), [("heavy_ball", 0), ("nesterov", 1), ("schedule_free", 1), ("ema_sgd", 1), ("polyak_step", 1)]
)
def test_a_flipped_sign_in_b_shows(name: str, slot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _flipped(ROWS[name], slot, monkeypatch)
    assert rms(scores(ROWS[name], exact(ROWS[name]))) > 2


def recursion(row: Optimizer, drop: bool = False) -> Any:
    """``M <- A M A' + Q`` in a plain loop over steps, with its cross terms or without."""
    found = np.empty((len(TIMES), len(H)))
    for k, (h, c, s) in enumerate(zip(MODES.h, MODES.c, MODES.s, strict=True)):
        start = np.array(row.initial())
        M = s * np.outer(start, start)
        for t in range(TIMES[-1] + 1):
            if t in TIMES:
                r = np.array(row.readout(t))
                found[TIMES.index(t), k] = r @ M @ r
            G, b = row.system(h, t)
            A, b = np.eye(len(b)) + np.array(G), np.array(b)
            M = A @ (np.diag(np.diag(M)) if drop else M) @ A.T + c / B * np.outer(b, b)
    return found


@pytest.mark.parametrize("name", ["heavy_ball", "nesterov", "ema_sgd", "schedule_free", "lookahead_heavy_ball"])
def test_a_dropped_cross_term_shows(name: str) -> None:
    row = ROWS[name]
    assert np.abs(recursion(row) / exact(row) - 1).max() < 1e-9
    assert rms(scores(row, recursion(row, drop=True))) > 2


def test_a_wrong_update_rule_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = exact(ROWS["nesterov"])
    monkeypatch.setattr(Nesterov, "point", Optimizer.point)  # the gradient at theta and not at y
    assert rms(scores(ROWS["nesterov"], expected)) > 2
    expected = exact(ROWS["ema_sgd"])
    monkeypatch.setattr(EMA, "report", lambda self, state, t: state[0][0])
    assert rms(scores(ROWS["ema_sgd"], expected)) > 2


@pytest.mark.parametrize("noise", ["rademacher", "laplace", "exponential", "student_t(9)"])
def test_second_moments_do_not_depend_on_the_law(noise: str) -> None:
    z = scores(ROWS["heavy_ball"], exact(ROWS["heavy_ball"]), noise=noise)
    assert 0.8 < rms(z) < 1.2
    assert np.abs(z).max() < 5


@rows
def test_the_mean_loss_is_the_exact_loss(row: Optimizer) -> None:
    spectrum = Spectrum([1.0, 0.4, 0.05], c=[1.0, 2.0, 0.2], count=[1, 3, 2])
    times = [0, 1, 4, 20]
    run = Quadratic(spectrum).sample(row, 2.0, times, replicas=4_000, seed=5)
    z = (run.loss - Quadratic(spectrum).run(row, 2.0, times).loss) / run.stderr
    assert np.abs(z).max() < 4.5
    assert run.outcome is Outcome.finished
    assert run.signal is None
    assert run.replicas == 4_000
    low, middle, high = run.quantiles.values()
    assert (low < middle).all()
    assert (middle < high).all()


@rows
def test_a_rotated_run_is_the_same_run(row: Optimizer) -> None:
    problem = Quadratic(MODES)
    plain = problem.sample(row, B, TIMES, replicas=40)
    turned = problem.sample(row, B, TIMES, replicas=40, rotation="random")
    assert np.abs(turned.loss / plain.loss - 1).max() < ROUNDING


@pytest.mark.slow
def test_the_answer_depends_on_the_seed_and_on_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, row = Quadratic(Spectrum.power_law(300)), EMA(Nesterov(0.2, 0.8), 0.9)

    def run(**options: Any) -> Any:
        return problem.sample(row, 4, 12, replicas=200, **options)

    first = run()
    for workers in (1, 2, 7):
        again = run(workers=workers)
        assert again.loss.tolist() == first.loss.tolist()
        assert again.stderr.tolist() == first.stderr.tolist()
    monkeypatch.setattr(stepping, "TICK_STEPS", 1)
    assert run().loss.tolist() == first.loss.tolist()
    monkeypatch.setattr(sampler, "DENSE_REPLICAS", 10**6)  # all blocks through one matrix
    turned = run(rotation=1)
    monkeypatch.setattr(sampler, "DENSE_REPLICAS", 1)
    assert np.abs(run(rotation=1).loss / turned.loss - 1).max() < 1e-13
    assert run(seed=1).loss.tolist() != first.loss.tolist()
    assert np.abs(run(seed=1).loss / first.loss - 1).max() < 0.3


def test_reported_steps_do_not_change_the_run() -> None:
    problem, row = Quadratic(Spectrum.power_law(20)), ROWS["lookahead_sgd"]
    every = problem.sample(row, 4, list(range(21)), replicas=50).loss
    assert problem.sample(row, 4, [3, 20], replicas=50).loss.tolist() == every[[3, 20]].tolist()


def test_an_average_over_part_of_the_run_is_a_run_of_its_own_at_each_step() -> None:
    problem = Quadratic(Spectrum.power_law(20))
    fraction = problem.sample(Polyak(SGD(0.9), 0.5), 4, [7, 20], replicas=50).loss
    for t, loss in zip((7, 20), fraction, strict=True):
        assert problem.sample(Polyak(SGD(0.9), t // 2), 4, [t], replicas=50).loss[0] == loss


def test_a_divergence_is_a_value() -> None:
    problem = Quadratic(Spectrum.power_law(50))
    for steps in (200, 5000):  # grown, and overflowed
        run = problem.sample(SGD(2.2), 16, steps, replicas=8)
        assert run.outcome is Outcome.diverged
        assert "diverges" in run.message
        assert "lower the learning rate" in run.message
    assert not np.isfinite(run.loss[-1])


def test_heavy_tails_are_said() -> None:
    problem = Quadratic(Spectrum.power_law(50))
    assert "no mean" in problem.sample(SGD(0.1), 16, 20, noise="cauchy").message
    assert "no variance" in problem.sample(SGD(0.1), 16, 20, noise="student_t(2)").message
    assert "no" not in problem.sample(SGD(0.1), 16, 20, noise="student_t(5)").message


def test_progress_counts_up_to_its_total() -> None:
    seen: list[tuple[int, int]] = []
    problem = Quadratic(Spectrum.power_law(2000))
    problem.sample(SGD(0.1), 16, 100, replicas=60, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert sorted(seen) == seen


def test_an_interrupt_ends_every_thread() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before, start = threading.active_count(), time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        Quadratic(Spectrum.power_law(2000)).sample(SGD(0.1), 16, 10**6, replicas=64, progress=stop)
    assert time.perf_counter() - start < 5  # of an hour's work
    assert threading.active_count() == before


def test_blocks_are_made_as_they_are_needed() -> None:
    plan = Plan(Additive(Spectrum.power_law(10_000), SGD(0.1), law("gaussian")), SGD(0.1), 4.0, [1], replicas=10**9)
    first = next(plan.jobs())
    assert first == [(0, plan.rows)]
    assert sum(rows for job in Plan(plan.source, SGD(0.1), 4.0, [1], replicas=7).jobs() for _, rows in job) == 7


def test_progress_counts_every_run_of_an_average() -> None:
    seen: list[tuple[int, int]] = []
    problem = Quadratic(Spectrum.power_law(2000))
    problem.sample(Polyak(SGD(0.1), 0.5), 4, [50, 200], replicas=8, progress=lambda *at: seen.append(at), workers=1)
    assert {total for _, total in seen} == {1 * 250}


class Silent(Wrapper):
    """States its system and no update rule."""

    def system(self, h: Any, t: int) -> Any:
        return self.inner.system(h, t)

    def initial(self) -> Any:
        return self.inner.initial()

    def readout(self, t: int) -> Any:
        return self.inner.readout(t)


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (ValueError, "lr of SGD", {"optimizer": SGD()}),
        (ValueError, "write its method update", {"optimizer": Silent(SGD(0.1))}),
        (ValueError, "replicas", {"replicas": 0}),
        (ValueError, "replicas", {"replicas": "many"}),
        (ValueError, "seed", {"seed": -1}),
        (ValueError, "rotation", {"rotation": -1}),
        (ValueError, "workers", {"workers": -1}),
        (ValueError, "workers", {"workers": "2"}),
        (ValueError, "quantiles", {"quantiles": 0.5}),
        (ValueError, "seed", {"seed": 0.5}),
        (ValueError, "quantiles", {"quantiles": [2]}),
        (ValueError, "batch_size", {"batch_size": 0}),
        (ValueError, "steps", {"steps": -1}),
        (ValueError, "no law 'gausian'", {"noise": "gausian"}),
        (ValueError, "noise: it must be a name", {"noise": 3}),
    ],
)
def test_wrong_calls_are_refused_by_name(error: Any, match: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=match):
        Quadratic(Spectrum([1.0])).sample(**{"optimizer": SGD(0.1), "batch_size": 4, "steps": 10} | options)


def test_a_cosine_schedule_given_as_a_function() -> None:
    problem, row = Quadratic(Spectrum.power_law(10)), HeavyBall(0.2, 0.5)
    table = cosine(30)
    by_data = problem.sample(row, 4, 30, table, replicas=10)
    by_call = problem.sample(row, 4, 30, lambda t: float(table.lr[t]), replicas=10)
    assert by_data.loss.tolist() == by_call.loss.tolist()
