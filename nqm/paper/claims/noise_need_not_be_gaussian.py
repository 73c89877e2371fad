"""Claim: the noise need not be Gaussian. Runs under other laws of noise are compared with the exact loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...optimizers import HeavyBall
from ...show.chart import BLACK, Figure, Line, Panel, chart, ramp
from ...show.numbers import percent
from ...show.tables import Table, column, distinct, rows_of
from ...show.verdict import Verdict
from ..instance import instance
from .base import PAPER, Measured

STATEMENT = "The noise need not be Gaussian: the expected loss depends on its variance alone."
ORIGIN = PAPER
SOURCE = "on the model: noise has mean 0 and covariance C / B"
IDENTITY = "the step is linear in the noise, so second moments depend on its variance alone"
TURN = ("its tails are so heavy that it has no mean", {"laws": ("cauchy",)})
LAWS = ("gaussian", "rademacher", "laplace", "exponential", "student_t(5)")
LARGEST = 4.0  # A mean further than this many standard errors from the exact loss is not explained by chance.
TOLERANCE = 0.1


def measure(
    laws: Sequence[str] = LAWS, dim: int = 30, steps: int = 200, replicas: int = 3000, seed: int = 0
) -> Measured:
    """Largest relative gap between the mean loss of sampled runs of heavy ball under each law and the exact loss.

    Parameters
    ----------
    laws : names of the laws of the noise on each mode.
    dim : number of modes, with h = 1/i and C = H.
    steps, replicas, seed : length, number and seed of the sampled runs, at batch size 4.
    """
    problem, optimizer = instance(dim), HeavyBall(0.1, 0.8)
    exact = problem.run(optimizer, 4, steps, points=12)
    table = []
    for i, law in enumerate(laws):
        run = problem.sample(optimizer, 4, exact.steps.tolist(), replicas=replicas, noise=law, seed=seed + i, workers=1)
        assert run.stderr is not None
        columns = {"step": run.steps, "loss": run.loss, "stderr": run.stderr, "exact": exact.loss}
        rows = rows_of(columns | {"gap": run.loss / exact.loss - 1})
        table += [{"law": law, **row, "z": (row["loss"] - row["exact"]) / row["stderr"]} for row in rows if row["step"]]
    gap = {law: float(np.abs(column(table, "gap", law=law)).max()) for law in laws}
    z = {law: float(np.abs(column(table, "z", law=law)).max()) for law in laws}
    worst, largest = max(gap.values()), max(z.values())
    held = {law: z[law] <= LARGEST and gap[law] <= TOLERANCE for law in laws}
    told = "; ".join(f"{percent(gap[law])} ({z[law]:.2g} standard errors) under {law}" for law in laws)
    return Measured(
        table, worst, "largest relative gap between sampled and exact loss",
        f"Largest gap between the mean of {replicas:,} runs and the exact loss over {steps} steps: {told}.",
        TOLERANCE, "a mean over this many runs is good to 1% or 2%; the gap must also stay below 4 standard errors, "
        "which chance exceeds once in 15,000 times",
        Verdict.of(*held.values()), f"{percent(worst)}, at most {largest:.2g} standard errors",
        "; ".join(f"the noise is {law} (the mean loss is off by {percent(gap[law])})" for law in laws if not held[law]),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    laws = distinct(table, "law")
    lines = [Line(column(table, "step", law=laws[0]), column(table, "exact", law=laws[0]), "exact", BLACK, width=1.0)]
    scores = []
    for law, color in zip(laws, ramp(len(laws)), strict=True):
        steps, loss = column(table, "step", law=law), column(table, "loss", law=law)
        lines.append(Line(steps, loss, law, color, "", marker="o"))
        scores.append(Line(steps, column(table, "z", law=law), law, color, "", marker="o"))
    panels = [
        Panel(lines, "step", "mean loss", "log", "log", legend="none"),
        Panel(scores, "step", "standard errors from exact", "log", legend="none", y_limits=(-5.0, 5.0)),
    ]
    return chart(panels, key=lines)
