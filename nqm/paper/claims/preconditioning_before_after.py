"""Claim: a fixed preconditioner may be applied before momentum or after it."""

from __future__ import annotations

import numpy as np

from ...optimizers import DriftingPreconditioned, HeavyBall
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..drawing import level
from ..instance import instance
from .base import PAPER, Measured

STATEMENT = (
    "For a fixed preconditioner it is the same whether gradients are preconditioned before momentum or after it."
)
ORIGIN = PAPER
SOURCE = "on preconditioning together with momentum"
IDENTITY = "a fixed matrix may be taken out of the sum that momentum is"
TURN = ("the preconditioner drifts by half", {"drift": 0.5})
TOLERANCE = 1e-12
DRIFTS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def measure(
    drift: float = 0.0, power: float = 0.5, dim: int = 100, steps: int = 300, replicas: int = 64, seed: int = 0
) -> Measured:
    """Largest relative gap between the mean losses of the two orders, with the same starts and noise.

    Parameters
    ----------
    drift : relative amplitude with which the power p of H^-p oscillates, with a period of 100 steps.
    power : the power p.
    dim : number of modes, with h = 1/i and C = H.
    steps, replicas, seed : length, number and seed of the sampled runs, at batch size 64.
    """
    problem, inner = instance(dim), HeavyBall(0.1, 0.9)
    table = []
    for swing in sorted({*DRIFTS, drift}):
        before, after = (
            problem.sample(optimizer, 64, steps, replicas=replicas, seed=seed, workers=1)
            for order in ("before", "after")
            for optimizer in [DriftingPreconditioned(inner, power, swing, order=order)]
        )
        table.append({"drift": swing, "gap": float(np.abs(after.loss / before.loss - 1).max())})
    gap = next(row["gap"] for row in table if row["drift"] == drift)
    half = next(row["gap"] for row in table if row["drift"] == DRIFTS[-1])
    return Measured(
        table, gap, f"largest relative gap in the mean loss at a drift of {drift:g}",
        f"Largest relative gap over {steps} steps of heavy ball on {dim} modes, p = {power:g}: {table[0]['gap']:.1g} for a "
        f"fixed preconditioner, {half:.2g} for one whose power swings by half.",
        TOLERANCE, "the two runs add the same terms in another order, so only rounding may differ",
        Verdict.of(gap <= TOLERANCE), f"{gap:.1g}, which is rounding",
        f"the preconditioner drifts by {drift:g}: the orders differ by {gap:.2g}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    drift, gap = column(table, "drift"), column(table, "gap")
    moving = drift > 0
    lines = [
        Line(drift[moving], gap[moving], "drifting preconditioner", PALETTE[0], marker="o"),
        Line([drift[moving].min(), drift.max()], [max(gap[0], 1e-17)] * 2, "fixed preconditioner", PALETTE[1], "--"),
        level(drift[moving], TOLERANCE),
    ]
    name = "gap between before and after momentum"
    return chart([Panel(lines, "drift of the preconditioner's power", name, "log", "log", legend="center right")])
