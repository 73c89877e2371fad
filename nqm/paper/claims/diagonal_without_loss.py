"""Claim: H may be taken diagonal. Runs in the eigenbasis of H and in a rotated basis have the same starts and the same noise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...optimizers import SGD, Adam, HeavyBall, Nesterov, Optimizer, Sign
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column, distinct, rows_of
from ...show.verdict import Verdict
from ..drawing import level
from ..instance import instance
from .base import PAPER, Measured

STATEMENT = "H may be taken diagonal without loss of generality: SGD, heavy ball and Nesterov do the same in any basis."
ORIGIN = PAPER
SOURCE = "on the model: H and C are diagonal"
IDENTITY = (
    "these steps are linear in the gradient with the same numbers for all weights, and so commute with a rotation"
)
LINEAR = {"SGD": SGD(0.5), "heavy ball": HeavyBall(0.2, 0.9), "Nesterov": Nesterov(0.2, 0.9)}
OTHERS = {"Adam": Adam(0.05, 0.9), "sign descent": Sign(0.02)}
TURN = ("the optimizer treats each coordinate by itself, as Adam and sign descent do", {"optimizers": OTHERS})
TOLERANCE = 1e-12


def measure(
    optimizers: Mapping[str, Optimizer] = LINEAR, dim: int = 200, steps: int = 200, replicas: int = 32, seed: int = 0
) -> Measured:
    """Largest relative gap between the mean losses of the two runs.

    Parameters
    ----------
    optimizers : the optimizers that decide; Adam and sign descent are in the table in any case.
    dim : number of modes, with h = 1/i and C = H.
    steps, replicas, seed : length, number and seed of the sampled runs, at batch size 16.
    """
    problem = instance(dim)
    table = []
    for name, optimizer in {**LINEAR, **OTHERS, **optimizers}.items():
        plain, rotated = (
            problem.sample(optimizer, 16, steps, points=30, replicas=replicas, seed=seed, rotation=basis, workers=1)
            for basis in (None, "random")
        )
        columns = {"step": plain.steps, "diagonal": plain.loss, "rotated": rotated.loss}
        columns["gap"] = np.abs(rotated.loss / plain.loss - 1)
        table += [{"optimizer": name, **row} for row in rows_of(columns)]
    gaps = {name: float(column(table, "gap", optimizer=name).max()) for name in distinct(table, "optimizer")}
    worst = max(gaps[name] for name in optimizers)
    told = ", ".join(f"{gap:.2g} for {name}" for name, gap in gaps.items())
    lost = [f"the optimizer is {name} (it is off by {gaps[name]:.2g})" for name in optimizers if gaps[name] > TOLERANCE]
    return Measured(
        table, worst, "largest relative gap in the mean loss between the two bases",
        f"Largest relative gap over {steps} steps between the mean losses of {replicas} runs on {dim} modes in the "
        f"eigenbasis and, with the same starts and noise, in a random one: {told}.",
        TOLERANCE, f"only rounding may differ: {steps} products with a dense matrix of {dim} rows leave less than 1e-14",
        Verdict.of(*(gaps[name] <= TOLERANCE for name in optimizers)), f"{worst:.1g}, which is rounding", "; ".join(lost),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    names = distinct(table, "optimizer")
    lines = [
        Line(column(table, "step", optimizer=name), column(table, "gap", optimizer=name).clip(1e-17), name, color)
        for name, color in zip(names, PALETTE, strict=False)
    ]
    lines.append(level(column(table, "step").clip(1), TOLERANCE))
    panel = Panel(lines, "step", "relative gap between the bases", "log", "log", legend="none", y_limits=(1e-17, 3.0))
    return chart([panel], key=lines)
