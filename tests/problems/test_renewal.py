"""Long horizons of least squares in blocks of time, against stepping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import ROWS

import nqm.problems.renewal as module
from nqm import (
    EMA,
    SGD,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Nesterov,
    Optimizer,
    Polyak,
    Preconditioned,
    Spectrum,
    constant,
)
from nqm.problems.renewal import Renewal

SMOOTH = 1e-11  # tau is a polynomial of degree 4 on each block to rounding
SWINGS = 2e-4  # it is not, while swings that hardly decay last
PAPER = LeastSquares(Spectrum.power_law(10_000), 0.8).nodes.coarse
REPEATING = {n: r for n, r in ROWS.items() if 0 < r.at_horizon(9).cycle <= module.MAX_PHASES}


def off(problem: LeastSquares, row: Optimizer, B: float, t: int) -> float:
    """Relative error of the loss after t steps."""
    signal, noise = problem.losses(row, t, B)
    found = Renewal(problem.motion(row.at_horizon(t), B)).losses(t)
    return float(np.abs(found / (signal + noise / B) - 1).max())


@pytest.mark.parametrize("name", REPEATING)
def test_every_repeating_row(name: str) -> None:
    problem = LeastSquares(Spectrum.power_law(40), 0.5)
    for t in (1, 2, 3, 7, 16, 100, 1201):
        assert off(problem, REPEATING[name], 25, t) < 1e-6


@pytest.mark.parametrize(
    ("row", "B"),
    [
        (SGD(0.3), 64),
        (SGD(0.6), 4),
        (HeavyBall(0.05, 0.8), 64),
        (EMA(SGD(0.5), 0.999), 64),
        (Nesterov(0.5, 0.97), 4096),
        (Polyak(SGD(0.4), 0.5), 64),
        (Lookahead(SGD(0.6), 0.5, 5), 64),
        (Preconditioned(HeavyBall(0.05, 0.9), 0.5), 640),
    ],
    ids=str,
)
def test_smooth_losses_are_exact(row: Optimizer, B: float) -> None:
    for t in (300, 4001):
        assert off(PAPER, row, B, t) < SMOOTH


@pytest.mark.parametrize(
    ("row", "B", "t"), [(HeavyBall(0.1, 0.99), 1024, 300), (HeavyBall(0.002, 0.999), 1024, 6001)], ids=str
)
def test_swings_cost_some_digits(row: Optimizer, B: float, t: int) -> None:
    assert 1e-9 < off(PAPER, row, B, t) < SWINGS


def test_blocks_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of 2 J cycles built from blocks of J is the one built step by step."""
    renewal = Renewal(LeastSquares(Spectrum.power_law(5), 0.5).motion(HeavyBall(np.array([[0.1], [0.3]]), 0.8), 7))
    one = renewal._block(0, 0, 1)
    eight, L = renewal._block(0, 3, 1), one.D + np.eye(3)[..., None]
    powers: list[Any] = [np.eye(3)[..., None] + 0 * L]
    for _ in range(8):
        powers.append(np.einsum("ijx,jkx->ikx", L, powers[-1]))
    assert pytest.approx(powers[8] - powers[0], abs=1e-14) == eight.D
    u = np.arange(8) / 8
    for n in range(module.DEGREE + 1):
        P = sum(u[s] ** n * np.einsum("ijx,jx->ix", powers[7 - s], one.P[0, 0]) for s in range(8))
        R = sum(u[s] ** n * np.einsum("ix,ijx->jx", one.R[0, 0], powers[s]) for s in range(8))
        assert eight.P[n, 0] == pytest.approx(P, rel=1e-12, abs=1e-15)
        assert eight.R[n, 0] == pytest.approx(R, rel=1e-12, abs=1e-15)
        assert eight.S[n] == pytest.approx((u**n).sum())
        for k in range(module.DEGREE + 1):
            W = np.zeros(2)
            for s in range(8):
                for r in range(s):
                    seen = np.einsum("ix,ijx,jx->x", one.R[0, 0], powers[s - 1 - r], one.P[0, 0])
                    W += u[s] ** n * u[r] ** k * seen.reshape(2, 5).sum(1)
            assert eight.W[:, n, 0, k, 0] == pytest.approx(W, rel=1e-12, abs=1e-15)


def test_what_blows_up_is_never_small() -> None:
    """Beyond the edge a polynomial cannot follow; the answer is then large or NaN, and no minimum for a search."""
    lr = np.geomspace(0.5, 500.0, 60)[:, None]
    for t in (64, 1000, 10**6):
        with np.errstate(all="ignore"):
            losses = PAPER.curve(SGD(lr), 4)(t)
        unstable = lr[:, 0] > 1.02 * PAPER.stability_limit(SGD(), 4)
        bad = losses[unstable]
        assert np.all(np.isnan(bad) | (bad > losses[~unstable].max()))


def test_a_schedule_or_a_long_cycle_does_not_fit() -> None:
    problem = LeastSquares(Spectrum.power_law(20))
    assert not Renewal.fits(problem.motion(Lookahead(SGD(0.1), 0.5, 2000), 4))
    assert not Renewal.fits(problem.motion(ROWS["schedule_free"], 4))
    assert not Renewal.fits(problem.motion(SGD(0.1), 4, constant(9, 0.5) + constant(9)))
    assert Renewal.fits(problem.motion(Lookahead(SGD(0.1), 0.5, 12), 4))


def test_long_cycles_are_close() -> None:
    for period in (13, 40, 200):
        for t in (1500, 2999):
            assert off(PAPER, Lookahead(SGD(0.6), 0.5, period), 64, t) < 2e-5
