"""Tuning: the reference table, brute force on small problems, bounds, budgets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    HeavyBall,
    Lookahead,
    Nesterov,
    Outcome,
    Polyak,
    Preconditioned,
    Quadratic,
    ScheduleFree,
    Spectrum,
    steps_to_target,
    sweep,
    tune,
)
from nqm.optimizers.base import parameters
from nqm.search.answer import Goal
from nqm.search.exact.tuning import land, tuner

BATCHES = [2**e for e in range(2, 21, 2)]
# Steps to 0.01 on the paper's instance, d = 10^4, found independently with a real-valued number of steps.
TABLE = {
    0.0: [1507455, 378178, 95937, 25776, 10353, 7831, 7146, 6886, 6773, 6720],
    0.25: [594950, 148795, 37257, 9376, 2427, 963, 792, 749, 734, 727],
    0.5: [347955, 86992, 21751, 5441, 1364, 345, 106, 85.6, 82.4, 81.7],
    0.75: [262255, 65564, 16391, 4098, 1025, 257, 64.5, 16.5, 10.5, 10.0],
}
HEAVY_BALL = {2**2: 1289546, 2**6: 80621, 2**8: 20163, 2**10: 5038, 2**12: 1266, 2**14: 343, 2**16: 181, 2**18: 157}


@pytest.fixture(scope="module")
def paper() -> Quadratic:
    return Quadratic(Spectrum.power_law(10_000))


@pytest.mark.parametrize("power", TABLE)
def test_sgd_matches_the_reference_table(paper: Quadratic, power: float) -> None:
    found = sweep(paper, Preconditioned(SGD(), power) if power else SGD(), BATCHES, target=0.01)
    for steps, reference in zip(found.steps, TABLE[power], strict=True):
        # 0.1% of the table, whose steps are real numbers: ours are whole and so up to one step later.
        assert 0.999 * reference - 0.06 <= steps <= 1.001 * reference + 1


def test_best_rates_of_sgd(paper: Quadratic) -> None:
    found = sweep(paper, SGD(), BATCHES, target=0.01)
    reference = [0.01358, 0.05409, 0.2126, 0.7759, 1.641, 1.867, 1.938, 1.97, 1.985, 1.993]
    np.testing.assert_allclose(found.lr, reference, rtol=5e-3)  # minima are flat: 0.1% in steps leaves some in lr


@pytest.mark.slow
def test_heavy_ball_is_never_above_the_reference(paper: Quadratic) -> None:
    found = sweep(paper, HeavyBall(), BATCHES, target=0.01)
    for batch_size, steps in zip(found.batch_sizes, found.steps, strict=True):
        if batch_size in HEAVY_BALL:
            assert steps <= 1.001 * HEAVY_BALL[int(batch_size)]
    assert np.all(np.diff(found.steps) <= 0)  # more examples per step never take more steps


# Best known steps by (log2 of the batch size, target): at each horizon 12,000 settings around the valley and 40 local searches.
# Ripples of the top modes cut it into dozens of basins, some a percent deep.
SHARP = {
    (16, 0.1): 88, (17, 0.01): 164, (19, 0.01): 153, (20, 0.01): 150, (24, 0.01): 146, (18, 0.001): 326, (20, 0.001): 231,
}  # fmt: skip


@pytest.mark.parametrize(("log2", "target"), SHARP)
def test_few_steps_are_found_to_one_step(paper: Quadratic, log2: int, target: float) -> None:
    found = tune(paper, HeavyBall(), 2.0**log2, target)
    assert found.steps is not None
    assert found.steps <= SHARP[log2, target] + 1
    assert steps_to_target(paper, found.optimizer, 2.0**log2, target).steps == found.steps


@pytest.mark.parametrize(("log2", "target"), SHARP)
def test_a_budget_of_steps_finds_the_same_basins(paper: Quadratic, log2: int, target: float) -> None:
    found = tune(paper, HeavyBall(), 2.0**log2, steps=SHARP[log2, target] + 1)
    assert found.loss <= target  # a single local search was up to 29% above


@pytest.mark.parametrize(("log2", "steps"), [(6, 80602), (10, 5040), (12, 1265), (14, 341)])
def test_a_budget_of_the_fewest_steps_is_enough(paper: Quadratic, log2: int, steps: int) -> None:
    assert tune(paper, HeavyBall(), 2.0**log2, steps=steps).loss <= 1.001 * 0.01


def test_a_neighbour_to_start_from_does_not_lead_astray(paper: Quadratic) -> None:
    search = tuner(paper, HeavyBall())
    near = search.solve(Goal.of(2.0**19, 0.001))
    steps = search.solve(Goal.of(2.0**20, 0.001), near).steps
    assert steps is not None
    assert steps <= SHARP[20, 0.001] + 1


@pytest.mark.parametrize("begin", [100, 101, 130, 500, 10**6])
def test_landing_finds_a_crossing_below(begin: int) -> None:
    step, loss = land(lambda t: 100.0 / t, 1.0, begin)
    assert (step, loss) == (100, 1.0)


@pytest.mark.parametrize("loss", [0.0, 5e-324, 1.0 - 1e-13])
def test_landing_leaves_a_loss_that_stays_just_below_the_target_quickly(loss: float) -> None:
    """Such as a loss that has become 0 without noise, or the noise floor of a setting."""
    seen = []

    def course(t: int) -> float:
        seen.append(t)
        return loss if t >= 1_656_538 else 2.0

    target = 1.0 if loss > 0.5 else 5e-324
    assert land(course, target, 10**9) == (1_656_538, loss)
    assert len(seen) < 200


@pytest.mark.parametrize("target", [1e-290, 1e-300, 1e-310])
@pytest.mark.parametrize("optimizer", [SGD(), HeavyBall()])
def test_a_target_at_the_end_of_the_numbers_is_tuned(optimizer: SGD | HeavyBall, target: float) -> None:
    """Without noise the least curvature decides: each step takes a constant factor off the loss, so steps go as the log."""
    problem = Quadratic(Spectrum.power_law(100))
    found, near = (tune(problem, optimizer, math.inf, target=t) for t in (target, 1e-150))
    assert found.steps is not None
    assert near.steps is not None
    assert problem.run(found.optimizer, math.inf, found.steps).loss[-1] <= target
    assert found.steps / near.steps == pytest.approx(math.log(target) / math.log(1e-150), rel=0.05)


def test_landing_stays_where_the_loss_is_above_the_target() -> None:
    assert land(lambda t: 100.0 / t, 1.0, 50) == (50, 2.0)


@pytest.mark.slow
def test_never_above_the_authors_grid_on_their_spectrum() -> None:
    binned = Quadratic(Spectrum.power_law(10_000).binned(100))
    for batch_size, steps in {1024: 5203, 4096: 1280, 16384: 349}.items():
        assert tune(binned, HeavyBall(), batch_size, 0.01).steps <= steps  # type: ignore[operator]
    for batch_size, steps in {1024: 10609, 4096: 8117}.items():
        assert tune(binned, SGD(), batch_size, 0.01).steps <= steps  # type: ignore[operator]


def brute_force(h: np.ndarray, batch_size: float, target: float, settings: list[tuple[float, float]]) -> int:
    """Fewest steps of heavy ball over settings, by plain stepping of every mode's 2x2 second moments."""
    lr, beta = (np.array(column)[:, None] for column in zip(*settings, strict=True))
    theta, m = np.ones((len(settings), len(h))), np.zeros((len(settings), len(h)))
    tt, tm, mm = np.zeros_like(theta), np.zeros_like(theta), np.zeros_like(theta)
    q = h / batch_size
    for t in range(1, 2000):
        m = beta * m + h * theta
        theta = theta - lr * m
        new_mm = beta**2 * mm + 2 * beta * h * tm + h**2 * tt + q
        new_tm = beta * tm + h * tt - lr * new_mm
        tt = tt - 2 * lr * (beta * tm + h * tt) + lr**2 * new_mm
        tm, mm = new_tm, new_mm
        if ((h / 2) * (theta**2 + tt)).sum(1).min() <= target:
            return t
    raise AssertionError("the grid never reaches the target")


