"""Claim: the preconditioner H^-1/2 stands for Adam. While noise dominates, Adam divides by the root of the noise."""

from __future__ import annotations

import numpy as np

from ...optimizers import Adam, HeavyBall
from ...show.chart import BLACK, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent, spelled
from ...show.tables import Row, Table, column
from ...show.verdict import Verdict
from ...types import Array
from ..drawing import level
from ..instance import POWERS, PaperStudy, preconditioned
from .base import OWN, Measured

STATEMENT = "The preconditioner H^-1/2 stands for Adam: both take the same number of tuned steps at every batch size."
ORIGIN = OWN
SOURCE = "a sharper form of the paper's reading of p = 1/2 as Adam"
TURN = ("the noise has the same variance on every mode", {"noise_exponent": 0.0})
TOLERANCE = 0.05
HALF = 0.5


def measure(
    study: PaperStudy, beta1: float = 0.0, beta2: float = 0.999, noise_exponent: float | None = None
) -> Measured:
    """Tuned steps of Adam over those of H^-1/2 with the same momentum, and the power p that would take as many as Adam.

    While noise dominates the gradients, v is c / B, so Adam divides gradients by sqrt(c / B). With C = H this is p = 1/2, and
    with c = h^q it is p = q / 2. Where the signal dominates, v follows the squared gradient itself, and no power stands for it.

    Parameters
    ----------
    beta1 : decay of Adam's average of gradients, and the momentum of the heavy ball that is preconditioned.
    beta2 : decay of Adam's average of squared gradients.
    noise_exponent : the noise has variance c = i^-noise_exponent on mode i; if omitted, C = H.
    """
    study = study.on(study.exponent, noise_exponent)
    families = [Adam(beta1=beta1, beta2=beta2), *(preconditioned(HeavyBall(momentum=beta1), p) for p in POWERS)]
    found = study.ask([study.to_sweep(family) for family in families])
    table = []
    for size, adam, *ideal in zip(study.batch_sizes, *(one.steps for one in found), strict=True):
        if np.isfinite([adam, *ideal]).all():  # Steps that no search reaches are omitted.
            ratio, power = adam / ideal[POWERS.index(HALF)], _power(adam, ideal)
            row: Row = {"batch_size": size, "adam": adam, "ratio": ratio, "power": power}
            table.append(row | {f"p = {p:g}": steps for p, steps in zip(POWERS, ideal, strict=True)})
    sizes, ratio, power = (column(table, name) for name in ("batch_size", "ratio", "power"))
    held = np.abs(ratio - 1) <= TOLERANCE
    variance = f"variance i^-{noise_exponent:g} on mode i" if noise_exponent else "the same variance on every mode"
    other = "" if noise_exponent is None else f"the noise has {variance}, "
    return Measured(
        table, abs(float(ratio[0]) - 1), "distance from 1 of Adam's steps over those of H^-1/2, at the smallest batch size",
        f"At B = {_sizes(sizes)} Adam takes {spelled(ratio)} times the steps of H^-1/2. The power p that takes as many steps as "
        f"Adam is {spelled(power, 2)}.",
        TOLERANCE, "at small batch sizes 5% of the steps is a difference in p of about 0.03",
        Verdict.of(*held), "" if not held.any() else f"{percent(np.abs(ratio - 1)[held].max())} at B = {_sizes(sizes[held])}",
        "" if held.all() else f"{other}B = {_sizes(sizes[~held])}: Adam takes {_times(ratio[~held])} the steps",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    sizes = column(table, "batch_size")
    ideal = [
        Line(sizes, column(table, f"p = {p:g}"), f"H$^{{-p}}$, p = {p:g}", color, "--", marker="o")
        for p, color in zip(POWERS, PALETTE, strict=False)
    ]
    adam = Line(sizes, column(table, "adam"), "Adam", BLACK, marker="o")
    half = level(sizes, HALF, "p = 1/2")
    power = Line(sizes, column(table, "power"), "", BLACK, marker="o")
    panels = [
        Panel([*ideal, adam], "batch size", "steps to target", "log2", "log2", legend="none"),
        Panel(
            [half, power],
            "batch size",
            "power p with as many steps as Adam",
            "log2",
            legend="none",
            y_limits=(-0.05, 0.8),
        ),
    ]
    return chart(panels, key=[*ideal, adam, half])


def _power(adam: float, ideal: list[float]) -> float:
    """The power with as many steps as Adam, by linear interpolation of log steps; at the ends the first or the last power."""
    return float(np.interp(-np.log(adam), -np.log(ideal), POWERS))


def _times(ratio: Array) -> str:
    """Ratios for a sentence; one number if all are the same."""
    same = len({f"{r:.3g}" for r in ratio}) == 1
    return f"{spelled(ratio[:1] if same else ratio)} times"


def _sizes(sizes: Array) -> str:
    return ", ".join(f"{size:,.0f}" for size in sizes)
