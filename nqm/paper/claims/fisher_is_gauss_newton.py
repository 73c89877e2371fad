"""The Fisher matrix of a network with a softmax, and its Gauss-Newton matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column
from ...show.verdict import Verdict
from .base import Measured
from .nets import NEEDS, digits, gap, listed, one_thread

if TYPE_CHECKING:
    from torch import Tensor

    from ...nets.network import Network

STATEMENT = "For networks with a softmax and cross entropy the Fisher matrix is the Gauss-Newton matrix."
SOURCE = "on the curvature of networks"
TURN = ("targets are those of the data: the empirical Fisher", {"targets": "data"})
TOLERANCE = 1e-12

__all__ = ["NEEDS", "SOURCE", "STATEMENT", "TURN", "draw", "measure"]


def measure(
    targets: Literal["model", "data"] = "model", steps: Sequence[int] = (0, 30, 300), width: int = 8,
    examples: int = 100, seed: int = 0,
) -> Measured:  # fmt: skip
    """Relative distance from the Gauss-Newton matrix, whole matrices in float64, at worst over a training.

    The Fisher matrix is summed over all classes, each with its probability under the model: nothing is sampled.

    Parameters
    ----------
    targets : of the gradients whose outer products are averaged, drawn by the model or those of the data.
    steps : of SGD before each of the checkpoints.
    width : of the hidden layer of an MLP on scikit-learn's digits.
    examples : of the data.
    seed : of start and batches.
    """
    from ...nets.curvature import EmpiricalFisher, GaussNewton, Hessian

    table: Table = []
    with one_thread():
        for t in steps:
            network = digits(width, examples, t, seed)
            G = GaussNewton(network, vectors=64).dense()
            table.append({
                "step": t, "fisher": gap(exact_fisher(network), G),
                "empirical": gap(EmpiricalFisher(network, vectors=64).dense(), G),
                "hessian": gap(Hessian(network, vectors=64).dense(), G),
            })  # fmt: skip
    name = {"model": "fisher", "data": "empirical"}[targets]
    worst = {kind: float(column(table, kind).max()) for kind in ("fisher", "empirical", "hessian")}
    number = worst[name]
    return Measured(
        table, number, "largest relative distance from the Gauss-Newton matrix",
        f"|F - G| / |G| on an MLP 64-{width}-10 after {listed(steps)} steps, at worst: {worst['fisher']:.1g} for the Fisher "
        f"matrix, {worst['empirical']:.2g} for the empirical one, {worst['hessian']:.2g} for the Hessian.",
        TOLERANCE, "the two are the same sums in another order, so only rounding may differ",
        Verdict.of(number <= TOLERANCE), f"{number:.1g}, which is rounding",
        f"targets are those of the {targets}: it is off by {number:.2g}",
    )  # fmt: skip


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


def draw(table: Table) -> Figure:
    step = column(table, "step") + 1
    lines = [
        Line(step, column(table, "hessian"), "Hessian", PALETTE[2], marker="s"),
        Line(step, column(table, "empirical"), "empirical Fisher", PALETTE[1], marker="o"),
        Line(step, column(table, "fisher").clip(1e-17), "Fisher", PALETTE[0], marker="o"),
        Line([step[0], step[-1]], [TOLERANCE] * 2, f"tolerance {TOLERANCE:g}", GREY, ":", 1.2),
    ]
    name = "distance from the Gauss-Newton matrix"
    return chart([Panel(lines, "steps of training + 1", name, "log", "log", legend="center right")])
