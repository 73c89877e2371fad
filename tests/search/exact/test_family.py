"""A family of settings: points to optimizers and back."""

from __future__ import annotations

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
    ScheduleFree,
    Spectrum,
)
from nqm.search.exact.family import Family

SPECTRUM = Spectrum.power_law(60)
FAMILIES = [
    SGD(), HeavyBall(), Nesterov(), EMA(HeavyBall()), Polyak(SGD()), Polyak(HeavyBall()), Lookahead(SGD()),
    Preconditioned(HeavyBall()), Preconditioned(Polyak(Nesterov())), ScheduleFree(),
]  # fmt: skip


@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_points_and_members(optimizer: Optimizer) -> None:
    family = Family(optimizer, SPECTRUM)
    for u in family.sample(5):
        again = family.at(family.point(family.at(u)))
        assert str(again) == str(family.at(u))
