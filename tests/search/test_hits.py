"""First hits and last times above, against a look at every single step; the counter-examples that defeat bisection."""

from __future__ import annotations

import math

import numpy as np
import pytest
from catalogue import ROWS
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import loop, losses

from nqm import (
    EMA,
    SGD,
    HeavyBall,
    Lookahead,
    Nesterov,
    Optimizer,
    Outcome,
    Polyak,
    Quadratic,
    Schedule,
    ScheduleFree,
    Spectrum,
    cosine,
    optimal_schedule,
    phase_map,
    steps_to_target,
    sweep,
    tune,
)
from nqm.search import Axis
from nqm.types import Wrong

PAPER = Quadratic(Spectrum.power_law(10_000))
SMALL = Quadratic(Spectrum.power_law(300))
RINGING = Quadratic(Spectrum([1.0], [0.0])), HeavyBall(0.05, 0.99), math.inf, 1e-3 / 2  # loss is half E theta^2 here


def every_loss(
    problem: Quadratic, row: Optimizer, batch_size: float, steps: int, schedule: object = None
) -> np.ndarray:
    return problem.run(row, batch_size, list(range(steps + 1)), schedule=schedule).loss  # type: ignore[arg-type]


def brute(loss: np.ndarray, target: float, until: str) -> int | None:
    """The answer, from the loss at every step."""
    above = ~(loss <= target)
    if until == "first":
        return None if above.all() else int(np.argmin(above))
    last = int(np.flatnonzero(above)[-1]) if above.any() else -1
    return None if last == len(loss) - 1 else last + 1


def bisected(loss: np.ndarray, target: float) -> int:
    """What bisection between 0 and the last step says: the planted bug."""
    low, high = 0, len(loss) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if loss[middle] <= target else (middle, high)
    return high


def test_a_ringing_mode() -> None:
    """One mode, momentum .99, x = .05, target 1e-3: it crosses at 174 and again and again until 615."""
    problem, row, batch_size, target = RINGING
    by_hand = losses(problem.spectrum, loop(row, [1.0], list(range(2001))))[0]
    found = []
    for goal in (target, 2 * target):  # of the loss h E[theta^2] / 2, and of E[theta^2] itself
        first = steps_to_target(problem, row, batch_size, goal)
        settled = steps_to_target(problem, row, batch_size, goal, until="settled")
        assert (first.steps, settled.steps) == (brute(by_hand, goal, "first"), brute(by_hand, goal, "settled"))
        found.append((first.steps, settled.steps, bisected(by_hand[:1001], goal)))
    first, settled, wrong = next(f for f in found if f[0] == 174)
    assert (first, settled) == (174, 616)
    assert wrong not in (first, settled)  # bisection finds some other crossing, so this test can fail
    above = ~(by_hand <= (target if found[0][0] == 174 else 2 * target))
    assert np.sum(above[1:] & ~above[:-1]) == 32  # upward crossings


def test_a_loss_that_dips_and_rises() -> None:
    """SGD at lr 1.99, B 16, on the paper's spectrum: below 4.2 at steps 2 .. 10, then above 6.5 for good."""
    row, target = SGD(1.99), 4.2
    loss = every_loss(PAPER, row, 16, 3000)
    hit = steps_to_target(PAPER, row, 16, target)
    assert np.flatnonzero(loss <= target).tolist() == list(range(2, 11))
    assert hit.steps == 2
    assert hit.loss == pytest.approx(loss[2], rel=1e-12)
    assert loss[100:].min() > PAPER.floor(row, 16) > 6.5
    never = steps_to_target(PAPER, row, 16, target, until="settled")
    assert never.steps is None
    assert never.outcome is Outcome.above_floor
    assert bisected(loss, target) == 3000  # bisection says never


def random_problem(rng: np.random.Generator) -> Quadratic:
    n = int(rng.integers(1, 6))
    return Quadratic(Spectrum(10 ** rng.uniform(-3, 0, n), c=rng.random(n), s=rng.random(n) + 0.01))


