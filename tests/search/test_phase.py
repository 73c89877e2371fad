"""Maps: every cell is the first hit of its setting, the boundary is the stability limit, outcomes say why not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import (  # fmt: skip
    EMA,
    SGD,
    Axis,
    DriftingPreconditioned,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Nesterov,
    Outcome,
    Polyak,
    Preconditioned,
    Quadratic,
    Spectrum,
    Wrong,
    phase_map,
    steps_to_target,
)
from nqm.optimizers.base import fill, parameters
from nqm.text.objects import parse_axis

PROBLEM = Quadratic(Spectrum.power_law(200))
TARGET = 0.05
CASES = {
    "heavy_ball": (HeavyBall(), Axis("lr", 1e-2, 8, 6), Axis("momentum", 0, 0.9, 4), 256.0),
    "batch_size": (SGD(), Axis("lr", 1e-2, 4, 6), Axis("batch_size", 1, 4096, 5), None),
    "batch_size_first": (Nesterov(momentum=0.5), Axis("batch_size", 1, 4096, 4), Axis("lr", 1e-2, 4, 6), None),
    "average": (EMA(SGD()), Axis("lr", 1e-2, 4, 5), Axis("decay", 0, 0.999, 5), 16.0),
    "cycle": (Lookahead(HeavyBall(momentum=0.9), period=5), Axis("lr", 1e-2, 4, 4), Axis("alpha", 0.2, 1, 3), 64.0),
    "structure": (Lookahead(SGD(0.5)), Axis("period", 1, 9, 4), Axis("alpha", 0.2, 1, 3), 64.0),
    "power": (Preconditioned(SGD()), Axis("lr", 1e-2, 4, 5), Axis("power", 0, 0.9, 4), 1024.0),
    "no_noise": (HeavyBall(), Axis("lr", 1e-2, 4, 5), Axis("momentum", 0, 0.9, 3), math.inf),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_cell_is_the_first_hit_of_its_setting(case: str) -> None:
    optimizer, x, y, batch_size = CASES[case]
    found = phase_map(PROBLEM, optimizer, x, y, batch_size, target=TARGET)
    # The same nodes, each setting by itself, by blocks that are excluded or split: another way to the same steps.
    nodes = PROBLEM.nodes.smooth if case == "batch_size" or case == "power" else PROBLEM.nodes.coarse
    outcomes = set()
    for j, y_value in enumerate(found.y.values.tolist()):
        for i, x_value in enumerate(found.x.values.tolist()):
            given = {x.name: x_value, y.name: y_value}
            size = given.pop("batch_size", batch_size)
            whole = {k: int(v) if parameters(optimizer)[k].kind.integer else v for k, v in given.items()}
            hit = steps_to_target(nodes, fill(optimizer, whole), size, TARGET)
            here = found.steps[j, i]
            assert (None if math.isnan(here) else here) == hit.steps, given
            assert found.outcomes[j][i] is hit.outcome
            outcomes.add(hit.outcome)
    assert Outcome.reached in outcomes


def test_cells_that_swing_are_hit_no_earlier_than_is_true_and_no_later_than_they_stay() -> None:
    """Hardly damped: looks between swings may miss a dip, and say a later one."""
    problem = Quadratic(Spectrum([1.0, 0.3]))
    found = phase_map(
        problem, HeavyBall(), Axis("lr", 1e-3, 1, 6), Axis("momentum", 0.9, 0.999, 4), math.inf, target=0.01
    )
    for j, momentum in enumerate(found.y.values.tolist()):
        for i, lr in enumerate(found.x.values.tolist()):
            optimizer = HeavyBall(lr, momentum)
            first = steps_to_target(problem, optimizer, math.inf, 0.01).steps
            settled = steps_to_target(problem, optimizer, math.inf, 0.01, until="settled").steps
            assert first is not None
            assert settled is not None
            assert first <= found.steps[j, i] <= settled
            assert problem.loss(optimizer, int(found.steps[j, i]), math.inf) <= 0.01


@pytest.mark.parametrize("turned", [False, True], ids=["lr_across", "lr_up"])
def test_the_boundary_is_the_stability_limit(turned: bool) -> None:
    lr, momentum = Axis("lr", 1e-2, 8, 6), Axis("momentum", 0, 0.9, 4)
    found = phase_map(PROBLEM, HeavyBall(), *((momentum, lr) if turned else (lr, momentum)), 256, target=TARGET)
    points = found.boundary[:, ::-1] if turned else found.boundary
    assert len(points) == 4
    for limit, value in points.tolist():
        assert limit == pytest.approx(2 * (1 + value), rel=1e-9)  # largest curvature 1
        assert limit == pytest.approx(PROBLEM.stability_limit(HeavyBall(momentum=value)), rel=1e-9)


def test_a_boundary_outside_the_map_is_not_drawn() -> None:
    assert (
        len(
            phase_map(
                PROBLEM, HeavyBall(), Axis("lr", 1e-3, 1, 3), Axis("momentum", 0, 0.9, 2), 64, target=TARGET
            ).boundary
        )
        == 0
    )
    assert (
        len(
            phase_map(
                PROBLEM, EMA(SGD(0.1)), Axis("batch_size", 1, 9, 3), Axis("decay", 0, 0.9, 2), target=TARGET
            ).boundary
        )
        == 0
    )


def test_best_and_table() -> None:
    found = phase_map(PROBLEM, SGD(), Axis("lr", 1e-2, 4, 6), Axis("batch_size", 1, 4096, 5), target=TARGET)
    best = found.best()
    assert best is not None
    assert best["steps"] == np.nanmin(found.steps)
    rows = found.table()
    assert len(rows) == 30
    assert min(row["steps"] for row in rows if row["outcome"] == "reached") == best["steps"]
    assert {row["outcome"] for row in rows} == {o.name for line in found.outcomes for o in line}
    never = phase_map(PROBLEM, SGD(), Axis("lr", 1, 1.9, 2), Axis("batch_size", 1, 2, 2), target=1e-6)
    assert never.best() is None
    assert {o for line in never.outcomes for o in line} == {Outcome.above_floor}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": Axis("batch_size", 1, 9)}, "not both"),
        ({"batch_size": None}, "needs batch_size="),
        ({"x": Axis("momentum", 0, 0.9)}, "must differ"),
        ({"x": Axis("decay", 0, 0.9)}, "no parameter 'decay'"),
        ({"x": Axis("lr", 0, 1)}, "lr must be positive"),
        ({"y": Axis("momentum", 0, 1)}, "in \\[0, 1\\)"),
        ({"optimizer": EMA(HeavyBall())}, "needs decay"),
        ({"optimizer": Polyak(HeavyBall(), 0.5)}, "alike or repeat"),
        ({"optimizer": DriftingPreconditioned(SGD(), drift=0.5), "y": Axis("power", 0.1, 0.9)}, "alike or repeat"),
        ({"problem": LeastSquares(Spectrum([1.0]))}, "Quadratic"),
        ({"target": 0}, "target must be"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused(change: dict, words: str) -> None:
    call = {
        "problem": PROBLEM, "optimizer": HeavyBall(), "x": Axis("lr", 0.1, 1), "y": Axis("momentum", 0, 0.9), "target": 0.1,
        "batch_size": 64,
    }  # fmt: skip
    with pytest.raises(Wrong, match=words) as caught:
        phase_map(**{**call, **change})
    if {*change} <= {"x", "y"} and words not in ("not both", "must differ"):
        assert [caught.value.argument] == [*change]


@pytest.mark.parametrize(
    ("low", "high", "n"), [(1, 1, 3), (2, 1, 3), (-1, 1, 3), (0, math.inf, 3), (0, 1, 1), (0, 1, 1.5)]
)
def test_a_wrong_axis_is_refused(low: float, high: float, n: int) -> None:
    with pytest.raises(ValueError, match="an axis"):
        Axis("lr", low, high, n)


def test_an_axis_in_text() -> None:
    axis = Axis("momentum", 0, 0.99, 7)
    assert parse_axis(str(axis)) == axis
    assert parse_axis(" lr = 2^-10 .. 4") == Axis("lr", 2**-10, 4, 32)
    for wrong in ("lr", "lr=1", "=1..2", "lr=1..2..3..4", "lr=a..b", "lr=1..2..2.5", None):
        with pytest.raises(ValueError):
            parse_axis(wrong)  # type: ignore[arg-type]


def test_settings_that_only_a_later_step_of_a_cycle_shows_are_tuned() -> None:
    """The first steps of Lookahead do not know alpha; a family with nothing else free has its shape from there too."""
    from nqm import tune

    found = tune(PROBLEM, Lookahead(SGD(0.5), period=5), 64, TARGET)
    assert found.outcome is Outcome.reached
    assert found.steps == steps_to_target(PROBLEM, found.optimizer, 64, TARGET).steps


def test_a_structural_axis_beside_the_batch_size() -> None:
    """No setting is an array within a pass; every cell still has its own batch size."""
    row, x, y = Lookahead(SGD(0.5), alpha=0.5), Axis("period", 1, 4, 2), Axis("batch_size", 16, 4096, 3)
    found = phase_map(PROBLEM, row, x, y, target=TARGET)
    for i, B in enumerate(found.y.values):
        for j, period in enumerate(found.x.values):
            hit = steps_to_target(PROBLEM, Lookahead(SGD(0.5), 0.5, int(period)), float(B), TARGET)
            cycles = None if hit.steps is None else -(-hit.steps // int(period)) * int(period)
            assert (None if np.isnan(found.steps[i, j]) else found.steps[i, j]) == cycles
