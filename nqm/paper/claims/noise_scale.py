"""Claim: the gradient noise scale predicts the order of magnitude of the critical batch size."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...optimizers import SGD
from ...show.chart import BLACK, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import brief
from ...show.tables import Table, column, rows_of
from ...show.verdict import Verdict
from ..drawing import level
from ..instance import PaperStudy
from .base import Measured

STATEMENT = (
    "The gradient noise scale tr(HC) / g'Hg, averaged over a run, predicts the order of magnitude of the critical batch "
    "size, fewest examples over fewest steps."
)
ORIGIN = "McCandlish et al. (2018)"
SOURCE = "An empirical model of large-batch training, which the paper cites"
TURN = ("it is measured at the start", {"at": "start"})
TOLERANCE = 10**0.5


def measure(study: PaperStudy, at: Literal["run", "start"] = "run") -> Measured:
    """Noise scale along SGD's tuned run at the batch size nearest to the critical one, over that critical batch size.

    Parameters
    ----------
    at : whether the noise scale is averaged over the steps of the run ("run") or taken at its start ("start").
    """
    found = study.sweep(SGD())
    critical = found.critical_batch_size("ratio")
    near = int(np.argmin(np.abs(np.log(found.batch_sizes / critical))))
    optimizer, batch_size = found.optimizers[near], float(found.batch_sizes[near])
    assert optimizer is not None  # SGD reaches every target, because its floor falls with its rate.
    run = study.problem.run(optimizer, batch_size, int(found.steps[near]), points=160)
    scales = {"curvature": run.curvature_noise_scale, "simple": run.noise_scale}
    table = [{**row, "critical": critical} for row in rows_of({"step": run.steps, **scales})]
    taken = {k: float(v[0] if at == "start" else _average(run.steps, v)) for k, v in scales.items()}
    off = float(max(taken["curvature"] / critical, critical / taken["curvature"]))
    where = "at the start" if at == "start" else "on average over the run"
    return Measured(
        table, off, "factor between the noise scale and the critical batch size",
        f"At B = {batch_size:,.0f} tr(HC) / g'Hg is {brief(taken['curvature'])} {where} and grows from "
        f"{brief(scales['curvature'][0])} to {brief(scales['curvature'][-1])}; the critical batch size Emin / Smin is "
        f"{critical:,.0f}. The simpler tr C / |g|^2 is {brief(taken['simple'])} {where}.",
        TOLERANCE, "what is promised is the order of magnitude: a factor of sqrt(10) either way",
        Verdict.of(off <= TOLERANCE), f"a factor of {off:.2g}",
        f"the noise scale is taken {where}: it is off by a factor of {off:.3g}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    steps = column(table, "step")
    lines = [
        Line(steps, column(table, "curvature"), "tr(HC) / g'Hg", PALETTE[0]),
        Line(steps, column(table, "simple"), "tr C / $|g|^2$", PALETTE[1]),
        Line(steps, column(table, "critical"), "critical batch size", BLACK, "--", 1.2),
    ]
    lines.append(level(steps[1:], _average(steps, column(table, "curvature")), "average over the run"))
    return chart([Panel(lines, "step", "noise scale", "log", "log2")])


def _average(steps: np.ndarray, values: np.ndarray) -> float:
    """Mean over all steps of a quantity that is known at some of them, by the trapezoidal rule."""
    return float(np.diff(steps) @ (values[1:] + values[:-1]) / 2 / (steps[-1] - steps[0]))