def random_target(rng: np.random.Generator, loss: np.ndarray) -> float:
    """Somewhere between the smallest and the first loss, not within rounding of any."""
    finite = loss[np.isfinite(loss)]
    low, high = max(finite.min(), 1e-12) * 0.9, loss[0]
    while True:
        target = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        if np.abs(finite / target - 1).min() > 1e-9:
            return target


PLANS = [None, Schedule([3, 40, 9, 25], [1.0, 0.4, 0.8, 0.1], batch_size=[1, 1, 4, 16]), cosine(60, 0.05)]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("until", ["first", "settled"])
def test_every_row_against_every_step(name: str, until: str) -> None:
    rng = np.random.default_rng([len(name), *name.encode(), len(until)])
    row = ROWS[name]
    fraction = row.depends_on_horizon
    for case in range(3):
        problem, batch_size = random_problem(rng), float(2 ** rng.integers(0, 12))
        plan, steps = PLANS[case % 3], int(rng.integers(70, 300 if not fraction else 90))
        if fraction and until == "settled":  # every step ends another run, so none is the last
            with pytest.raises(ValueError, match="until"):
                steps_to_target(problem, row, batch_size, 0.1, plan, until="settled")
            continue
        loss = every_loss(problem, row, batch_size, steps, plan)
        target = random_target(rng, loss)
        hit = steps_to_target(problem, row, batch_size, target, plan, max_steps=steps, until=until)  # type: ignore[arg-type]
        assert hit.steps == brute(loss, target, until), f"case {case}: {row}, B = {batch_size}, target {target}"


restless = st.sampled_from(["heavy_ball", "nesterov", "ema", "lookahead", "polyak"])


@pytest.mark.slow
@settings(max_examples=40)
@given(restless, st.integers(0, 2**32 - 1), st.sampled_from(["first", "settled"]))
def test_ringing_rows_against_every_step(kind: str, seed: int, until: str) -> None:
    """Little damping, so that the loss crosses the target many times."""
    rng = np.random.default_rng(seed)
    ball = HeavyBall(float(10 ** rng.uniform(-2, 0.4)), float(1 - 10 ** rng.uniform(-3, -0.5)))
    row: Optimizer = {
        "heavy_ball": ball,
        "nesterov": Nesterov(ball.lr / 4, ball.momentum),
        "ema": EMA(ball, float(rng.random())),
        "lookahead": Lookahead(
            HeavyBall(ball.lr / 5, ball.momentum), float(rng.uniform(0.1, 1)), int(rng.integers(1, 9))
        ),
        "polyak": Polyak(ball, int(rng.integers(0, 50))),
    }[kind]
    problem, batch_size, steps = random_problem(rng), float(10 ** rng.uniform(0, 5)), int(rng.integers(20, 1500))
    loss = every_loss(problem, row, batch_size, steps)
    target = random_target(rng, loss)
    hit = steps_to_target(problem, row, batch_size, target, max_steps=steps, until=until)  # type: ignore[arg-type]
    assert hit.steps == brute(loss, target, until), f"{row}, B = {batch_size}, target {target}, {steps} steps"
    if hit.steps is not None:
        assert hit.loss == pytest.approx(loss[hit.steps], rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if not row.depends_on_horizon])
def test_settled_just_before_the_limit(name: str) -> None:
    problem = Quadratic(Spectrum([0.9, 0.1], [0.0, 0.0]))
    loss = every_loss(problem, ROWS[name], 4, 90)
    target = min(float(loss[60:].max()), 0.999 * float(loss[0])) * 1.000001
    settled = brute(loss, target, "settled")
    assert settled is not None
    for limit in range(settled - 2, settled + 9):
        hit = steps_to_target(problem, ROWS[name], 4, target, max_steps=limit, until="settled")
        assert hit.steps == brute(loss[: limit + 1], target, "settled")


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5])
def test_a_limit_is_a_limit(name: str, limit: int) -> None:
    problem = Quadratic(Spectrum([0.9, 0.1], [0.0, 0.0]))
    loss = every_loss(problem, ROWS[name], 4, limit)
    for target in (min(loss[-1] * 1.0001, loss[0] * 0.9999), loss.min() * 0.9999):
        hit = steps_to_target(problem, ROWS[name], 4, target, max_steps=limit)
        assert hit.steps == brute(loss, target, "first")


