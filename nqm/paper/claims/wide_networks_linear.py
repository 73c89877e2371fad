"""Claim: wide networks stay near their linearisation. Networks of growing width are trained beside their linearisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...optimizers import SGD
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import spelled
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ...types import Wrong
from .base import Measured
from .nets import NETS, one_thread

if TYPE_CHECKING:
    from ...nets.network import Network

Scale = Literal["ntk", "mean_field"]

STATEMENT = "Wide networks stay near their linearisation while they are trained."
NEEDS = NETS
ORIGIN = "Jacot et al. (2018) and Lee et al. (2019)"
SOURCE = "on wide networks; the paper cites them on why a quadratic"
TURN = ("outputs are means over the units, with a rate that makes up for it (mean field)", {"scale": "mean_field"})
TOLERANCE = -0.25
POWERS: dict[Scale, float] = {"ntk": -0.5, "mean_field": -1.0}


def measure(
    scale: Scale = "ntk", widths: Sequence[int] = (16, 64, 256, 1024), lr: float = 1.0, steps: int = 40,
    examples: int = 96, seeds: int = 2,
) -> Measured:  # fmt: skip
    """Slope of log distance over log width, with the distance between a network and its linearisation after training.

    Both take the same steps of full-batch gradient descent from the same start. The distance between their outputs on the
    data is divided by the distance that the outputs of the network have moved. Lee et al. bound it by width^-1/2.

    Parameters
    ----------
    scale : scale of the output, width^-1/2 ("ntk") or width^-1 ("mean_field"); the learning rate is scaled so that outputs
        move at a speed that does not depend on the width.
    widths : numbers of hidden tanh units, on scikit-learn's digits.
    lr, steps : learning rate and number of steps of gradient descent.
    examples : number of training examples.
    seeds : number of starts over which the distance is averaged.
    """
    if len(widths) < 2:
        raise Wrong(f"widths must be two or more for a slope, got {list(widths)}", argument="widths")
    table: Table = []
    with one_thread():
        for name, width in product(POWERS, widths):
            starts = [_network(name, width, examples, seed) for seed in range(seeds)]
            found = np.mean([_distance(start, _rate(name, width, lr), steps) for start in starts], axis=0)
            table.append({"scale": name, "width": width, "distance": float(found[0]), "loss": float(found[1])})
    slopes = {name: _slope(table, name) for name in POWERS}
    distances = {name: spelled(column(table, "distance", scale=name)) for name in POWERS}
    slope = slopes[scale]
    first, last = column(table, "distance", scale=scale)[[0, -1]]
    return Measured(
        table, slope, "slope of log distance over log width",
        f"Distance between the outputs of network and linearisation after {steps} steps, over the distance moved, at widths "
        f"{spelled(widths, 6)}: {distances['ntk']} (slope {slopes['ntk']:.2f}) with outputs scaled by width^-1/2, "
        f"{distances['mean_field']} (slope {slopes['mean_field']:.2f}) with outputs scaled by 1/width.",
        TOLERANCE, "the bound for wide networks has the slope -1/2, and networks that learn features have 0; -1/4 is half way",
        Verdict.of(slope <= TOLERANCE), f"a distance of {last:.2g} at width {widths[-1]:,}, falling as width^{slope:.2f}",
        f"outputs are scaled by width^{POWERS[scale]:g}: the distance goes from {first:.2g} to {last:.2g}",
    )  # fmt: skip


def _network(scale: Scale, width: int, examples: int, seed: int) -> Network:
    """One hidden layer with weights of unit variance: ``width^power a' tanh(W x / 8)``."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    from ...nets.network import Network
    from ...nets.workloads import workload

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(seed)
            self.W = nn.Parameter(torch.randn(width, 64, generator=generator))
            self.a = nn.Parameter(torch.randn(10, width, generator=generator))

        def forward(self, x: Any) -> Any:
            return width ** POWERS[scale] * F.linear(torch.tanh(F.linear(x, self.W / 8)), self.a)

    return Network(Wide(), F.cross_entropy, workload("digits").data(examples))


def _rate(scale: Scale, width: int, lr: float) -> float:
    """The learning rate; outputs move by the rate times width^(1 + 2 power), which is the sum over units of squared slopes."""
    return lr * width ** (-1 - 2 * POWERS[scale])


def _distance(network: Network, lr: float, steps: int) -> tuple[float, float]:
    """The distance between the two outputs, over how far the network's have moved; and the network's loss after training."""
    from ...nets.training.loop import Batches, walk

    still = network.output(network.theta, network.data)
    outputs, losses = [], []
    for one in (network, network.linearised()):
        batches = Batches(one.examples, (0,))
        ((_, theta),) = walk(one, SGD(lr), math.inf, [steps], batches=batches)
        outputs.append(one.output(theta, one.data).detach())
        losses.append(one.full_loss(theta))
    real, linear = outputs
    return float((real - linear).norm() / (real - still).norm()), losses[0]


def _slope(table: Table, scale: Scale) -> float:
    width, distance = column(table, "width", scale=scale), column(table, "distance", scale=scale)
    return float(np.polyfit(np.log(width), np.log(distance), 1)[0])


def draw(table: Table) -> Figure:
    names = {"ntk": "outputs scaled by width^-1/2", "mean_field": "outputs scaled by 1/width"}
    lines = [
        Line(column(table, "width", scale=k), column(table, "distance", scale=k), name, PALETTE[i], marker="o")
        for i, (k, name) in enumerate(names.items())
    ]
    width, distance = column(table, "width", scale="ntk"), column(table, "distance", scale="ntk")
    for power, style in ((-0.5, "--"), (-1.0, ":")):
        lines.append(Line(width, distance[0] * (width / width[0]) ** power, f"slope {power:g}", GREY, style, 1.2))
    name = "distance from the linearised network"
    return chart([Panel(lines, "width of the hidden layer", name, "log2", "log", legend="lower left")])
