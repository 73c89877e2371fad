"""Claim: gradient noise may be taken to be the same everywhere. On real minibatches it falls with the loss."""

from __future__ import annotations

from collections.abc import Sequence

from ...optimizers import SGD
from ...problems.least_squares import LeastSquares
from ...search import tune
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import spelled
from ...show.tables import Row, Table, column
from ...show.verdict import Verdict
from ...types import Array
from ..drawing import level
from ..instance import instance
from .base import PAPER, Measured

STATEMENT = (
    "Gradient noise may be taken to be the same everywhere: SGD on real minibatches is then stable up to lr = 2 / h."
)
ORIGIN = PAPER
SOURCE = "on the model: noise does not depend on the weights"
TURN = ("a batch is a single example", {"batch_sizes": (1,)})
BATCH_SIZES = (4, 16, 64, 256, 1024)
TARGETS = (0.01, 1.0)
TOLERANCE = 0.9


def measure(
    batch_sizes: Sequence[float] = BATCH_SIZES, targets: Sequence[float] = TARGETS, dim: int = 1000
) -> Measured:
    """Stability limit and tuned steps of SGD on least squares over those with the noise of its minimum everywhere.

    Parameters
    ----------
    batch_sizes : the batch sizes that decide.
    targets : target losses to tune for; label noise has variance 1.
    dim : number of modes, with h = 1/i.
    """
    real = LeastSquares(instance(dim).spectrum, label_noise=1.0)
    model = real.additive
    limit = model.stability_limit(SGD())
    table = []
    for size in batch_sizes:
        row: Row = {"batch_size": size, "limit": real.stability_limit(SGD(), batch_size=size)}
        row["share"] = row["limit"] / limit
        for target in targets:
            steps = [tune(problem, SGD(), size, target).steps for problem in (real, model)]
            row |= {f"steps to {target:g}": steps[0], f"model's to {target:g}": steps[1]}
        table.append(row)
    shares = {row["batch_size"]: row["share"] for row in table}
    held = [size for size, share in shares.items() if share >= TOLERANCE]
    lost = [f"B = {size:g} ({share:.2g} of that limit)" for size, share in shares.items() if share < TOLERANCE]
    told = "; ".join(f"{spelled(_ratio(table, t))} for a target of {t:g}" for t in targets)
    return Measured(
        table, min(shares.values()), "smallest ratio of the stability limit on real minibatches to the model's",
        f"For B = {spelled(batch_sizes, 6)} the limit is {spelled(shares.values())} of 2 / h; the steps of tuned SGD "
        f"over the model's are {told}. The error is small where label noise outweighs the loss, and large where it does not.",
        TOLERANCE, "a limit off by a tenth would not be noticed: rates are tuned below it",
        Verdict.of(*(share >= TOLERANCE for share in shares.values())),
        f"a tenth of the limit for B = {min(held):g} and beyond" if held else "", "; ".join(lost),
    )  # fmt: skip


def draw(table: Table) -> Figure:
    sizes = column(table, "batch_size")
    targets = [float(name.removeprefix("steps to ")) for name in table[0] if name.startswith("steps to ")]
    even = level(sizes, 1, "noise the same everywhere")
    limit = Line(sizes, column(table, "share"), "stability limit", PALETTE[0], marker="o")
    steps = [
        Line(sizes, _ratio(table, t), f"steps to loss {t:g}", color, marker="o")
        for t, color in zip(targets, PALETTE[1:], strict=False)
    ]
    panels = [
        Panel([even, limit], "batch size", "stability limit over 2 / h", "log2", legend="none", y_limits=(0.0, 1.1)),
        Panel([even, *steps], "batch size", "steps over the model's", "log2", "log2", legend="none"),
    ]
    return chart(panels, key=[limit, *steps, even])


def _ratio(table: Table, target: float) -> Array:
    return column(table, f"steps to {target:g}") / column(table, f"model's to {target:g}")
