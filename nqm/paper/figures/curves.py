"""Appendix: training curves of SGD at five learning rates, d = 5000, batch size 1."""

from __future__ import annotations

import numpy as np

from ...engine.spectrum import Spectrum
from ...optimizers import SGD
from ...problems.quadratic import Quadratic
from ...show.chart import GREY, Figure, Line, Panel, chart, ramp
from ...show.numbers import spelled
from ...show.tables import Table, column, distinct, rows_of
from ...show.verdict import Finding, Verdict
from ..instance import PaperStudy

TITLE = "Appendix: training curves at five learning rates"
CAPTION = (
    "Expected loss of SGD over 20,000 steps at batch size 1 on d = 5000 modes, h_i = 1/i. Dashed: the steady-state "
    "risk that each curve is heading for."
)
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
DIM, STEPS = 5000, 20_000


def data(study: PaperStudy | None = None) -> Table:
    """Step, loss, its signal and noise, and the steady-state risk, for each learning rate."""
    problem = Quadratic(Spectrum.power_law(DIM))
    table = []
    for lr in RATES:
        run = problem.run(SGD(lr), batch_size=1, steps=STEPS, points=240)
        columns = {"step": run.steps, "loss": run.loss, "signal": run.signal, "noise": run.noise}
        table += [{"lr": lr, **row, "floor": run.floor} for row in rows_of(columns)]
    return table


def draw(table: Table) -> Figure:
    lines = []
    rates = distinct(table, "lr")
    for lr, color in zip(rates, ramp(len(rates)), strict=True):
        steps, loss, floor = (column(table, name, lr=lr) for name in ("step", "loss", "floor"))
        lines.append(Line(steps, floor, "", color, "--", 0.8))
        lines.append(Line(steps, loss, f"lr = {lr:g}", color, width=1.8))
    panel = Panel(lines, "step", "expected loss", "log", "log", legend="none")
    key = [*(line for line in lines if line.label), Line([], [], "steady state", GREY, "--", 0.8)]
    return chart([panel], size=(5.5, 3.3), key=key)


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    early = {lr: _at(table, lr, 10) for lr in RATES}
    last = {lr: _at(table, lr, STEPS) for lr in RATES}
    floor = [early[lr]["floor"] for lr in RATES]
    signal = [early[lr]["signal"] for lr in RATES]
    best = [min(RATES, key=lambda lr: rows[lr]["loss"]) for rows in (early, last)]
    return [
        Finding(
            "A larger learning rate converges faster, but to a higher steady-state risk.",
            f"At lr = {spelled(RATES)}: signal left after 10 steps {spelled(signal)}; "
            f"steady-state risk {spelled(floor)}.",
            Verdict.of(bool(np.all(np.diff(signal) < 0)), bool(np.all(np.diff(floor) > 0))),
        ),
        Finding(
            "So the best constant rate depends on the length of the run: the longer the run, the smaller the rate.",
            f"Of these five, lr = {best[0]:g} has the least loss after 10 steps, lr = {best[1]:g} after {STEPS:,}.",
            Verdict.of(best[1] < best[0]),
        ),
    ]


def _at(table: Table, lr: float, step: int) -> dict[str, float]:
    """The numbers of a curve at a step, by linear interpolation between its points."""
    steps = column(table, "step", lr=lr)
    return {name: float(np.interp(step, steps, column(table, name, lr=lr))) for name in ("loss", "signal", "floor")}
