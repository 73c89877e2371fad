"""Claim: the Fisher matrix of a network with a softmax is its Gauss-Newton matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from .base import PAPER, Measured
from .nets import NETS, compared, distances, draw_distances

if TYPE_CHECKING:
    from torch import Tensor

    from ...nets.network import Network

STATEMENT = "For networks with a softmax and cross entropy the Fisher matrix is the Gauss-Newton matrix."
NEEDS = NETS
ORIGIN = PAPER
SOURCE = "on the curvature of networks"
IDENTITY = (
    "for a softmax with cross entropy the Hessian in the outputs is the covariance of their gradients under the model"
)
TURN = ("the targets are those of the data: the empirical Fisher matrix", {"targets": "data"})
NAMES = {"fisher": "Fisher matrix", "empirical": "empirical Fisher matrix", "hessian": "Hessian"}
draw = partial(draw_distances, names=NAMES)


def measure(
    targets: Literal["model", "data"] = "model", steps: Sequence[int] = (0, 30, 300), width: int = 8,
    examples: int = 100, seed: int = 0,
) -> Measured:  # fmt: skip
    """Largest relative distance of a Fisher matrix from the Gauss-Newton matrix over a training; whole matrices in float64.

    The Fisher matrix is summed over all classes, each with its probability under the model: nothing is sampled.

    Parameters
    ----------
    targets : targets of the gradients whose outer products are averaged: drawn by the model, or those of the data.
    steps, width, examples, seed : the training, as in `distances`.
    """
    table = distances(_matrices, steps, width, examples, seed)
    decides = {"model": "fisher", "data": "empirical"}[targets]
    return compared(table, NAMES, decides, width, f"the targets are those of the {targets}")


def _matrices(network: Network) -> dict[str, Tensor]:
    from ...nets.curvature import EmpiricalFisher, Hessian

    empirical, hessian = (kind(network, vectors=64).dense() for kind in (EmpiricalFisher, Hessian))
    return {"fisher": exact_fisher(network), "empirical": empirical, "hessian": hessian}


def exact_fisher(network: Network) -> Tensor:
    """``mean_x sum_y p(y | x) g_y g_y'`` with g_y the gradient of -log p(y | x), one class at a time."""
    import torch

    theta, (x, y) = network.theta, network.data
    with torch.no_grad():
        p = network.output(theta, (x, y)).softmax(1)
    total = torch.zeros(network.dim, network.dim, dtype=theta.dtype)
    for label in range(p.shape[1]):
        g = torch.func.vmap(
            torch.func.grad(lambda t, one, k=label: -network.output(t, (one[None],)).log_softmax(1)[0, k]),
            in_dims=(None, 0),
        )(theta, x)
        total += (g * p[:, label, None]).T @ g / len(x)
    return total
