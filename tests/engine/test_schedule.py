"""Schedules: their values from the definitions, their algebra, and every row under every schedule against a plain loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS
from hypothesis import given
from hypothesis import strategies as st
from reference import Settings, loop, losses, relative_error

from nqm import (
    SGD,
    HeavyBall,
    Optimizer,
    Quadratic,
    Schedule,
    Spectrum,
    Wrong,
    constant,
    cosine,
    exponential,
    linear,
    step,
    warmup,
    wsd,
)

TWO = Spectrum([0.9, 0.04], c=[1.0, 2.0], s=[1.0, 0.5])
N = 24
TIMES = [1, 2, 11, 17, N, N + 7]  # past the end, where the last value holds

Case = tuple[Any, Callable[[int], float]]  # a schedule, and the multiplier of step t by its definition

DEFINED: dict[str, Case] = {
    "constant": (constant(N, 0.7), lambda t: 0.7),
    "step": (step(N, 0.5, [10, 20]), lambda t: 0.5 ** ((t >= 10) + (t >= 20))),
    "linear": (linear(N), lambda t: 1 - min(t, N - 1) / N),
    "linear_up": (linear(N, 0.2, 0.8), lambda t: 0.2 + 0.6 * min(t, N - 1) / N),
    "cosine": (cosine(N, 0.1), lambda t: 0.1 + 0.9 * (1 + math.cos(math.pi * min(t, N - 1) / N)) / 2),
    "exponential": (exponential(N, 0.05), lambda t: 0.05 ** (min(t, N - 1) / N)),
    "warmup": (warmup(N), lambda t: min(t + 1, N) / N),
    "wsd": (wsd(N, 6, 10), lambda t: (t + 1) / 6 if t < 6 else 1 - max(0, min(t, N - 1) - (N - 10)) / 10),
    "piecewise": (Schedule([5, 9, 3], [1.0, 0.3, 0.6]), lambda t: 1.0 if t < 5 else 0.3 if t < 14 else 0.6),
    "joined": (
        warmup(8) + cosine(20),
        lambda t: (t + 1) / 8 if t < 8 else (1 + math.cos(math.pi * min(t - 8, 19) / 20)) / 2,
    ),
    "function": (lambda t: 1 / (1 + 0.1 * t), lambda t: 1 / (1 + 0.1 * t)),
}

defined = pytest.mark.parametrize("case", DEFINED.values(), ids=DEFINED.keys())
rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def error(row: Optimizer, schedule: Any, settings: Settings) -> float:
    run = Quadratic(TWO).run(row, 1.0, TIMES, schedule=schedule)
    signal, noise = losses(TWO, loop(row, TWO.h, TIMES, settings))
    # Between modes that cancel, rounding is relative to the start; 1e-15 of it is far below what a run shows.
    return max(relative_error(run.signal, signal, 1e-15), relative_error(run.noise, noise))


@rows
@defined
def test_learning_rate(row: Optimizer, case: Case) -> None:
    schedule, f = case
    assert error(row, schedule, lambda t: (f(t), 1.0, 1.0)) < 1e-9  # the project's bar


@rows
@pytest.mark.parametrize("name", ["step", "cosine", "piecewise"])
def test_momentum_and_batch_size(row: Optimizer, name: str) -> None:
    schedule, f = DEFINED[name]
    grown = Schedule([4, 12, 9], [1.0, 2.0, 8.0]).on("batch_size")

    def batch(t: int) -> float:
        return 1.0 if t < 4 else 2.0 if t < 16 else 8.0

    assert error(row, schedule.on("momentum"), lambda t: (1.0, f(t), 1.0)) < 1e-9
    assert error(row, schedule & grown, lambda t: (f(t), 1.0, batch(t))) < 1e-9
    assert error(row, schedule.on("momentum") & grown & constant(N, 0.5), lambda t: (0.5, f(t), batch(t))) < 1e-9


def test_a_planted_shift_by_one_step_shows() -> None:
    schedule, f = DEFINED["cosine"]
    assert error(SGD(0.5), schedule, lambda t: (f(t), 1.0, 1.0)) < 1e-9
    assert error(SGD(0.5), schedule, lambda t: (f(t + 1), 1.0, 1.0)) > 1e-3
    assert error(SGD(0.5), schedule, lambda t: (f(t), 1.0, 2.0)) > 1e-3


@defined
def test_multipliers(case: Case) -> None:
    schedule, f = case
    if isinstance(schedule, Schedule):
        expected = [f(t) for t in range(N + 9)]
        assert np.allclose(schedule.multipliers("lr", N + 9), expected, rtol=1e-15, atol=1e-16)
        assert [schedule.at(t)[0] for t in range(N + 9)] == schedule.multipliers("lr", N + 9).tolist()


pieces = st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=6)


def of(parts: list[tuple[int, float]]) -> Schedule:
    return Schedule([n for n, _ in parts], [m for _, m in parts])


@given(pieces, pieces, pieces)
def test_sums_and_products(a: list, b: list, c: list) -> None:
    first, second, third = of(a), of(b), of(c)
    both = first + second
    values = [m for n, m in a for _ in range(n)] + [m for n, m in b for _ in range(n)]
    assert both.steps == len(values)
    assert both.multipliers("lr", both.steps).tolist() == values
    assert ((first + second) + third).to_dict() == (first + (second + third)).to_dict()
    t = 50
    product = (first & second.on("momentum") & third.on("batch_size")).multipliers
    for name, part in (("lr", first), ("momentum", second), ("batch_size", third)):
        assert product(name, t).tolist() == part.multipliers("lr", t).tolist()  # type: ignore[arg-type]


@given(pieces)
def test_alike_neighbours_are_one_piece(parts: list) -> None:
    schedule = of(parts)
    assert np.all(schedule.lr[1:] != schedule.lr[:-1])
    for t in range(schedule.steps + 2):
        stays = schedule.same_until(t)
        ahead = schedule.multipliers("lr", 60, t)
        changes = np.flatnonzero(ahead != ahead[0])
        assert stays == (t + changes[0] if len(changes) else math.inf)


def test_a_long_schedule_is_powers() -> None:
    """10^9 steps in three pieces: the middle one alone has 10^8."""
    plan = Schedule([10**8, 10**8, 8 * 10**8], [1.0, 0.1, 0.01])
    problem = Quadratic(Spectrum([1.0, 1e-9]))
    run = problem.run(HeavyBall(0.1, 0.9), 4.0, 10**9, schedule=plan)
    assert run.floor == pytest.approx(problem.floor(HeavyBall(0.001, 0.9), 4.0), rel=1e-12)  # balanced at another rate
    # The fast mode has forgotten everything but the last piece; the slow one has not finished.
    by_mode = Quadratic(Spectrum([1.0])).run(HeavyBall(0.1, 0.9), 4.0, [10**9], schedule=plan).loss
    assert relative_error(by_mode, Quadratic(Spectrum([1.0])).floor(HeavyBall(0.001, 0.9), 4.0)) < 1e-9
    rate = sum(n * m for n, m in zip(plan.lengths, plan.lr, strict=True)) * 1e-9  # effective lr is 1
    assert run.signal[-1] == pytest.approx(0.5e-9 * math.exp(-2 * rate), rel=1e-7)  # the second-order term is 1e-8


def test_a_rate_of_zero_stands_still() -> None:
    problem = Quadratic(TWO)
    run = problem.run(SGD(0.5), 2.0, [10, 20, 500], schedule=Schedule([10, 10], [1.0, 0.0]))
    assert run.loss[0] == pytest.approx(run.loss[-1], rel=1e-12)
    assert run.outcome.name == "finished"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schedule([]), "pieces"),
        (lambda: Schedule([0, 3]), "pieces"),
        (lambda: Schedule([1.5]), "pieces"),
        (lambda: Schedule([-1]), "pieces"),
        (lambda: Schedule([math.nan]), "pieces"),
        (lambda: Schedule([math.inf]), "pieces"),
        (lambda: Schedule(["a"]), "pieces"),
        (lambda: Schedule([3, 3], [1.0, 2.0, 3.0]), "lr"),
        (lambda: Schedule([3, 3], [1.0, -2.0]), "lr"),
        (lambda: Schedule([3, 3], [1.0, math.nan]), "lr"),
        (lambda: Schedule([3], 1.0, 1.0, 0.0), "batch_size"),
        (lambda: constant(0), "constant"),
        (lambda: constant(math.nan), "constant"),  # type: ignore[arg-type]
        (lambda: cosine(2.5), "cosine"),  # type: ignore[arg-type]
        (lambda: cosine(10**9), "cosine"),
        (lambda: step(10, 0.5, []), "step"),
        (lambda: step(10, 0.5, [5, 5]), "step"),
        (lambda: step(10, 0.5, [10]), "step"),
        (lambda: step(10, -0.5, [5]), "lr"),
        (lambda: exponential(10, 0.0), "exponential"),
        (lambda: wsd(10, 6, 6), "wsd"),
        (lambda: constant(3).on("lr_rate"), "acts on"),  # type: ignore[arg-type]
    ],
)
def test_wrong_schedules_are_refused(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="schedule"):
        Quadratic(TWO).run(SGD(0.5), 2.0, 10, schedule=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most"):
        Quadratic(TWO).run(SGD(0.5), 2.0, 10**9, schedule=lambda t: 1.0)
    with pytest.raises(ValueError, match="lr"):
        Quadratic(TWO).run(SGD(0.5), 2.0, 10, schedule=lambda t: -1.0)


def test_the_ends_of_pieces_are_not_given() -> None:
    with pytest.raises(TypeError, match="ends"):
        Schedule([10], ends=[3])  # type: ignore[call-arg]
    assert Schedule([10, 5], [1.0, 0.5]).ends == [10, 15]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: Schedule([10**12, 1]), "lengths"),
        (lambda: Schedule([1, 2], lr=[1, 2, 3]), "lr"),
        (lambda: Schedule([1], momentum=-1), "momentum"),
        (lambda: Schedule([1], batch_size=0), "batch_size"),
        (lambda: constant(10**12 + 1), "steps"),
        (lambda: wsd(10, 6, 5), "steps"),
        (lambda: constant(5).on("depth"), "target"),  # type: ignore[arg-type]
    ],
)
def test_a_refusal_names_its_argument(call: Callable[[], object], argument: str) -> None:
    with pytest.raises(Wrong) as error:
        call()
    assert error.value.argument == argument
