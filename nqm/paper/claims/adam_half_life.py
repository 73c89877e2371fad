"""Claim: at small batch sizes beta2 of Adam must keep its half-life in examples. On the model this cannot show.

While noise that stays dominates the gradients, their mean square is the same at all times, so an average of it is the same
whatever its length. Only fluctuations of the average are left, and they are small unless it is short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from ...optimizers import Adam
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent, spelled
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..drawing import level
from ..instance import PaperStudy
from .base import Measured

STATEMENT = (
    "At small batch sizes Adam's beta2 should keep its half-life in examples: with beta2 fixed, Adam takes more steps."
)
ORIGIN = "Marek et al. (2025)"
SOURCE = "Small batch size training for language models"
TURN = (
    "v is an average over two steps, and there is no momentum",
    {"beta1": 0.0, "beta2": 0.5, "batch_sizes": (16, 64)},
)
TOLERANCE = 0.02
REFERENCE = 2**8
BATCH_SIZES = (1, 4, 16, 64, 256)
REPLICAS, SEED = 4000, 0  # Number of the walks that are sampled to see what a noisy v costs, and their seed.
MEMORIES = 40  # Length of a walk, in memories 1 / (1 - beta) of the longer of Adam's two averages.
LONGEST = 0.97  # Largest beta2 that is sampled; beyond it, the cost of a noisy v is taken as proportional to 1 - beta2.


def measure(
    study: PaperStudy, beta1: float = 0.9, beta2: float = 0.999, reference: float = REFERENCE,
    batch_sizes: Sequence[float] = BATCH_SIZES,
) -> Measured:  # fmt: skip
    """Tuned steps of Adam with beta2 fixed over those with beta2 to the power B / reference, at each batch size.

    Steps are those of the mean field times `noisy_v`, what the fluctuation of v costs, which the mean field neglects.

    Parameters
    ----------
    beta1 : decay of the average of gradients.
    beta2 : decay of the average of squared gradients at the batch size ``reference``.
    reference : the batch size at which both rules have the same beta2.
    batch_sizes : batch sizes to tune at.
    """
    scaled = [beta2 ** (size / reference) for size in batch_sizes]
    asked = [(beta, size) for size, other in zip(batch_sizes, scaled, strict=True) for beta in (beta2, other)]
    found = study.ask([study.to_tune(Adam(beta1=beta1, beta2=beta), size) for beta, size in asked])
    steps = [(one.steps or math.nan) * noisy_v(beta1, beta) for (beta, _), one in zip(asked, found, strict=True)]
    pairs = zip(batch_sizes, scaled, steps[::2], steps[1::2], strict=True)
    table = [
        {"batch_size": B, "beta2": beta2, "scaled_beta2": other, "fixed": T, "scaled": kept, "cost": T / kept - 1}
        for B, other, T, kept in pairs
    ]
    cost = column(table, "cost")
    worst = float(cost.max())
    return Measured(
        table, worst, "largest share of steps that a fixed beta2 costs",
        f"At B = {spelled(batch_sizes)} fixed beta2 = {beta2:g} takes {spelled(cost + 1, 5)} times the steps of beta2 = "
        f"{beta2:g}^(B / {reference:g}). Of this, fluctuations of v cost {percent(noisy_v(beta1, beta2) - 1)}.",
        TOLERANCE, "tuned steps are found to 0.1%; 2% is well above that error, and less would not be noticed",
        Verdict.holds if worst > TOLERANCE else Verdict.untested, f"{percent(worst)} of the steps",
        f"it cannot show here, because noise that stays makes v the same for every beta2 (a fixed one costs "
        f"{percent(max(worst, 0.0))} of the steps at most)",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    sizes = column(table, "batch_size")
    fixed, scaled = (column(table, name) * sizes / 1e6 for name in ("fixed", "scaled"))
    lines = [
        Line(sizes, fixed, f"beta2 = {table[0]['beta2']:g}", PALETTE[0], marker="o"),
        Line(sizes, scaled, "half-life fixed in examples", PALETTE[1], "--", marker="o"),
    ]
    cost = Line(sizes, 100 * column(table, "cost"), "", PALETTE[0], marker="o")
    limit = level(sizes, 100 * TOLERANCE, "tolerance")
    top = 1.15 * float(np.max([fixed, scaled]))
    panels = [
        Panel(lines, "batch size", "examples to target, in millions", "log2", legend="none", y_limits=(0.0, top)),
        Panel([limit, cost], "batch size", "steps that a fixed beta2 costs, %", "log2", legend="none"),
    ]
    return chart(panels, key=[*lines, limit])


@cache
def noisy_v(beta1: float, beta2: float) -> float:
    """By how much the fluctuation of v multiplies the steps of Adam while noise dominates; 1 for beta2 = 1.

    Let D be the sum of Adam's steps m / sqrt(v) over a time in which theta hardly moves, and M that of m, so that both lag
    behind the gradients alike; gradients are white noise. The drift of D per gradient is a = Cov(D, M) / Var M, and its noise is
    n = Var D / Var M. A linear step reaches a target loss in a time proportional to n / a^2, which is 1 / correlation(D, M)^2.
    For beta1 = beta2 = 0, sign descent, this is pi / 2.
    """
    if beta2 > LONGEST:
        return 1 + (noisy_v(beta1, LONGEST) - 1) * (1 - beta2) / (1 - LONGEST)
    rng, memory = np.random.default_rng(SEED), 1 / (1 - max(beta1, beta2))
    m, v, D, M = np.zeros((4, REPLICAS))
    settled = int(MEMORIES * memory / 2)  # The walk begins when both averages have forgotten their start.
    for t in range(settled + int(MEMORIES * memory)):
        g = rng.standard_normal(REPLICAS)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        if t >= settled:
            D, M = D + m / np.sqrt(v), M + m
    return float((D @ D) * (M @ M) / (D @ M) ** 2)