@pytest.mark.parametrize("seed", range(6))
def test_tuned_beats_any_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    h = np.sort(rng.lognormal(sigma=1.5, size=8))
    h /= h.max()
    batch_size, target = float(2 ** rng.integers(4, 12)), float(rng.uniform(0.05, 0.3) * h.sum() / 2)
    grid = [(lr, beta) for lr in np.geomspace(1e-3, 3.9, 60) for beta in 1 - np.geomspace(1, 1e-2, 24)]
    least = brute_force(h, batch_size, target, grid)
    tuned = tune(Quadratic(Spectrum(h)), HeavyBall(), batch_size, target)
    assert tuned.steps is not None
    assert tuned.steps <= least
    # And the answer is real: plain stepping of the setting itself gets there at that step.
    known = parameters(tuned.optimizer)
    assert brute_force(h, batch_size, target, [(known["lr"].value, known["momentum"].value)]) == tuned.steps


def test_rates_beyond_the_edge_of_stability_are_found_where_they_are_best() -> None:
    # One stiff direction of little weight and many soft ones: for a few steps it pays to let the stiff one grow.
    problem = Quadratic(Spectrum([1.0, 0.01], c=0.0, s=[1e-6, 1.0], count=[1.0, 1e3]))
    tuned = tune(problem, SGD(), 16, steps=2)
    lr = np.geomspace(0.1, 1000, 20_001)
    h, s, n = np.array([1.0, 0.01]), np.array([1e-6, 1.0]), np.array([1.0, 1e3])
    grid = (n * h * s / 2 * (1 - lr[:, None] * h) ** 4).sum(1)
    assert tuned.loss <= grid.min() * (1 + 1e-6)
    assert parameters(tuned.optimizer)["lr"].value > 2.0


