"""Past the edge of stability: what is capped, what is kept, and where predictions end."""

from __future__ import annotations

import numpy as np
import pytest

from nqm import SGD, HeavyBall, Preconditioned, Quadratic, Spectrum, linear
from nqm.nets.fitting.edge import EDGE_SHARE, capped, excess
from nqm.optimizers import Optimizer

SPECTRUM = Spectrum([4.0, 2.0, 1.0, 0.1], [0.5, 0.2, 0.3, 0.1], [0.1, 0.4, 1.0, 3.0])


@pytest.mark.parametrize(
    ("optimizer", "edge"),
    [(SGD(0.7), 2 / 0.7), (HeavyBall(1.0, 0.5), 3.0), (Preconditioned(SGD(1.4), 0.5), (2 / 1.4) ** 2)],
)
def test_curvature_is_capped_below_that_at_the_edge(optimizer: Optimizer, edge: float) -> None:
    """The edge by hand: lr h = 2 for SGD, 2 (1 + momentum) for heavy ball, lr h^(1 - p) = 2 with a preconditioner."""
    found = capped(SPECTRUM, optimizer, None)
    assert found.h.max() == pytest.approx(edge * EDGE_SHARE ** (1 / (1 - optimizer.preconditioning)), rel=1e-6)
    assert Quadratic(found).run(optimizer, 8, 10).outcome.ok
    assert not Quadratic(SPECTRUM).run(optimizer, 8, 10).outcome.ok


def test_loss_and_noise_of_capped_modes_are_kept() -> None:
    found = capped(SPECTRUM, SGD(0.7), None)
    np.testing.assert_allclose(found.h * found.s, SPECTRUM.h * SPECTRUM.s, rtol=1e-12)
    assert found.c.tolist() == SPECTRUM.c.tolist()
    assert found.h[1:].tolist() == SPECTRUM.h[1:].tolist()  # 2 is below 0.9 x 2 / 0.7


def test_a_rate_well_inside_changes_nothing_and_a_schedule_counts_by_its_largest() -> None:
    assert capped(SPECTRUM, SGD(0.4), None) is SPECTRUM
    assert excess(SPECTRUM, SGD(0.4), None) == pytest.approx(0.8)
    assert excess(SPECTRUM, SGD(0.4), linear(10, start=2.0)) == pytest.approx(1.6)
    assert capped(SPECTRUM, SGD(0.4), linear(10, start=2.0)).h.max() == pytest.approx(EDGE_SHARE * 2 / 0.8)
