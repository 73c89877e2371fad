"""Claim: the critical batch size grows from SGD to momentum to Adam. It is measured on the model, with every method tuned.

The authors find this order on networks. What it is on networks, studies say: ``nqm paper --only networks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...optimizers import SGD, Adam, HeavyBall, Optimizer, Preconditioned
from ...search.sweeps import Definition
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import brief, spelled
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ..instance import PaperStudy, sweep_rows
from .base import PAPER, Measured

STATEMENT = (
    "On the noisy quadratic model, as on the authors' networks, the critical batch size is smallest for SGD, larger with momentum, "
    "and larger still for Adam."
)
ORIGIN = PAPER
SOURCE = (
    "on networks, with the figures of steps against batch size; the number here is about the model, not about networks"
)
IDEAL = Preconditioned(HeavyBall(), 0.5)
TURN = ("H^-1/2 with tuned momentum stands for Adam", {"adam": IDEAL})
TOLERANCE = 1.1
METHODS: dict[str, Optimizer] = {"SGD": SGD(), "heavy ball": HeavyBall()}
BY: tuple[Definition, ...] = ("2x", "20%")
USUAL = Adam()


def measure(study: PaperStudy, adam: Optimizer = USUAL) -> Measured:
    """Critical batch size of each method over that of the method before, by two definitions.

    Parameters
    ----------
    adam : the optimizer that is called Adam, with the settings that are tuned left free.
    """
    methods = {**METHODS, "Adam": adam}
    sweeps = dict(zip(methods, study.ask([study.to_sweep(method) for method in methods.values()]), strict=True))
    critical = {name: {by: found.critical_batch_size(by) for by in BY} for name, found in sweeps.items()}
    table = [row | critical[name] for name, found in sweeps.items() for row in sweep_rows(found, optimizer=name)]
    factors = {pair: [critical[pair[1]][by] / critical[pair[0]][by] for by in BY] for pair in pairwise(methods)}
    worst = {pair: min(found) for pair, found in factors.items()}
    held = [pair for pair, factor in worst.items() if factor >= TOLERANCE]
    lost = [pair for pair in worst if pair not in held]
    sizes = "; ".join(f"{' and '.join(brief(b) for b in by.values())} for {name}" for name, by in critical.items())
    fewer = column(table, "steps", optimizer="heavy ball") / column(table, "steps", optimizer="Adam")
    return Measured(
        table, min(worst.values()), "smallest factor in critical batch size from one method to the next",
        f"Batch sizes 20% and 100% above perfect scaling: {sizes}. Heavy ball takes {brief(float(np.nanmin(fewer)))} to "
        f"{brief(float(np.nanmax(fewer)))} times the steps of Adam.",
        TOLERANCE, "critical batch sizes are good to 1%, and mean fields to some percent; 10% is above their error",
        Verdict.of(*(pair in held for pair in worst)),
        _said(factors, held),
        "" if not lost else f"Adam is tuned on the model itself: {_said(factors, lost)}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    lines = []
    for name, color in zip(distinct(table, "optimizer"), PALETTE, strict=False):
        sizes, examples = (column(table, c, optimizer=name) for c in ("batch_size", "examples"))
        excess = examples / np.nanmin(examples)
        lines.append(Line(sizes, excess, name, color, marker="o"))
        for by, high in zip(BY, (1.2, 2.0), strict=True):
            lines.append(Line([column(table, by, optimizer=name)[0]], [high], "", color, "", marker="D"))
    return chart([Panel(lines, "batch size", "examples over the fewest", "log2", "log2", y_limits=(0.9, 64.0))])


def _said(factors: dict[tuple[str, str], list[float]], pairs: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"factors of {spelled(factors[pair])} from {pair[0]} to {pair[1]}" for pair in pairs)
