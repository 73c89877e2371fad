"""What claims about networks share: a small network on real data, its Gauss-Newton matrix, and matrices compared with that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import spelled
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..drawing import level
from .base import Measured

if TYPE_CHECKING:
    from torch import Tensor

    from ...nets.network import Network

NETS = ("torch", "nets")  # The module that these claims need, and the extra that installs it.
ROUNDING = 1e-12  # Matrices closer than this, relative to their norm, differ by rounding alone.


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch on one thread: claims share the processors, and threads that wait for one another waste them."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def digits(width: int, examples: int, steps: int, seed: int) -> Network:
    """An MLP with one hidden layer of tanh units on scikit-learn's digits, in float64, after some steps of SGD."""
    import torch
    from torch import nn

    from ...nets.workloads import workload

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))

    return replace(workload("digits"), model=model).network(steps, seed=seed, examples=examples, dtype=torch.float64)


def gauss_newton(network: Network) -> Tensor:
    """``mean J' (diag p - p p') J`` from whole Jacobians; the products of `GaussNewton` are computed in another way."""
    import torch

    theta, (x, _) = network.theta, network.data
    jacobian = torch.func.jacrev(lambda t, one: network.output(t, (one[None],))[0])
    J = torch.func.vmap(jacobian, in_dims=(None, 0))(theta, x)
    with torch.no_grad():
        p = network.output(theta, (x,)).softmax(1)
    bend = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (J.transpose(1, 2) @ (bend @ J)).mean(0)


def distances(
    matrices: Callable[[Network], Mapping[str, Tensor]], steps: Sequence[int], width: int, examples: int, seed: int
) -> Table:
    """Distance ``|A - G| / |G|`` of each matrix A from the Gauss-Newton matrix G, in the Frobenius norm.

    Parameters
    ----------
    matrices : the matrices A of a network, by name.
    steps : numbers of SGD steps; there is a checkpoint of the network, and a row, after each.
    width : number of hidden units of the MLP.
    examples : number of training examples.
    seed : seed of the start and of the batches.
    """
    table: Table = []
    with one_thread():
        for t in steps:
            network = digits(width, examples, t, seed)
            G = gauss_newton(network)
            found = {name: float((A - G).norm() / G.norm()) for name, A in matrices(network).items()}
            table.append({"step": t, **found})
    return table


def compared(table: Table, names: Mapping[str, str], decides: str, width: int, when: str) -> Measured:
    """What follows from `distances`: the matrix ``decides`` is the Gauss-Newton matrix if it differs by rounding alone.

    ``names`` are the names of the columns in a sentence, and ``when`` says which premise the claim fails under.
    """
    worst = {kind: float(column(table, kind).max()) for kind in names}
    told = ", ".join(f"{worst[kind]:.2g} for the {name}" for kind, name in names.items())
    steps, number = spelled(row["step"] for row in table), worst[decides]
    return Measured(
        table, number, "largest relative distance from the Gauss-Newton matrix",
        f"Largest |A - G| / |G| on an MLP 64-{width}-10 after {steps} steps, with G the Gauss-Newton matrix: {told}.",
        ROUNDING, "the two matrices are the same sums in another order, so only rounding may differ",
        Verdict.of(number <= ROUNDING), f"{number:.1g}, which is rounding", f"{when}: the distance is {number:.2g}",
    )  # fmt: skip


def draw_distances(table: Table, names: Mapping[str, str]) -> Figure:
    """The distances at each checkpoint, one line for each matrix."""
    step = column(table, "step") + 1
    lines = [
        Line(step, column(table, kind).clip(1e-17), name, color, marker="o")
        for (kind, name), color in zip(names.items(), PALETTE, strict=False)
    ]
    y = "distance from the Gauss-Newton matrix"
    panel = Panel([*lines, level(step, ROUNDING)], "steps of training + 1", y, "log", "log", legend="center right")
    return chart([panel])