@pytest.mark.parametrize(
    ("row", "h"),
    [
        (SGD(0.5), 1e-8),
        (HeavyBall(0.05, 0.9), 1e-8),
        (EMA(SGD(0.5), 0.999), 1e-8),
        (Lookahead(SGD(1.0), 0.5, 5), 1e-8),
        (HeavyBall(1e-4, 0.999), 1e-7),
    ],
    ids=str,
)
def test_a_thousand_million_steps(row: Optimizer, h: float) -> None:
    """Hits past 10^8 steps: the answer is put back, below at it and above one step (or one cycle) before."""
    problem = Quadratic(Spectrum([1.0, h], c=[0.0, 0.0]))
    target = problem.run(row, math.inf, [4 * 10**8]).loss[0]
    hit = steps_to_target(problem, row, math.inf, target * (1 + 1e-12))
    assert hit.steps is not None
    # The loss falls by about 1e-8 of itself at each step and is known to 1e-9, or to 1e-8 for Lookahead.
    assert abs(hit.steps - 4 * 10**8) <= 1 + 2 * row.cycle
    before = problem.run(row, math.inf, [hit.steps - row.cycle, hit.steps]).loss
    assert before[1] <= target * (1 + 1e-11)
    assert before[0] > target * (1 - 1e-11)


def test_a_mode_that_changes_sign_at_every_step() -> None:
    """x = 2 - 1e-4 beside a slow mode: the change of a step says little, the block bounds are weak, the answer stands."""
    problem, row = Quadratic(Spectrum([1.0, 3e-5], c=[0.0, 0.0], s=[1.0, 1e4])), SGD(2 - 1e-4)
    t = np.arange(20_001)
    closed = 0.5 * (1 - 1e-4) ** (2 * t) + 0.15 * (1 - 3e-5 * (2 - 1e-4)) ** (2 * t)
    target = float(closed[15_000] + closed[15_001]) / 2
    assert steps_to_target(problem, row, 1, target).steps == brute(closed, target, "first") == 15_001


@pytest.mark.parametrize("target", [5.0, PAPER.initial_loss], ids=["above", "at"])
@pytest.mark.parametrize("verb", ["steps", "tune", "sweep", "schedule", "map"])
def test_a_target_that_is_not_below_the_initial_loss_is_refused(verb: str, target: float) -> None:
    asked = {
        "steps": lambda: steps_to_target(PAPER, SGD(0.1), 4, target),
        "tune": lambda: tune(PAPER, SGD(), 4, target),
        "sweep": lambda: sweep(PAPER, SGD(), [4], target),
        "schedule": lambda: optimal_schedule(PAPER, SGD(), 4, target, pieces=2),
        "map": lambda: phase_map(PAPER, SGD(), Axis("lr", 0.1, 1, 2), Axis("batch_size", 4, 8, 2), target=target),
    }[verb]
    with pytest.raises(
        Wrong, match=r"^target .* is not below the initial loss, 4.8938, .*; give a lower target$"
    ) as error:
        asked()
    assert error.value.argument == "target"


def test_a_target_just_below_the_initial_loss_is_reached() -> None:
    assert steps_to_target(PAPER, SGD(0.1), 4, math.nextafter(PAPER.initial_loss, 0)).steps == 1


def test_above_the_floor() -> None:
    for row in (SGD(0.5), HeavyBall(0.1, 0.9), Lookahead(SGD(0.5), 0.5, 5), EMA(Lookahead(SGD(0.5), 0.5, 5), 0.5)):
        for until in ("first", "settled"):
            hit = steps_to_target(SMALL, row, 2, 1e-3, until=until)  # type: ignore[arg-type]
            assert (hit.steps, hit.outcome) == (None, Outcome.above_floor)
            assert hit.loss == SMALL.floor(row, 2)
            assert "0.001" in hit.message
            assert f"{hit.loss:.4g}" in hit.message


