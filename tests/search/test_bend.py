"""Critical batch sizes do not depend on the batch sizes of a sweep, and are those of a dense one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    Adam,
    HeavyBall,
    LeastSquares,
    Nesterov,
    Optimizer,
    Preconditioned,
    Problem,
    Quadratic,
    Spectrum,
    Sweep,
    sweep,
    tune,
)
from nqm.search.bend import suffices_from
from nqm.search.sweeps import MOST_ADDED
from nqm.types import Wrong

PAPER = Quadratic(Spectrum.power_law(10_000))
SMALL = Spectrum.power_law(300)
GRIDS = {
    "factor 16": [4 * 16**k for k in range(5)],
    "factor 4": [4**k for k in range(1, 11)],
    "factor 1.41": [2 ** (k / 2) for k in range(4, 41)],
    "shifted": [3 * 4**k for k in range(10)],
    "odd": [3, 17, 130, 2500, 70_000],
    "beyond the bend": [2**14, 2**16, 2**18],
    "before the bend": [1, 8],
}
WITHIN = 0.01  # what a sweep promises


def dense(problem: Problem, optimizer: Optimizer, target: float, low: float, high: float) -> dict[str, float]:
    """Critical batch sizes by brute force: tuned steps at batch sizes 2% apart, and where examples are first higher.

    Of each tooth the first batch size counts, as in `suffices_from`, but here it is known to 2% and to nothing better.
    """
    sizes = np.exp(np.arange(math.log(low), math.log(high), 0.02))
    small = tune(problem, optimizer, low / 1000, target).examples
    steps = np.array([tune(problem, optimizer, B, target).steps for B in sizes.tolist()], dtype=float)
    first = np.append(True, np.diff(steps) != 0)
    at, examples = np.log(sizes[first]), np.log(sizes[first] * steps[first] / small)
    return {name: math.exp(np.interp(math.log(f), examples, at)) for name, f in (("20%", 1.2), ("2x", 2.0))}


@pytest.mark.parametrize(
    ("optimizer", "known"),
    [
        (SGD(), {"2x": 1239, "20%": 434, "ratio": 903}),
        (HeavyBall(), {"2x": 55_860, "20%": 24_280, "ratio": 35_090}),
        (EMA(SGD()), {"2x": 194, "20%": 88.3, "ratio": 130.3}),
        (Preconditioned(SGD(), 0.5), {"2x": 30_355, "20%": 15_235, "ratio": 16_970}),
    ],
    ids=str,
)
@pytest.mark.parametrize("grid", GRIDS)
def test_critical_batch_sizes_are_the_same_on_every_grid(
    optimizer: Optimizer, known: dict[str, float], grid: str
) -> None:
    found = sweep(PAPER, optimizer, GRIDS[grid], 0.01)
    assert len(found.added) <= MOST_ADDED
    assert not set(found.remarks()) - {"knee"}
    for definition, value in known.items():
        assert found.critical_batch_size(definition) == pytest.approx(value, rel=WITHIN), definition  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "optimizer", "target", "ends"),
    [
        (Quadratic(SMALL), SGD(), 0.1, (5, 400)),
        (Quadratic(SMALL), HeavyBall(), 0.1, (50, 4000)),
        (LeastSquares(SMALL), SGD(), 0.1, (5, 400)),
    ],
    ids=["sgd", "heavy_ball", "least_squares"],
)
def test_critical_batch_sizes_are_those_of_a_dense_sweep(
    problem: Problem, optimizer: Optimizer, target: float, ends: tuple[float, float]
) -> None:
    found, reference = sweep(problem, optimizer, [8, 128, 2048], target), dense(problem, optimizer, target, *ends)
    for definition, value in reference.items():
        assert found.critical_batch_size(definition) == pytest.approx(value, rel=0.03), definition  # type: ignore[arg-type]


def test_examples_that_fall_before_they_rise() -> None:
    # Nesterov's fewest examples are at batch size 8,460, and a third more at 1,024.
    for grid in ([4**k for k in range(1, 11)], [2 ** (k / 2) for k in range(4, 41)]):
        found = sweep(PAPER, Nesterov(), grid, 0.01)
        assert found.critical_batch_size() == pytest.approx(22_490, rel=WITHIN)
        assert found.bend.fewest == pytest.approx(2.79e6, rel=5e-3)


def test_a_mean_field_has_the_same_critical_batch_size_on_two_grids() -> None:
    coarse, fine = (
        sweep(Quadratic(SMALL), Adam(), grid, 0.1).critical_batch_size()
        for grid in ([16, 256, 4096], [2**k for k in range(2, 13)])
    )
    assert coarse == pytest.approx(fine, rel=0.02)


def test_the_first_batch_size_of_a_tooth() -> None:
    problem, optimizer = Quadratic(SMALL), HeavyBall()
    found = tune(problem, optimizer, 4000, 0.1)
    assert found.steps is not None
    first = suffices_from(problem, found.optimizer, found.steps, 4000, 0.1)
    assert problem.loss(found.optimizer, found.steps, first) == pytest.approx(0.1, rel=1e-9)
    assert tune(problem, optimizer, 1.001 * first, 0.1).steps == found.steps
    assert tune(problem, optimizer, 0.98 * first, 0.1).steps == found.steps + 1


def test_without_noise_nothing_scales() -> None:
    found = sweep(Quadratic(Spectrum([1.0, 0.1], c=[0.0, 0.0])), SGD(), [4, 64, 1024], 0.01)
    assert math.isnan(found.critical_batch_size("2x"))
    assert math.isnan(found.critical_batch_size("ratio"))
    assert "larger batches save less than a fifth of the steps" in found.remarks()["2x"]


def test_a_limit_of_steps_holds_for_added_points_too() -> None:
    found = sweep(PAPER, SGD(), [1024, 4096, 16_384], 0.01, max_steps=12_000)
    assert all(row["steps"] is None or row["steps"] <= 12_000 for row in found.table())
    assert found.remarks()["20%"].startswith(("rough", "not known"))


def test_what_was_added_is_marked_everywhere() -> None:
    asked = [64, 1024, 16_384]
    found = sweep(PAPER, SGD(), asked, 0.01)
    assert found.batch_sizes.tolist() == asked
    assert len(found.steps) == len(found.optimizers) == len(asked)
    added = [point.batch_size for point in found.added]
    assert added
    assert not set(added) & set(asked)
    assert [row["batch_size"] for row in found.table() if row["added"]] == added
    assert [row["batch_size"] for row in found.table() if not row["added"]] == asked
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["batch_sizes"] == asked
    assert [row["batch_size"] for row in data["added"]] == added
    assert found.to_csv().count(",True\r\n") + found.to_csv().count(",True\n") >= len(added)
    hollow = [line for line in found.plot().axes[0].lines if line.get_markerfacecolor() == "white"]
    drawn = {float(x) for line in hollow for x in np.ravel(line.get_xdata())}
    assert drawn == {B for B in added if asked[0] <= B <= asked[-1]}


def test_none_are_added_where_none_are_wanted() -> None:
    found = sweep(PAPER, SGD(), [64, 1024, 16_384], 0.01, most_added=0)
    assert found.added == ()
    assert "rough: between" in found.remarks()["2x"]


def test_several_optimizers_give_a_list() -> None:
    problem = Quadratic(SMALL)
    found = sweep(problem, [SGD(), "HeavyBall(momentum=0.5)"], [16, 256], 0.1)
    assert [one.label for one in found] == ["SGD()", "HeavyBall(momentum=0.5)"]
    assert isinstance(sweep(problem, SGD(), [16, 256], 0.1), Sweep)
    assert found[0].steps.tolist() == sweep(problem, SGD(), [16, 256], target=0.1).steps.tolist()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((SGD(), [16]), "target"),
        ((SGD(), 0.1), "target"),
        ((SGD(), 0.1, 0.1), "batch_sizes"),
        (([], [16], 0.1), "optimizer"),
        ((3, [16], 0.1), "optimizer"),
        ((SGD(), [16], 100.0), "target"),
    ],
)
def test_wrong_calls_are_refused(arguments: tuple[object, ...], name: str) -> None:
    with pytest.raises(Wrong) as error:
        sweep(Quadratic(SMALL), *arguments)  # type: ignore[call-overload]
    assert error.value.argument == name
