"""Figure 2: what momentum does to one mode: convergence rate and steady-state risk at lr h = 0.0005."""

from __future__ import annotations

import math

import numpy as np

from ...engine.spectrum import Spectrum
from ...engine.trajectory import Trajectory
from ...optimizers import HeavyBall
from ...problems.quadratic import Quadratic
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column
from ...show.verdict import Finding, Verdict
from ..claims import claim
from ..instance import PaperStudy

TITLE = "Figure 2: rate and steady-state risk against momentum"
CAPTION = (
    "One mode at lr h = 0.0005, batch size 1. Left: the share of the distance that one step removes, 1 - |r|, r the "
    "larger root of the heavy-ball recursion. Right: the steady-state risk. Momentum speeds the mode up until critical "
    "damping, beyond which |r| is sqrt(momentum) whatever the learning rate is; the risk rises all the way."
)
X = 0.0005  # The learning rate times the curvature of the mode.
CRITICAL = (1 - math.sqrt(X)) ** 2  # The momentum of critical damping.
MEMORIES = np.geomspace(1.0, 1e4, 161)  # The values of 1 / (1 - momentum), spaced evenly on the axis of the picture.


def data(study: PaperStudy | None = None) -> Table:
    """Momentum, the rate 1 - |r|, the steady-state risk and the regime."""
    mode = Quadratic(Spectrum([1.0]))
    momenta = np.unique(np.append(1 - 1 / MEMORIES, CRITICAL))
    radius = Trajectory(HeavyBall(X, momenta[:, None]), mode.spectrum.h).stationary().radius()
    return [
        {"momentum": float(momentum), "rate": float(1 - r), "risk": mode.floor(HeavyBall(X, float(momentum)), batch_size=1),
         "regime": "over-damped" if momentum < CRITICAL else "under-damped"}
        for momentum, r in zip(momenta, radius, strict=True)
    ]  # fmt: skip


def draw(table: Table) -> Figure:
    memory = 1 / (1 - column(table, "momentum"))
    rate, risk = column(table, "rate"), column(table, "risk")
    best = memory[np.argmax(rate)]
    ticks = {1.0: "0", 10.0: "0.9", 100.0: "0.99", 1e3: "0.999", 1e4: "0.9999"}
    panels = []
    for values, name, color in ((rate, "rate  $1 - |r|$", PALETTE[0]), (risk, "steady-state risk", PALETTE[1])):
        ends = [values.max(), values.min()]
        upright = Line([best, best], ends, "", GREY, "--", 1.0, tag="critical damping", tag_at=(5.0, 4.0))
        curve = Line(memory, values, color=color, width=2.0)
        panels.append(Panel([upright, curve], "momentum", name, "log", "log", x_ticks=ticks))
    return chart(panels, size=(7.2, 2.9))


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    momentum, rate, risk = (column(table, name) for name in ("momentum", "rate", "risk"))
    top = int(np.argmax(rate))
    return [
        Finding(
            "Momentum speeds convergence up until critical damping and slows it beyond.",
            f"1 - |r| is {rate[0]:.3g} without momentum, {rate[top]:.3g} at its top, momentum {momentum[top]:.4f} "
            f"(critical damping, (1 - sqrt(lr h))^2 = {CRITICAL:.4f}), {rate[-1]:.3g} at {momentum[-1]:.4f}.",
            Verdict.of(abs(momentum[top] - CRITICAL) < 1e-3, rate[-1] < rate[top]),
        ),
        Finding(
            "Momentum raises the steady-state risk, so it cannot help where noise decides.",
            f"The risk rises {risk[top] / risk[0]:.3g}-fold from no momentum to critical damping, "
            f"by 1 / (1 - momentum) = {1 / (1 - momentum[top]):.3g} in essence.",
            Verdict.of(bool(np.all(np.diff(risk) > 0))),
        ),
        claim("lr_momentum_interchangeable").finding(),
    ]
