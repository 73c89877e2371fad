"""Claim: SGD at a constant rate has a stationary covariance close to lr / (2B) C H^-1, which is compared with the exact one."""

from __future__ import annotations

import numpy as np

from ...engine.trajectory import Trajectory
from ...optimizers import SGD
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ...types import Array
from ..drawing import level
from .base import PAPER, Measured

STATEMENT = "Run at a constant learning rate, SGD settles into a stationary covariance close to lr / (2B) C H^-1."
ORIGIN = PAPER
SOURCE = "on the steady state of SGD; compare Mandt et al. (2017)"
TURN = ("the learning rate is near the edge of stability", {"x": 1.9})
TOLERANCE = 0.01
RATES = np.geomspace(1e-4, 1.95, 60)


def measure(x: float = 0.01, angle: float = 0.0, modes: int = 8) -> Measured:
    """Largest relative error of lr / (2B) C H^-1 as a solution of Sigma = (I - lr H) Sigma (I - lr H) + lr^2 C / B.

    Parameters
    ----------
    x : learning rate times the largest curvature, which is 1 here.
    angle : angle by which C's eigenvectors are turned away from H's, in each plane of two neighbouring modes.
    modes : number of modes, with h = 1/i; C = H before it is turned.
    """
    h = 1 / np.arange(1.0, modes + 1)
    table = [{"x": float(rate), "gap": _gap(h, _turned(h, angle), rate)} for rate in np.union1d(RATES, x)]
    gap = next(row["gap"] for row in table if row["x"] == x)
    engine = Trajectory(SGD(x), h).floor() * h
    rounding = float(np.abs(np.diag(_exact(h, np.diag(h), x)) / engine - 1).max())
    aligned = "" if angle == 0 else f" with C turned by {angle:g} against H"
    told = (
        f"At lr h = {x:g}{aligned} the formula is off by {percent(gap)} at worst, relative to the standard deviations of "
        f"the two weights; for C that shares H's eigenvectors the gap is lr h / 2. The steady state of the "
        f"engine and the solution of the matrix equation agree to {max(rounding, 1e-16):.0e}."
    )
    return Measured(
        table, gap, "largest relative error of the formula", told,
        TOLERANCE, "the formula is the first term in lr h and the next one is lr h / 2: at lr h = 0.01 that is half of it",
        Verdict.of(gap <= TOLERANCE), f"{percent(gap)} at lr h = {x:g}", f"lr h = {x:g}{aligned}: it is off by {percent(gap)}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    x, gap = column(table, "x"), column(table, "gap")
    lines = [
        Line(x, gap, "largest error of lr / (2B) C H$^{-1}$", PALETTE[0], width=3.0),
        Line(x, x / 2, "lr h / 2", GREY, "--", 1.0),
        level(x, TOLERANCE, color=PALETTE[1]),
    ]
    return chart([Panel(lines, "learning rate $\\times$ largest curvature", "relative error", "log", "log")])


def _exact(h: Array, C: Array, lr: float) -> Array:
    """Sigma at batch size 1: H is diagonal, so the matrix equation can be solved entry by entry."""
    decay = 1 - lr * h
    return lr**2 * C / (1 - np.outer(decay, decay))


def _gap(h: Array, C: Array, lr: float) -> float:
    exact = _exact(h, C, lr)
    spread = np.sqrt(np.diag(exact))
    return float(np.abs((lr / 2 * C / h - exact) / np.outer(spread, spread)).max())


def _turned(h: Array, angle: float) -> Array:
    """diag(h) with its eigenvectors turned in the planes (1, 2), (2, 3), ..."""
    C = np.diag(h)
    for i in range(len(h) - 1):
        plane = np.eye(len(h))
        plane[i : i + 2, i : i + 2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        C = plane @ C @ plane.T
    return C
