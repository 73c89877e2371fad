"""The exact problem: what it reports besides the loss, where it reports, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS
from hypothesis import given
from hypothesis import strategies as st
from reference import loop, relative_error

from nqm import EMA, SGD, HeavyBall, Lookahead, Nesterov, Optimizer, Outcome, Quadratic, Schedule, Spectrum
from nqm.engine.trajectory import Trajectory
from nqm.optimizers.base import fill
from nqm.problems.base import report_steps

FEW = Spectrum([1.0, 0.5, 0.11, 0.003], c=[1.0, 0.3, 0.2, 2.0], s=[1.0, 2.0, 0.5, 1.0], count=[1, 1, 3, 10])
PROBLEM = Quadratic(FEW)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_bands_and_noise_scales(row: Optimizer) -> None:
    times, B = [0, 3, 20], 4.0
    run = PROBLEM.run(row, B, times)
    signal, noise = loop(row, FEW.h, times)
    assert run.band_edges.tolist() == pytest.approx([1e-3, 1e-2, 1e-1, 1.0])
    for band, modes in enumerate(([3], [], [0, 1, 2])):
        assert relative_error(run.band_signal[band], signal[:, modes] @ FEW.signal_mass[modes]) < 1e-9
        assert relative_error(run.band_noise[band], noise[:, modes] @ FEW.noise_mass[modes]) < 1e-9
    second = FEW.count * (FEW.s * signal + FEW.c / B * noise)  # n E[theta^2] of each mode at each time
    gradient, curved = second @ FEW.h**2, second @ FEW.h**3
    assert relative_error(run.noise_scale, (FEW.count * FEW.c).sum() / gradient) < 1e-9
    assert relative_error(run.curvature_noise_scale, (FEW.count * FEW.h * FEW.c).sum() / curved) < 1e-9


def test_bands_cover_every_mode() -> None:
    for h in ([1.0], [0.1], [10.0, 1.0, 0.1], [0.0999999, 0.1000001], [3e-17, 2e9]):
        run = Quadratic(Spectrum(h)).run(SGD(0.1 / max(h)), 2, [0, 5])
        assert relative_error(run.band_signal.sum(0), run.signal) < 1e-12
        assert relative_error(run.band_noise.sum(0), run.noise) < 1e-12


def test_the_two_losses_of_a_diverging_run() -> None:
    run = PROBLEM.run(SGD(3.0), 4, 1000)
    assert run.outcome is Outcome.diverged
    assert run.floor == math.inf
    assert "3" not in run.message or "lower the learning rate below 2" in run.message
    assert "curvature 1" in run.message
    assert f"{PROBLEM.stability_limit(SGD()):.6g}" in run.message


@pytest.mark.filterwarnings("error")
def test_overflow_is_quiet() -> None:
    for batch_size in (4, math.inf):
        run = PROBLEM.run(HeavyBall(50.0, 0.9), batch_size, 10**6)
        assert run.outcome is Outcome.diverged
        assert not np.isfinite(run.loss[-1])


def test_a_run_that_ends_before_it_has_blown_up_says_so_too() -> None:
    assert PROBLEM.run(SGD(2.0001), 4, 10).outcome is Outcome.diverged
    assert PROBLEM.run(SGD(1.9999), 4, 10).outcome is Outcome.finished


def test_a_schedule_decides_the_floor() -> None:
    plan = Schedule([5, 5], [1.0, 0.1])
    assert PROBLEM.floor(SGD(1.0), 2, plan) == pytest.approx(PROBLEM.floor(SGD(0.1), 2), rel=1e-12)
    wild = Schedule([5, 5], [5.0, 0.1])
    assert PROBLEM.run(SGD(1.0), 2, 100, schedule=wild).outcome is Outcome.finished
    louder = Schedule([5, 5], 1.0, batch_size=[1.0, 4.0])
    assert PROBLEM.floor(SGD(1.0), 2, louder) == pytest.approx(PROBLEM.floor(SGD(1.0), 8), rel=1e-12)


@pytest.mark.parametrize(
    "row",
    [
        Lookahead(HeavyBall(momentum=0.9), 0.5, 6),
        Lookahead(HeavyBall(momentum=0.99), 0.2, 5),
        Lookahead(HeavyBall(momentum=0.8), 0.5, 2),
        Lookahead(Nesterov(momentum=0.99), 0.5, 10),
        EMA(Lookahead(HeavyBall(momentum=0.9), 0.2, 10), 0.5),
    ],
    ids=str,
)
def test_below_the_stability_limit_every_mode_is_stable(row: Optimizer) -> None:
    """Lookahead over momentum resonates: bands of lr h in the middle lose stability before the largest does."""
    h = np.geomspace(1e-3, 1.0, 400)
    limit = Quadratic(Spectrum(h)).stability_limit(row)
    for share in (0.999, 0.9, 0.7, 0.4, 0.1):
        radius = Trajectory(fill(row, {"lr": limit * share}), h).stationary().radius()
        assert radius.max() <= 1 + 1e-9, f"unstable at {share} of the limit, at h = {h[radius.argmax()]:.4g}"


def test_stability_limit_needs_the_rest_set() -> None:
    with pytest.raises(ValueError, match="momentum"):
        PROBLEM.stability_limit(HeavyBall())


def test_grids() -> None:
    assert report_steps(10, "linear", 11).tolist() == list(range(11))
    log = report_steps(10**9, "log", 200)
    assert (log[0], log[-1]) == (0, 10**9)
    assert np.all(np.diff(log) > 0)
    assert len(log) <= 201
    assert report_steps(0, "log", 5).tolist() == [0]
    assert report_steps(1, "log", 5).tolist() == [0, 1]
    assert report_steps(np.int64(4), "linear", 50).tolist() == [0, 1, 2, 3, 4]
    assert report_steps([0, 7, 10**9], "log", 5).tolist() == [0, 7, 10**9]
    assert report_steps(range(3), "log", 5).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": math.nan}, "batch_size"),
        ({"batch_size": "4"}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"steps": -1}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"steps": math.nan}, "steps"),
        ({"steps": math.inf}, "steps"),
        ({"steps": 10**10}, "steps"),
        ({"steps": []}, "steps"),
        ({"steps": [3, 2]}, "steps"),
        ({"steps": [0, 0]}, "steps"),
        ({"steps": [0, 1.5]}, "steps"),
        ({"steps": [0, math.nan]}, "steps"),
        ({"steps": [0, math.inf]}, "steps"),
        ({"steps": [-1, 2]}, "steps"),
        ({"steps": [[1, 2]]}, "steps"),
        ({"steps": "many"}, "steps"),
        ({"steps": True}, "steps"),
        ({"steps": None}, "steps"),
        ({"grid": "cubic"}, "grid"),
        ({"points": 1}, "points"),
    ],
)
def test_wrong_calls_are_refused_by_name(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PROBLEM.run(**{"optimizer": SGD(0.1), "batch_size": 4, "steps": 10, **arguments})


numbers = st.one_of(st.floats(), st.integers(-(10**20), 10**20))


@given(numbers, st.one_of(numbers, st.lists(numbers, max_size=4)), numbers)
def test_a_run_is_valid_or_a_value_error(batch_size: Any, steps: Any, lr: Any) -> None:
    try:
        run = PROBLEM.run(SGD(lr), batch_size, steps)
    except ValueError as error:
        assert any(name in str(error) for name in ("batch_size", "steps", "lr"))
        return
    assert len(run.loss) == len(run.steps)
    assert (run.outcome is Outcome.finished) == (lr < 2)


def test_only_spectra_are_problems() -> None:
    with pytest.raises(ValueError, match="Spectrum"):
        Quadratic([1.0, 2.0])  # type: ignore[arg-type]


def test_a_coarse_twin() -> None:
    paper = Quadratic(Spectrum.power_law(10_000))
    assert len(paper.nodes.coarse.spectrum) < 500
    ours, full = (p.run(SGD(1.0), 64, 5000).loss for p in (paper.nodes.coarse, paper))
    assert relative_error(ours, full) < 1e-4  # searches confirm what they find on the full problem
