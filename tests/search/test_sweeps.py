"""Sweeps: fields, critical batch sizes, regimes, bounds, tables."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    Adam,
    Clipped,
    HeavyBall,
    Lookahead,
    Nesterov,
    Optimizer,
    Polyak,
    Preconditioned,
    Quadratic,
    Spectrum,
    Sweep,
    sweep,
)
from nqm.problems.bounds import knee
from nqm.search.sweeps import DEFINITIONS, NO_KNEE


@pytest.fixture(scope="module")
def found() -> Sweep:
    return sweep(Quadratic(Spectrum.power_law(10_000)), SGD(), [2**e for e in range(4, 17, 2)], target=0.01)


def test_fields_hang_together(found: Sweep) -> None:
    np.testing.assert_array_equal(found.examples, found.steps * found.batch_sizes)
    problem = Quadratic(found.spectrum)
    for optimizer, B, T in zip(found.optimizers, found.batch_sizes, found.steps, strict=True):
        assert optimizer is not None
        loss = problem.run(optimizer, B, [int(T) - 1, int(T)]).loss
        assert loss[0] > 0.01 >= loss[1]


def measured(found: Sweep, B: np.ndarray, steps: np.ndarray, smallest: float = math.nan) -> Sweep:
    """A sweep of points to which none can be added."""
    return replace(
        found, batch_sizes=B, steps=steps, examples=steps * B, smallest_steps=smallest, added=(), found_bend=None
    )


def hyperbola(B: np.ndarray, S: float = 100.0, E: float = 1e4) -> np.ndarray:
    return S + E / B


@pytest.mark.parametrize(("definition", "expected"), [("20%", 0.2 * 100), ("2x", 100.0), ("ratio", 100.0)])
def test_critical_batch_size_of_a_hyperbola(found: Sweep, definition: str, expected: float) -> None:
    # On T = S + E / B examples are E + S B: 20% over E at B = 0.2 E / S, twice at E / S, and Emin / Smin = E / S.
    B = 2.0 ** np.arange(-10, 16, 0.25)
    steps = hyperbola(B)
    blank = measured(found, B, steps, 100.0)
    assert blank.critical_batch_size(definition) == pytest.approx(expected, rel=0.01)  # type: ignore[arg-type]


def test_critical_batch_size_that_is_not_bracketed_is_nan(found: Sweep) -> None:
    few = measured(found, found.batch_sizes[:2], found.steps[:2])
    assert math.isnan(few.critical_batch_size("2x"))


def test_knee_and_ratio_of_the_paper(found: Sweep) -> None:
    assert found.critical_batch_size("knee") == pytest.approx(489, abs=1)
    assert found.smallest_steps == pytest.approx(6673, rel=2e-3)
    fewest = min(row["examples"] for row in found.table())
    assert found.critical_batch_size("ratio") == fewest / found.smallest_steps


def test_preconditioner_counts_in_the_knee() -> None:
    problem = Quadratic(Spectrum.power_law(10_000))
    half = sweep(problem, Preconditioned(SGD(), 0.5), [64], target=0.01)
    assert half.critical_batch_size("knee") == knee(problem.spectrum, 0.01, 0.5)


@pytest.mark.parametrize(
    ("family", "plain"),
    [
        (SGD(), True),
        (Preconditioned(SGD(), 0.5), True),
        (Preconditioned(Preconditioned(SGD(), 0.5), 0.5), True),
        (HeavyBall(), False),
        (Nesterov(momentum=0.0), False),
        (EMA(SGD()), False),
        (Polyak(SGD(), 0.5), False),
        (Lookahead(SGD(), 0.5, 5), False),
        (Preconditioned(EMA(SGD()), 0.5), False),
        (Preconditioned(HeavyBall(), 0.5), False),
        (Clipped(SGD(), 1.0), False),
        (Adam(), False),
    ],
    ids=str,
)
def test_the_knee_is_that_of_sgd_without_averages(found: Sweep, family: Optimizer, plain: bool) -> None:
    one = replace(found, family=family)
    value = one.critical_batch_size("knee")
    assert math.isnan(value) is not plain
    assert one.remarks() == ({} if plain else {"knee": NO_KNEE})
    data = one.to_dict()
    assert (data["critical_batch_size"]["knee"] is None) is not plain
    assert data["remarks"] == one.remarks()


def only(found: Sweep, *sizes: float) -> Sweep:
    """The sweep on some of its batch sizes, or on those of the hyperbola steps = 100 + 10^4 / B, whose bend is at 100."""
    B = np.array(sizes, dtype=float)
    return measured(found, B, hyperbola(B), 100.0)


@pytest.mark.parametrize(
    ("sizes", "definition", "remark"),
    [
        (
            [1, 4, 16, 64, 256],
            "2x",
            r"rough: between 64 and 256, and other .* may need 1.0% fewer examples; add \d+(\.\d)?",
        ),
        ([0.0625, 1, 4, 16, 64, 256], "2x", r"rough: between 64 and 256; add \d+(\.\d)?"),
        ([0.0625, 1, 4, 16, 64, 100, 256], "2x", ""),
        ([0.0625, 1, 4, 20, 64, 256], "20%", ""),
        ([0.0625, 1, 4, 16, 64, 256], "ratio", ""),
        ([0.0625, 1, 4, 8], "2x", "not known: up to batch size 8 steps stay below 2 times perfect scaling; add 202"),
        ([8], "2x", r"not known: up to batch size 8 steps stay below 2 .*; add 1"),
        (
            [1024, 4096],
            "2x",
            r"not known: from batch size 1,020 on, larger batches save less than a fifth of the steps",
        ),
    ],
)
def test_measured_points_say_how_rough_a_critical_batch_size_is(
    found: Sweep, sizes: list[float], definition: str, remark: str
) -> None:
    told = only(found, *sizes)
    assert re.fullmatch(remark, told.remarks().get(definition, "")), told.remarks()  # type: ignore[call-overload]
    assert math.isnan(told.critical_batch_size(definition)) is remark.startswith("not known")  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [[2, 8], [1, 2, 4, 8], [2, 8, 32], [64, 256, 1024], [16, 1024], [7], [100]])
def test_whoever_adds_what_is_asked_for_knows_the_critical_batch_sizes(found: Sweep, sizes: list[float]) -> None:
    for _ in range(12):
        told = only(found, *sizes).remarks()
        new = {float(s.partition("; add ")[2].replace(",", "")) for s in told.values() if "; add " in s}
        sizes = sorted({*sizes, *new})
    whole = only(found, *sizes)
    assert all(
        "may need" in remark for remark in whole.remarks().values()
    )  # than at batch size 1: examples rise by S B
    assert whole.critical_batch_size("20%") == pytest.approx(21.2, rel=0.01)  # (1.2 * 10,100 - 10,000) / 100
    assert whole.critical_batch_size("2x") == pytest.approx(102, rel=0.01)


def test_a_sweep_without_an_answer_says_so(found: Sweep) -> None:
    none = measured(found, found.batch_sizes, np.full(len(found.steps), np.nan))
    assert none.remarks() == dict.fromkeys(("20%", "2x", "ratio"), "no batch size reached the target")
    assert np.isnan(list(none.regimes().values())).all()


def test_regimes_cover_the_sweep(found: Sweep) -> None:
    regimes = found.regimes()
    assert regimes["perfect"][0] == found.batch_sizes[0]
    assert regimes["perfect"][1] == regimes["diminishing"][0] <= regimes["diminishing"][1] == regimes["maximal"][0]
    assert regimes["maximal"][1] == found.batch_sizes[-1]


def test_no_bound_is_beaten(found: Sweep) -> None:
    bounds = found.bounds()
    assert np.all(found.steps >= bounds["bayes"])
    assert np.all(found.steps >= bounds["conjugate_gradients"])


def test_paper_bound_is_beaten_where_the_start_is_information() -> None:
    wide = sweep(Quadratic(Spectrum.power_law(10_000)), SGD(), [4], target=3.0)
    assert wide.bounds()["bayes"][0] <= wide.steps[0] < wide.bounds()["paper"][0]
    assert wide.steps[0] == 15


def test_tables_agree(found: Sweep) -> None:
    rows = [row for row in found.table() if not row["added"]]
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    read = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert (
        [row["steps"] for row in rows]
        == data["steps"]
        == [int(row["steps"]) for row in read if row["added"] == "False"]
    )
    assert set(data["critical_batch_size"]) == set(DEFINITIONS)


def test_what_is_not_reached_is_none() -> None:
    problem = Quadratic(Spectrum.power_law(100))
    result = sweep(problem, SGD(), [1, 10**6], target=1e-4, max_steps=2000)
    assert math.isnan(result.steps[0])
    assert result.table()[0]["steps"] is None
    assert "above" in result.messages[0]
    json.dumps(result.to_dict(), allow_nan=False)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    sweep(
        Quadratic(Spectrum.power_law(20)),
        SGD(),
        [16, 64],
        target=0.1,
        progress=lambda done, total: told.append((done, total)),
    )
    done, total = zip(*told, strict=True)
    assert list(done) == list(range(len(done)))
    assert done[-1] == total[-1] > 3


def test_momentum_extends_perfect_scaling() -> None:
    problem = Quadratic(Spectrum.power_law(1000))
    sizes = [2**e for e in range(2, 19, 2)]
    plain, ball = (sweep(problem, o, sizes, target=0.01).critical_batch_size() for o in (SGD(), HeavyBall()))
    assert ball > 4 * plain


@pytest.mark.parametrize("batch_sizes", [[], [0], [-1], [math.nan]])
def test_wrong_batch_sizes_are_refused(batch_sizes: list[float]) -> None:
    with pytest.raises(ValueError, match="batch_size"):
        sweep(Quadratic(Spectrum.power_law(20)), SGD(), batch_sizes, target=0.1)


@pytest.mark.parametrize("sizes", [[math.inf], [16, 64, math.inf]], ids=str)
def test_a_sweep_may_have_a_run_without_noise(sizes: list[float]) -> None:
    found = sweep(Quadratic(Spectrum.power_law(20)), SGD(), sizes, target=0.1)
    assert found.steps[-1] == found.smallest_steps
    assert all(math.isfinite(point.batch_size) for point in found.added)
