"""The Hessian of a linearised network's loss, and the Gauss-Newton matrix of the network."""

from __future__ import annotations

from collections.abc import Sequence

from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column
from ...show.verdict import Verdict
from .base import Measured
from .nets import NEEDS, digits, gap, gauss_newton, listed, one_thread

STATEMENT = "The Hessian of the loss of the linearised network is the Gauss-Newton matrix of the network."
SOURCE = "on the curvature of networks"
TURN = ("the network is not linearised", {"linearised": False})
TOLERANCE = 1e-12

__all__ = ["NEEDS", "SOURCE", "STATEMENT", "TURN", "draw", "measure"]


def measure(
    linearised: bool = True, steps: Sequence[int] = (0, 30, 300), width: int = 8, examples: int = 100, seed: int = 0
) -> Measured:
    """Relative distance of the Hessian from the Gauss-Newton matrix, whole matrices in float64, at worst over a training.

    Hessians come from differentiating a loss twice; the Gauss-Newton matrix from whole Jacobians of the outputs.

    Parameters
    ----------
    linearised : whether the output is replaced by its first-order expansion about the checkpoint.
    steps : of SGD before each of the checkpoints.
    width : of the hidden layer of an MLP on scikit-learn's digits.
    examples : of the data.
    seed : of start and batches.
    """
    from ...nets.curvature import Hessian

    table: Table = []
    with one_thread():
        for t in steps:
            network = digits(width, examples, t, seed)
            G = gauss_newton(network)
            there = {"linearised": network.linearised(), "network": network}
            table.append({"step": t, **{k: gap(Hessian(n, vectors=64).dense(), G) for k, n in there.items()}})
    worst = {kind: float(column(table, kind).max()) for kind in ("linearised", "network")}
    number = worst["linearised" if linearised else "network"]
    return Measured(
        table, number, "largest relative distance of the Hessian from the Gauss-Newton matrix",
        f"|H - G| / |G| on an MLP 64-{width}-10 after {listed(steps)} steps, at worst: {worst['linearised']:.1g} for the "
        f"linearised network, {worst['network']:.2g} for the network itself.",
        TOLERANCE, "the two are the same sums in another order, so only rounding may differ",
        Verdict.of(number <= TOLERANCE), f"{number:.1g}, which is rounding",
        f"the network itself bends: its Hessian is off by {number:.2g}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    step = column(table, "step") + 1
    lines = [
        Line(step, column(table, "network"), "Hessian of the network", PALETTE[1], marker="o"),
        Line(step, column(table, "linearised").clip(1e-17), "of the linearised network", PALETTE[0], marker="o"),
        Line([step[0], step[-1]], [TOLERANCE] * 2, f"tolerance {TOLERANCE:g}", GREY, ":", 1.2),
    ]
    name = "distance from the Gauss-Newton matrix"
    return chart([Panel(lines, "steps of training + 1", name, "log", "log", legend="center right")])
