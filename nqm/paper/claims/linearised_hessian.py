"""Claim: the Hessian of a linearised network's loss is the Gauss-Newton matrix of the network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from .base import PAPER, Measured
from .nets import NETS, compared, distances, draw_distances

if TYPE_CHECKING:
    from torch import Tensor

    from ...nets.network import Network

STATEMENT = "The Hessian of the loss of the linearised network is the Gauss-Newton matrix of the network."
NEEDS = NETS
ORIGIN = PAPER
SOURCE = "on the curvature of networks"
IDENTITY = "the second derivative of a linear output is zero, so the Hessian has the Gauss-Newton term alone"
TURN = ("the network is not linearised", {"linearised": False})
NAMES = {"linearised": "Hessian of the linearised network", "network": "Hessian of the network"}
draw = partial(draw_distances, names=NAMES)


def measure(
    linearised: bool = True, steps: Sequence[int] = (0, 30, 300), width: int = 8, examples: int = 100, seed: int = 0
) -> Measured:
    """Largest relative distance of a Hessian from the Gauss-Newton matrix over a training; whole matrices in float64.

    Hessians come from differentiating a loss twice; the Gauss-Newton matrix comes from whole Jacobians of the outputs.

    Parameters
    ----------
    linearised : whether the output is replaced by its first-order expansion about the checkpoint.
    steps, width, examples, seed : the training, as in `distances`.
    """
    table = distances(_hessians, steps, width, examples, seed)
    return compared(table, NAMES, "linearised" if linearised else "network", width, "the network is not linearised")


def _hessians(network: Network) -> dict[str, Tensor]:
    from ...nets.curvature import Hessian

    both = {"linearised": network.linearised(), "network": network}
    return {name: Hessian(one, vectors=64).dense() for name, one in both.items()}
