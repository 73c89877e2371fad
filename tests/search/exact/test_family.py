"""A family of settings: points to optimizers and back, and the same losses by every way of asking for them."""

from __future__ import annotations

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    HeavyBall,
    Lookahead,
    Nesterov,
    Optimizer,
    Polyak,
    Preconditioned,
    Quadratic,
    ScheduleFree,
    Spectrum,
)
from nqm.search.exact.family import Family

PROBLEM = Quadratic(Spectrum.power_law(60))
FAMILIES = [
    SGD(), HeavyBall(), Nesterov(), EMA(HeavyBall()), Polyak(SGD()), Polyak(HeavyBall()), Lookahead(SGD()),
    Preconditioned(HeavyBall()), Preconditioned(Polyak(Nesterov())), ScheduleFree(),
]  # fmt: skip


@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_one_curve_gives_the_losses_of_many_passes(optimizer: Optimizer) -> None:
    family = Family(PROBLEM, optimizer)
    rng = np.random.default_rng(7)
    U = family.low + (family.high - family.low) * rng.random((6, len(family)))
    for j, p in enumerate(family.free):
        if p.path[-1] == "start":
            U[:3, j] = [0.06, 0.13, 0.5]  # a small part of a run is no step of a short one, and some of a long one
    curves = [family.curve(u) for u in U]
    for t in (1, 2, 9, 128, 543):
        with np.errstate(all="ignore"):
            signal, noise = family.losses(U, t)
        for i, curve in enumerate(curves):
            np.testing.assert_allclose([*map(np.ravel, curve(t))], [[signal[i]], [noise[i]]], rtol=1e-9)


@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_levels_are_losses_after_powers_of_two(optimizer: Optimizer) -> None:
    family = Family(PROBLEM, optimizer)
    U = family.sample(5)
    levels = family.levels(U)
    for level in range(24 if optimizer.linear and family.at(U[0]).cycle == 1 else 12):
        with np.errstate(all="ignore"):
            found, direct = np.array(next(levels)), np.array(family.losses(U, 2**level))
        near = direct.sum(0) < 1e3  # further off, what is lost may be given up at different times
        assert near.any()
        np.testing.assert_allclose(found[:, near], direct[:, near], rtol=1e-9, atol=1e-100)


@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_points_and_members(optimizer: Optimizer) -> None:
    family = Family(PROBLEM, optimizer)
    for u in family.sample(5):
        again = family.at(family.point(family.at(u)))
        assert str(again) == str(family.at(u))
