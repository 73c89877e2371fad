"""Previews of sweeps: near the exact sweep after a small move, from the answer before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nqm import EMA, SGD, Adam, HeavyBall, LeastSquares, Quadratic, Spectrum, sweep
from nqm.engine.kernels import plain_loops
from nqm.search import preview
from nqm.search.preview import preview_sweep
from nqm.search.sweeps import Sweep
from nqm.types import Wrong

PAPER = Quadratic(Spectrum.power_law(10_000))
SIZES = [2**4, 2**8, 2**12, 2**16]


def near(last: Sweep) -> list:
    return [*zip(last.optimizers, last.steps, strict=True), (last.optimizers[-1], last.smallest_steps)]


@pytest.mark.parametrize("optimizer", [SGD(), HeavyBall(), EMA(SGD())], ids=str)
@pytest.mark.parametrize("move", [1 / 1.02, 1.02])
def test_a_small_move_is_followed_to_a_percent(optimizer, move) -> None:
    last = sweep(PAPER, optimizer, SIZES, target=0.01)
    found = preview_sweep(PAPER, optimizer, SIZES, 0.01 * move, near(last))
    exact = sweep(PAPER, optimizer, SIZES, target=0.01 * move)
    np.testing.assert_allclose(found.steps, exact.steps, rtol=0.01)
    assert found.smallest_steps == pytest.approx(exact.smallest_steps, rel=0.02)  # 147 steps: each is 0.7%
    # The last answer itself would not pass for the new one.
    assert abs(last.steps / exact.steps - 1).max() > 0.01


def test_sharp_basins_are_found_by_watching_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where momentum has few steps, a local search from the last setting is not enough."""
    problem, sizes = Quadratic(Spectrum.power_law(10_000, exponent=1.5, noise=10.0)), [2**16, 2**18, 2**20]
    last = sweep(problem, HeavyBall(), sizes, target=0.0132)
    exact = sweep(problem, HeavyBall(), sizes, target=0.0132 * 1.02).steps
    found = preview_sweep(problem, HeavyBall(), sizes, 0.0132 * 1.02, near(last))
    np.testing.assert_allclose(found.steps, exact, rtol=0.012)
    for steps, optimizer, size in zip(found.steps, found.optimizers, sizes, strict=True):
        assert problem.loss(optimizer, int(steps), size) <= 1.0001 * 0.0132 * 1.02  # it is there, on all modes
    monkeypatch.setattr(preview, "PREVIEW", replace(preview.PREVIEW, clouds=0))
    local = preview_sweep(problem, HeavyBall(), sizes, 0.0132 * 1.02, near(last))
    assert (local.steps / exact).max() > 1.02


def test_previews_are_the_same_without_compiled_loops() -> None:
    problem = Quadratic(Spectrum.power_law(50))
    last = sweep(problem, HeavyBall(), [2**12], target=0.1)
    found = preview_sweep(problem, HeavyBall(), [2**12], 0.11, near(last))
    with plain_loops():
        slow = preview_sweep(Quadratic(Spectrum.power_law(50)), HeavyBall(), [2**12], 0.11, near(last))
    np.testing.assert_allclose(slow.steps, found.steps)


def test_what_is_too_far_has_no_steps() -> None:
    last = sweep(PAPER, SGD(), SIZES, target=1.0)
    found = preview_sweep(PAPER, SGD(), SIZES, 0.001, near(last))
    assert np.isnan(found.steps).all()
    assert "too far" in found.messages[0]
    assert np.isnan(preview_sweep(PAPER, SGD(), SIZES, 1.0, [(None, None)] * 5).steps).all()


def test_what_a_preview_cannot_follow_is_refused() -> None:
    last = sweep(PAPER, SGD(), SIZES, target=1.0)
    with pytest.raises(Wrong, match="near needs 5 settings"):
        preview_sweep(PAPER, SGD(), SIZES, 1.0, near(last)[:-1])
    with pytest.raises(Wrong, match="linear optimizer"):
        preview_sweep(PAPER, Adam(), SIZES, 1.0, near(last))
    with pytest.raises(Wrong, match="fixed variance"):
        preview_sweep(LeastSquares(Spectrum.power_law(20)), SGD(), SIZES, 1.0, near(last))
