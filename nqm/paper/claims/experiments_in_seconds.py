"""Claim: experiments on the model take seconds. The time of a tuned sweep over batch sizes is measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...optimizers import HeavyBall
from ...search.sweeps import sweep
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..drawing import level
from ..grid_search import GridSearch
from ..instance import BATCH_SIZES, POWERS, TARGET, WITH_MOMENTUM, instance, preconditioned
from .base import PAPER, Measured

STATEMENT = "On the noisy quadratic model experiments over algorithms, batch sizes and settings take seconds."
ORIGIN = PAPER
SOURCE = "on what the model is for"
TURN = ("settings are searched on the authors' grid, with a bisection over steps for each", {"search": "grid"})
TOLERANCE = 60.0
PART = (
    1 / 200
)  # The share of the settings of the authors' grid that is timed; ``python -m benchmarks figure_3a`` times 1/25.


def measure(
    search: Literal["tuned", "grid"] = "tuned", batch_sizes: Sequence[float] = BATCH_SIZES, powers: Sequence[float] = POWERS,
    dim: int = 10_000,
) -> Measured:  # fmt: skip
    """CPU seconds for Figure 3a: SGD and heavy ball tuned at every batch size; the only number here that depends on the machine.

    Parameters
    ----------
    search : "tuned" tunes as this library does. "grid" is the authors' grid search (`GridSearch`), from the time of a part of its
        settings, drawn at random.
    batch_sizes, powers : batch sizes, and powers p of the preconditioner H^-p, to tune at.
    dim : number of modes of the problem, h = 1/i.
    """
    problem = instance(dim)
    sweep(problem, HeavyBall(), [64.0], 0.5, most_added=0)  # This compiles the loops, or loads them.
    table = []
    for name, optimizer in WITH_MOMENTUM.items():
        begun = time.process_time()
        found = [sweep(problem, preconditioned(optimizer, p), batch_sizes, TARGET, most_added=0) for p in powers]
        steps, spent = float(np.nansum([one.steps for one in found])), time.process_time() - begun
        theirs = [GridSearch(problem.spectrum, TARGET, p, momentum=name != "SGD") for p in powers]
        grid = sum(one.seconds(size, PART, seed=i) for one in theirs for i, size in enumerate(batch_sizes))
        table.append({"method": name, "seconds": spent, "steps": steps, "grid_seconds": grid})
    tuned, grid = column(table, "seconds").sum(), column(table, "grid_seconds").sum()
    number = float(tuned if search == "tuned" else grid)
    return Measured(
        table, number, "CPU seconds",
        f"Tuning SGD and heavy ball at {len(batch_sizes)} batch sizes for {len(powers)} preconditioners, on {dim:,} modes, took "
        f"{tuned:.2g} s of CPU time here; the "
        f"authors' grid search would take {grid:,.0f} s, {grid / tuned:,.0f} times as long, by the time of one setting in "
        f"{1 / PART:.0f}. Seconds are this machine's.",
        TOLERANCE, "after a minute of one core, people stop waiting for an answer",
        Verdict.of(number <= TOLERANCE), f"{number:.2g} s on this machine",
        f"settings are searched on the authors' grid: {number:,.0f} s",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    ticks = {float(i): row["method"] for i, row in enumerate(table)}
    where = list(ticks)
    lines = [
        Line(where, column(table, "grid_seconds"), "the authors' grid search", PALETTE[1], "", marker="s"),
        level([-0.5, len(where) - 0.5], TOLERANCE, "one minute", PALETTE[2]),
        Line(where, column(table, "seconds"), "tuned here", PALETTE[0], "", marker="o"),
    ]
    return chart(
        [Panel(lines, "", "CPU seconds for Figure 3a", "linear", "log", legend="none", x_ticks=ticks)], key=lines
    )