def test_momentum_at_its_bound_is_said() -> None:
    # Without noise and with one mode, SGD at lr = 1 / h is done in one step.
    tuned = tune(Quadratic(Spectrum([0.5])), HeavyBall(), math.inf, 1e-6)
    assert tuned.steps == 1
    noisy = tune(Quadratic(Spectrum.power_law(10_000)), EMA(HeavyBall(lr=0.5, momentum=0.5)), 2**20, steps=50)
    assert noisy.at_bound == ("decay",)
    assert "decay" in noisy.message


@pytest.mark.parametrize("optimizer", [SGD(), HeavyBall(), Nesterov(momentum=0.9), EMA(SGD())], ids=str)
def test_least_loss_for_a_budget_beats_its_neighbours(paper: Quadratic, optimizer: SGD) -> None:
    tuned = tune(paper, optimizer, 256, steps=3000)
    assert tuned.loss == pytest.approx(paper.run(tuned.optimizer, 256, [3000]).loss[0], rel=1e-12)
    for name in [p for p in parameters(optimizer) if repr(parameters(optimizer)[p].value) == "free"]:
        value = parameters(tuned.optimizer)[name].value
        for other in (value * 0.97, value * 1.03 if name == "lr" else 1 - (1 - value) * 0.97):
            from nqm.optimizers.base import fill

            assert paper.run(fill(tuned.optimizer, {name: other}), 256, [3000]).loss[0] >= tuned.loss * (1 - 1e-5)


def test_an_example_budget_is_a_step_budget(paper: Quadratic) -> None:
    assert tune(paper, SGD(), 64, examples=64_000).loss == tune(paper, SGD(), 64, steps=1000).loss


