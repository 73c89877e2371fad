"""Claim: an average of the weights lowers the steady-state risk."""

from __future__ import annotations

import numpy as np

from ...optimizers import EMA, SGD, HeavyBall
from ...problems.quadratic import Quadratic
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import spelled
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ..instance import instance
from .base import PAPER, Measured

STATEMENT = "An exponential moving average of the weights lowers the steady-state risk."
ORIGIN = PAPER
SOURCE = "on exponential moving averages"
ROUNDING = 1e-9  # Floors that differ by less than this, relative to their size, are equal.
METHODS = {"SGD, lr 0.1": SGD(0.1), "SGD, lr 1": SGD(1.0), "heavy ball, lr 0.1, momentum 0.9": HeavyBall(0.1, 0.9)}
DECAYS = (0.0, *(1 - 2.0 ** -np.arange(1.0, 14.1)))


def measure(decay: float = 0.99, dim: int = 10_000) -> Measured:
    """Steady-state risk of the average of an optimizer's weights over that of the optimizer, on h_i = 1/i, C = H.

    Parameters
    ----------
    decay : decay of the average.
    dim : number of modes of the problem.
    """
    problem = instance(dim)
    table = []
    for name, inner in METHODS.items():
        plain = problem.floor(inner, 1)
        for g in sorted({*DECAYS, decay}):
            ratio = problem.floor(EMA(inner, float(g)), 1) / plain
            table.append({"method": name, "decay": float(g), "ratio": float(ratio)})
    ratios = [row["ratio"] for row in table if row["decay"] == decay]
    lowest = [column(table, "ratio", method=name).min() for name in METHODS]
    worst = max(ratios)
    told = (
        f"At decay {decay:g} the floor of the average is {spelled(ratios)} of the optimizer's own for "
        f"{'; '.join(METHODS)}; at decay {max(DECAYS):.5f} it is {spelled(lowest, 2)}. The engine's floors agree "
        f"with the closed form for SGD to {max(_closed_form_gap(problem, decay), 1e-16):.0e}."
    )
    return Measured(
        table, worst, "largest ratio of the floor with the average to the floor without it", told,
        1 - ROUNDING, "floors are exact, so anything below 1 by more than rounding is a lower floor",
        Verdict.of(worst < 1 - ROUNDING), "", f"the decay is {decay:g}: the floor is {worst:.3g} times the optimizer's own",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    lines = [
        Line(1 / (1 - column(table, "decay", method=name)), column(table, "ratio", method=name), name, color)
        for name, color in zip(distinct(table, "method"), PALETTE, strict=False)
    ]
    ticks = {1.0: "0", 10.0: "0.9", 100.0: "0.99", 1e3: "0.999", 1e4: "0.9999"}
    panel = Panel(lines, "decay of the average", "floor over the floor without it", "log", "log", x_ticks=ticks)
    return chart([panel])


def _closed_form_gap(problem: Quadratic, decay: float) -> float:
    """Relative gap between the engine's floor of averaged SGD and its closed form.

    The closed form of a mode is SGD's floor times (1 - g)(1 + rho g) / ((1 + g)(1 - rho g)), with g the decay of the
    average and rho = 1 - lr h.
    """
    h, lr = problem.spectrum.h, 1.0
    rho = 1 - lr * h
    shrunk = (1 - decay) * (1 + rho * decay) / ((1 + decay) * (1 - rho * decay))
    known = float((problem.spectrum.noise_mass * lr / (h * (2 - lr * h)) * shrunk).sum())
    return abs(problem.floor(EMA(SGD(lr), decay), 1) / known - 1)
