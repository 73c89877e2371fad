"""Claim: at large batch sizes momentum helps."""

from __future__ import annotations

from ...optimizers import free
from ...optimizers.kinds import Free
from ...show.numbers import spelled
from ...show.tables import column, distinct
from ...show.verdict import Verdict
from ..instance import POWERS, PaperStudy
from . import momentum_small_batch as small_batch
from .base import PAPER, Measured

STATEMENT = "At large batch sizes momentum helps."
ORIGIN = PAPER
SOURCE = "on momentum, with Figure 3a"
TURN = ("the batch is small and momentum fixed", {"batch_size": 4, "momentum": 0.9})
TOLERANCE = 1.1
draw = small_batch.draw


def measure(study: PaperStudy, batch_size: float | None = None, momentum: float | Free = free) -> Measured:
    """Tuned steps of SGD over heavy ball's at a large batch size.

    Parameters
    ----------
    batch_size : a batch size of the study; by default its largest.
    momentum : momentum of heavy ball; `free` tunes it.
    """
    table = small_batch.step_ratios(study, momentum)
    name, size = distinct(table, "momentum")[0], batch_size or max(distinct(table, "batch_size"))
    gain = [1 / column(table, "ratio", momentum=name, power=p, batch_size=size)[0] for p in POWERS]
    return Measured(
        table, min(gain), "smallest ratio of SGD's steps to heavy ball's",
        f"At B = {size:,.0f} SGD needs {spelled(gain)} times the steps of heavy ball for p = {spelled(POWERS)}.",
        TOLERANCE, "at p = 0.75 SGD takes about ten steps and heavy ball five, so one step is 10% or more",
        Verdict.of(*(g > TOLERANCE for g in gain)), "",
        f"the batch size is {size:,.0f} with momentum {name}: the factors are {spelled(gain)}",
    )  # fmt: skip
