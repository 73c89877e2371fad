"""Claim: experiments on the model take seconds. The time of a tuned sweep over batch sizes is measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...optimizers import HeavyBall
from ...search.sweeps import sweep
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import brief
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ...types import Array
from ..drawing import level
from ..instance import BATCH_SIZES, TARGET, WITH_MOMENTUM, instance
from .base import Measured

STATEMENT = "On the noisy quadratic model experiments over algorithms, batch sizes and settings take seconds."
SOURCE = "on what the model is for"
TURN = ("losses are found by stepping", {"engine": "steps"})
TOLERANCE = 60.0
SETTINGS = 100  # The settings of a modest grid: ten learning rates times ten momenta.


def measure(
    engine: Literal["powers", "steps"] = "powers", batch_sizes: Sequence[float] = BATCH_SIZES, dim: int = 10_000
) -> Measured:
    """CPU seconds to tune SGD and heavy ball at every batch size; the only number here that depends on the machine.

    Parameters
    ----------
    engine : "powers" tunes as this library does. "steps" is what a plain NumPy loop over steps would take for a grid of
        100 settings: the time of one step, measured, times the steps of the tuned runs.
    batch_sizes : batch sizes to tune at.
    dim : number of modes of the problem, h = 1/i.
    """
    problem = instance(dim)
    sweep(problem, HeavyBall(), [64.0], target=0.5)  # This compiles the loops, or loads them.
    table = []
    for name, optimizer in WITH_MOMENTUM.items():
        begun = time.process_time()
        steps = float(np.nansum(sweep(problem, optimizer, batch_sizes, target=TARGET).steps))
        spent = time.process_time() - begun
        each = _one_step(problem.spectrum.h, momentum=name != "SGD")
        table.append({"method": name, "seconds": spent, "steps": steps, "loop_seconds": each * steps * SETTINGS})
    tuned, loop = column(table, "seconds").sum(), column(table, "loop_seconds").sum()
    number = float(tuned if engine == "powers" else loop)
    return Measured(
        table, number, "CPU seconds",
        f"Tuning SGD and heavy ball at {len(batch_sizes)} batch sizes on {dim:,} modes took {tuned:.2g} s of CPU time here; "
        f"stepping a grid of {SETTINGS} settings through the same runs would take {brief(loop, 2)} s, {brief(loop / tuned, 1)} times "
        "as long. Seconds are this machine's.",
        TOLERANCE, "after a minute of one core, people stop waiting for an answer",
        Verdict.of(number <= TOLERANCE), f"{number:.2g} s on this machine",
        f"losses are found step by step: {brief(number, 2)} s",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    ticks = {float(i): row["method"] for i, row in enumerate(table)}
    where = list(ticks)
    lines = [
        Line(where, column(table, "loop_seconds"), f"stepping through {SETTINGS} settings", PALETTE[1], "", marker="s"),
        level([-0.5, len(where) - 0.5], TOLERANCE, "one minute", PALETTE[2]),
        Line(where, column(table, "seconds"), "tuned by powers", PALETTE[0], "", marker="o"),
    ]
    return chart(
        [Panel(lines, "", "CPU seconds for ten batch sizes", "linear", "log", legend="none", x_ticks=ticks)], key=lines
    )


def _one_step(h: Array, momentum: bool) -> float:
    """CPU seconds for one step of the second moments (E theta^2, E theta m, E m^2) of every mode, in plain NumPy."""
    u, v, w = np.ones_like(h), np.zeros_like(h), np.zeros_like(h)
    steps, lr, beta, begun = 500, 0.1, 0.9, time.process_time()
    for _ in range(steps):
        if momentum:
            w, v = beta**2 * w + 2 * beta * h * v + h**2 * u + h, beta * v + h * u
            u, v = u - 2 * lr * v + lr**2 * w, v - lr * w
        else:
            u = (1 - lr * h) ** 2 * u + lr**2 * h
    return (time.process_time() - begun) / steps
