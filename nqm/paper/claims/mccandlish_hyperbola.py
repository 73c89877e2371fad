"""Steps against examples, and the hyperbola that is fitted to them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...optimizers import SGD
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ..instance import PaperStudy
from .base import Measured

STATEMENT = "Steps and examples trade along the hyperbola (S / Smin - 1)(E / Emin - 1) = 1."
SOURCE = "on critical batch sizes, after McCandlish et al. (2018)"
TURN = ("the gradient noise scale stays what it is during a run", {"noise_scale": "constant"})
TOLERANCE = 0.1
FRACTION = 1 / 64  # of the smallest batch size, where examples are the fewest to 1e-3


def measure(study: PaperStudy, noise_scale: Literal["exact", "constant"] = "exact") -> Measured:
    """The product (S / Smin - 1)(E / Emin - 1) along SGD's tuned curve.

    Parameters
    ----------
    noise_scale : "exact" takes the curve of tuned SGD. "constant" takes McCandlish et al.'s model of it, in which a step
        at the best rate wins 1 / (1 + B_noise / B) of what it wins without noise, with B_noise the same at every step.
    """
    smallest = min(study.batch_sizes) * FRACTION
    found, few = study.ask([study.to_sweep(SGD()), study.to_sweep(SGD(), batch_sizes=[smallest])])
    sizes, steps, fewest = found.batch_sizes, found.steps, float(few.examples[0])
    if noise_scale == "constant":
        steps = found.smallest_steps + fewest / sizes  # Smin (1 + B_noise / B) with B_noise = Emin / Smin
    s, e = steps / found.smallest_steps - 1, steps * sizes / fewest - 1
    table = [
        {"batch_size": float(b), "steps_excess": float(x), "examples_excess": float(y), "product": float(x * y)}
        for b, x, y in zip(sizes, s, e, strict=True)
    ]
    product = column(table, "product")
    off = float(np.max(np.abs(product - 1)))
    return Measured(
        table, off, "largest distance of the product from 1",
        f"Along the curve{' of that model' if noise_scale == 'constant' else ' of tuned SGD'}, with Emin at "
        f"B = {smallest:g} and Smin at an infinite batch, the product runs from {product.min():.2g} to "
        f"{product.max():.2g}.",
        TOLERANCE, "the curve is exact to 0.1%, so that 10% leaves room for a fit but not for another shape",
        Verdict.of(off <= TOLERANCE), percent(off),
        f"the noise scale grows as the loss falls, as here: the product runs from {product.min():.2g} to {product.max():.2g}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    s, e = column(table, "steps_excess"), column(table, "examples_excess")
    span = np.geomspace(s.min(), s.max(), 50)
    lines = [
        Line(span, 1 / span, "hyperbola, product 1", GREY, "--", 1.2),
        Line(s, e, "tuned SGD", PALETTE[0], marker="o"),
    ]
    return chart(
        [Panel(lines, "steps above the fewest, S / Smin - 1", "examples above the fewest, E / Emin - 1", "log", "log")]
    )
