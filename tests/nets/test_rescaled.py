"""A network in other units of its weights: every derivative is that of the composed function."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nqm import SGD
from nqm.nets import Network, curvature_of
from nqm.nets.rescaled import DiagonalRoot, Rescaled
from nqm.types import Wrong

FACTORS = torch.rand(39, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.2


@pytest.fixture
def pair() -> tuple[Network, Rescaled]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    data = torch.randn(20, 5, dtype=torch.float64), torch.randint(3, (20,))
    network = Network(model, F.cross_entropy, data)
    return network, Rescaled(network, DiagonalRoot(network, FACTORS))


def test_losses_are_the_same_and_derivatives_have_a_factor(pair: tuple[Network, Rescaled]) -> None:
    (plain, scaled), root = pair, FACTORS
    assert scaled.full_loss() == pytest.approx(plain.full_loss(), rel=1e-12)
    torch.testing.assert_close(scaled.gradient(), root * plain.gradient())
    torch.testing.assert_close(curvature_of(scaled).dense(), root[:, None] * curvature_of(plain).dense() * root)
    (rows,), (expected,) = scaled.example_gradients(), plain.example_gradients()
    torch.testing.assert_close(rows, root * expected)
    torch.testing.assert_close(scaled.state_dict(), plain.state_dict())


def test_a_step_is_a_preconditioned_step(pair: tuple[Network, Rescaled]) -> None:
    plain, scaled = pair
    g, D = plain.gradient(), FACTORS**2
    moved = scaled.at(scaled.theta - 0.1 * scaled.gradient())
    assert moved.full_loss() == pytest.approx(plain.full_loss(plain.theta - 0.1 * D * g), rel=1e-12)
    (_, after) = scaled.run(SGD(0.1), float("inf"), [0, 1], seeds=1).loss
    assert after == pytest.approx(moved.full_loss(), rel=1e-12)
    assert plain.full_loss() == pytest.approx(scaled.full_loss(), rel=1e-12)


def test_a_root_that_is_not_positive_is_refused(pair: tuple[Network, Rescaled]) -> None:
    with pytest.raises(Wrong, match="root must have 39 positive entries"):
        DiagonalRoot(pair[0], -FACTORS)