def test_horizon_and_first_hit_agree(paper: Quadratic) -> None:
    tuned = tune(paper, HeavyBall(), 1024, 0.01)
    hit = steps_to_target(paper, tuned.optimizer, 1024, 0.01)
    assert hit.steps == tuned.steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", [Polyak(SGD()), Lookahead(SGD()), ScheduleFree(momentum=0.9), EMA(HeavyBall())], ids=str
)
def test_every_kind_of_family_can_be_tuned(optimizer: SGD) -> None:
    problem = Quadratic(Spectrum.power_law(64))
    tuned = tune(problem, optimizer, 32, 0.1)
    assert tuned.outcome is Outcome.reached
    assert tuned.steps is not None
    plain = tune(problem, SGD(), 32, 0.1).steps
    assert plain is not None
    assert tuned.steps <= plain  # each of them contains SGD, or averages it to advantage here
    assert tuned.loss <= 0.1


def test_what_cannot_be_reached_is_said() -> None:
    problem = Quadratic(Spectrum.power_law(100))
    tuned = tune(problem, SGD(), 1, 1e-6, max_steps=100)
    assert tuned.steps is None
    assert tuned.outcome is Outcome.out_of_steps
    assert "100 steps" in tuned.message


@pytest.mark.parametrize(("allowed", "steps"), [(340, None), (341, 341), (400, 341)])
def test_steps_allowed_need_not_be_a_power_of_two(paper: Quadratic, allowed: int, steps: int | None) -> None:
    found = tune(paper, HeavyBall(), 2.0**14, 0.01, max_steps=allowed)
    assert found.steps == steps
    assert found.outcome is (Outcome.out_of_steps if steps is None else Outcome.reached)
    if steps is None:
        assert found.loss == pytest.approx(0.01, rel=0.05)  # that of the steps allowed, not of the power of two below


@pytest.mark.parametrize(
    ("keywords", "word"),
    [
        ({}, "exactly one"),
        ({"target": 0.1, "steps": 3}, "exactly one"),
        ({"target": -1.0}, "target"),
        ({"target": math.nan}, "target"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"examples": 2}, "examples"),
        ({"target": 0.1, "max_steps": 0}, "max_steps"),
    ],
)
def test_wrong_goals_are_refused_by_name(paper: Quadratic, keywords: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        tune(paper, SGD(), 4, **keywords)  # type: ignore[arg-type]


# Of few modes: spectrum, batch size, part of the initial loss, best known steps. Searches that stay at momentum 0 once they have
# touched it need a third more.
FEW = [
    (Spectrum.power_law(3, 0.38939640173370055, start_exponent=0.08589654498594435), 16, 4.6702547515867514e-4, 257),
    (Spectrum.power_law(6, 0.30842932903407655, start_exponent=-0.06128344481566278), 4, 7.116038931308813e-4, 702),
    (Spectrum.power_law(1, 1.7162231753613422, start_exponent=-0.19654748991426219), 64, 4.633800184502269e-4, 37),
    (Spectrum.power_law(3, 0.4), 16, 5e-4, 233),
]


@pytest.mark.parametrize(("spectrum", "batch_size", "part", "steps"), FEW)
def test_basins_of_an_average_on_few_modes(spectrum: Spectrum, batch_size: int, part: float, steps: int) -> None:
    found = tune(Quadratic(spectrum), EMA(HeavyBall()), batch_size, part * spectrum.initial_loss)
    assert found.steps is not None
    assert found.steps <= 1.001 * steps + 1


@pytest.mark.slow
@pytest.mark.parametrize(("log2", "target", "steps"), [(14, 0.01, 153), (10, 0.01, 544), (8, 0.1, 214)])
def test_an_average_over_a_part_of_the_run(paper: Quadratic, log2: int, target: float, steps: int) -> None:
    found = tune(paper, Polyak(HeavyBall()), 2.0**log2, target)  # at 2^10 the search once went round in circles
    assert found.steps is not None
    assert found.steps <= steps
    assert steps_to_target(paper, found.optimizer.at_horizon(found.steps), 2.0**log2, target).steps == found.steps
