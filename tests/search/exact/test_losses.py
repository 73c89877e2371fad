"""The losses of settings: the same by every way of asking for them, of many at a time and of one."""

from __future__ import annotations

import numpy as np
import pytest

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
    Problem,
    Quadratic,
    ScheduleFree,
    Spectrum,
)
from nqm.problems.base import total
from nqm.search.exact.family import Family
from nqm.search.exact.losses import CEILING, LEAST, Losses, Scan, log_loss

PROBLEM = Quadratic(Spectrum.power_law(60))
FAMILIES = [
    SGD(), HeavyBall(), Nesterov(), EMA(HeavyBall()), Polyak(SGD()), Polyak(HeavyBall()), Lookahead(SGD()),
    Preconditioned(HeavyBall()), Preconditioned(Polyak(Nesterov())), ScheduleFree(),
]  # fmt: skip


@pytest.mark.parametrize("batch_size", [2.0, 64.0, np.inf, 1e-12])  # the last two show the signal and the noise alone
@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_one_curve_gives_the_losses_of_many_passes(optimizer: Optimizer, batch_size: float) -> None:
    family = Family(optimizer, PROBLEM.nodes.searched(optimizer).spectrum)
    losses = Losses(PROBLEM, family, batch_size)
    rng = np.random.default_rng(7)
    U = family.low + (family.high - family.low) * rng.random((6, len(family)))
    for j, p in enumerate(family.free):
        if p.path[-1] == "start":
            U[:3, j] = [0.06, 0.13, 0.5]  # a small part of a run is no step of a short one, and some of a long one
    curves = [losses.curve(u) for u in U]
    for t in (1, 2, 9, 128, 543):
        with np.errstate(all="ignore"):
            many, one = losses.at(U, t), [curve(t) for curve in curves]
        np.testing.assert_allclose(one, many, rtol=1e-9)
        with np.errstate(all="ignore"):
            exact = np.array([losses.exact(u, t) for u in U])
        # Nodes do not resolve swings that hardly fade, which are all that is left where there is no noise.
        near = (exact < 1e3) & np.isfinite(batch_size)
        np.testing.assert_allclose(many[near], exact[near], rtol=1e-6)  # on nodes; those of one slot are good to 1e-6


@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_doublings_are_losses_after_powers_of_two(optimizer: Optimizer) -> None:
    family = Family(optimizer, PROBLEM.spectrum)
    U = family.sample(5)
    for rows, settings in family.passes(U, 2**15):
        doublings = PROBLEM.doublings(settings, 1.0)
        for level in range(24 if optimizer.linear and family.at(U[0]).cycle == 1 else 12):
            with np.errstate(all="ignore"):
                found = np.array(next(doublings))
                direct = np.array([PROBLEM.losses(family.at(u), 2**level, 1.0) for u in U[rows]]).T
            near = direct.sum(0) < 1e3  # further off, what is lost may be given up at different times
            np.testing.assert_allclose(found[:, near], direct[:, near], rtol=1e-9, atol=1e-100)


@pytest.mark.parametrize("problem", [PROBLEM, LeastSquares(PROBLEM.spectrum, 0.5)], ids=["quadratic", "least squares"])
def test_a_scan_has_the_losses_of_its_batch_size(problem: Problem) -> None:
    scan = Scan(problem, HeavyBall())
    for batch_size in (64.0, 4.0):  # the second must not be answered from the table of the first
        found = scan.losses(5, batch_size)
        for i in range(0, len(scan.points), 40):
            loss = total(problem.losses(scan.family.at(scan.points[i]), 32, batch_size), batch_size)
            if loss < 1e3:
                assert found[i] == pytest.approx(float(loss), rel=1e-5)


def test_logs_of_losses_are_finite() -> None:
    found = log_loss(np.array([np.nan, np.inf, 0.0, 1.0, 1e200]))
    np.testing.assert_allclose(found, np.log([CEILING, CEILING, LEAST, 1.0, CEILING]))