def test_diverged() -> None:
    for row in (SGD(2.1), HeavyBall(3.9, 0.9), EMA(Nesterov(1.4, 0.9), 0.9), Lookahead(SGD(3.0), 0.9, 4)):
        hit = steps_to_target(PAPER, row, 64, 1e-3)
        assert (hit.steps, hit.outcome) == (None, Outcome.diverged)
        assert "diverges" in hit.message
        assert "lower the learning rate" in hit.message


def test_out_of_steps() -> None:
    for row in (
        SGD(0.5),
        ScheduleFree(0.5, 0.9),
        Polyak(SGD(0.5), 0.5),
        Lookahead(SGD(0.5), 0.5, 5),
        EMA(Polyak(SGD(0.5), 3), 0.9),
    ):
        hit = steps_to_target(SMALL, row, 2**20, 0.01, max_steps=200)
        assert (hit.steps, hit.outcome) == (None, Outcome.out_of_steps)
        assert hit.loss == pytest.approx(every_loss(SMALL, row, 2**20, 200)[-1], rel=1e-9)
        assert "200 steps" in hit.message
        assert f"{hit.loss:.4g}" in hit.message


def test_below_the_floor_on_the_way() -> None:
    """The target lies under the floor, and the loss still dips below it before the noise has grown."""
    problem, row = Quadratic(Spectrum([1.0, 1e-3], c=[1e-6, 500.0], s=[1.0, 1e-6])), SGD(0.5)
    loss = every_loss(problem, row, 1, 200)
    target = 1.001 * loss.min()
    assert problem.floor(row, 1) > 2 * target
    assert steps_to_target(problem, row, 1, target).steps == brute(loss, target, "first")


def test_a_function_as_schedule() -> None:
    row, plan = SGD(0.9), lambda t: 1 / (1 + t / 50)
    loss = every_loss(SMALL, row, 16, 3000, plan)
    target = float(loss[2500])
    assert steps_to_target(SMALL, row, 16, target * (1 + 1e-12), schedule=plan, max_steps=3000).steps == 2500


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"target": 0.0}, "target"),
        ({"target": math.nan}, "target"),
        ({"target": math.inf}, "target"),
        ({"target": "low"}, "target"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": math.nan}, "batch_size"),
        ({"batch_size": -4}, "batch_size"),
        ({"max_steps": -1}, "max_steps"),
        ({"max_steps": 1.5}, "max_steps"),
        ({"max_steps": math.nan}, "max_steps"),
        ({"max_steps": math.inf}, "max_steps"),
        ({"max_steps": 10**10}, "max_steps"),
        ({"until": "always"}, "until"),
    ],
)
def test_wrong_calls_are_refused_by_name(arguments: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        steps_to_target(**{"problem": PAPER, "optimizer": SGD(0.1), "batch_size": 4, "target": 0.1, **arguments})


def test_a_state_beyond_floating_point_has_diverged() -> None:
    """The eigenvalues of its noise covariance do not converge; that is a divergence and no error."""
    problem = Quadratic(Spectrum.power_law(20, scale=1e150))
    hit = steps_to_target(problem, Lookahead(HeavyBall(0.1, 0.9), 0.5, 5), 1, 1.0)
    assert (hit.steps, hit.outcome) == (None, Outcome.diverged)


@pytest.mark.parametrize("target", [1e-50, 1e-100, 1e-200])
def test_a_target_far_below_rounding_is_not_passed_over(target: float) -> None:
    problem, optimizer = Quadratic(Spectrum.power_law(100)), SGD(1.5)
    found = steps_to_target(problem, optimizer, math.inf, target)
    assert found.steps is not None
    before, after = problem.run(optimizer, math.inf, [found.steps - 1, found.steps]).loss
    assert after <= target < before  # a block whose loss falls by 1e-32 was excluded: 683 steps late at 1e-100
