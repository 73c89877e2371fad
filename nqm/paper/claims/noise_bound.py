"""Claim: no method needs fewer than d / (2CB) steps. The Bayes bound, which uses the start, is shown beside this bound."""

from __future__ import annotations

from collections.abc import Sequence

from ...optimizers import EMA, SGD, HeavyBall
from ...problems.bounds import bayes_bound, paper_bound
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..instance import PaperStudy
from .base import PAPER, Measured

STATEMENT = "No method needs fewer than d / (2CB) steps to reach the loss C."
ORIGIN = PAPER
SOURCE = "on the bound that Figure 3a shows"
TURN = ("the target is near the loss at the start", {"targets": (3.0,)})
TARGETS = (0.01, 3.0)
DRAWN = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 3.0, 4.0)
METHODS = {"SGD": SGD(), "heavy ball": HeavyBall(), "SGD with EMA": EMA(SGD())}


def measure(study: PaperStudy, targets: Sequence[float] = TARGETS) -> Measured:
    """Tuned steps of three methods at the smallest batch size, over d / (2CB); the table has the Bayes bound too.

    Parameters
    ----------
    targets : the losses C that decide.
    """
    size, spectrum = min(study.batch_sizes), study.problem.spectrum
    table = []
    for target in sorted({*DRAWN, *targets}):
        bounds = {"paper": paper_bound(spectrum, target, size), "bayes": bayes_bound(spectrum, target, size)}
        found = study.ask([study.to_sweep(optimizer, target, (size,)) for optimizer in METHODS.values()])
        steps = {name: float(one.steps[0]) for name, one in zip(METHODS, found, strict=True)}
        table.append({"target": target, "batch_size": size, **bounds, **steps})
    asked = [row for row in table if row["target"] in targets]
    over = {row["target"]: min(row[name] for name in METHODS) / row["paper"] for row in asked}
    told = "; ".join(
        f"{row['SGD']:,.0f} with SGD, {row['SGD with EMA']:,.0f} with its average, {row['paper']:,.0f} by d / (2CB), "
        f"{row['bayes']:,.0f} by the Bayes bound at C = {row['target']:g}"
        for row in asked
    )
    lost = [f"C = {t:g}, where the best of three takes {r:.2g} of it" for t, r in over.items() if r < 1]
    safe = all(row[name] >= row["bayes"] for row in asked for name in METHODS)
    return Measured(
        table, min(over.values()), "fewest steps over d / (2CB)",
        f"Steps at B = {size:g}: {told}. The start is information too; the bound that counts it "
        f"{'holds throughout' if safe else 'FAILS'}.",
        1.0, "steps are counted exactly, and a bound has no tolerance",
        Verdict.of(*(r >= 1 for r in over.values())),
        f"targets far below the loss at the start (at C = {min(over):g} the best of three takes {max(over.values()):.2g} times it)",
        "; ".join(lost),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    targets = column(table, "target")
    lines = [
        Line(targets, column(table, "bayes"), "lower bound (Bayes)", GREY, "-", 1.0),
        Line(targets, column(table, "paper"), "the paper's bound, d / (2CB)", GREY, "--", 1.2),
    ]
    lines += [Line(targets, column(table, m), m, c, marker="o") for m, c in zip(METHODS, PALETTE, strict=False)]
    name = f"steps at B = {table[0]['batch_size']:g}"
    return chart([Panel(lines, "target loss C", name, "log", "log")], size=(5.5, 3.8))
