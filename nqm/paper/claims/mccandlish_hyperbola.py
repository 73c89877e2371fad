"""Claim: steps and examples trade along a hyperbola. The product that the hyperbola fixes is measured along SGD's curve."""

from __future__ import annotations

import numpy as np

from ...optimizers import SGD
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent
from ...show.tables import Table, column, rows_of
from ...show.verdict import Verdict
from ..instance import PaperStudy
from .base import Measured

STATEMENT = "Steps and examples trade along the hyperbola (S / Smin - 1)(E / Emin - 1) = 1."
ORIGIN = "McCandlish et al. (2018)"
SOURCE = "An empirical model of large-batch training, which the paper cites"
TOLERANCE = 0.1
FRACTION = 1 / 64  # At this fraction of the smallest batch size, examples are within 1e-3 of the fewest possible.


def measure(study: PaperStudy) -> Measured:
    """The product (S / Smin - 1)(E / Emin - 1) along SGD's tuned curve.

    McCandlish et al. derive it for a step at the best rate that gains 1 / (1 + B_noise / B) of what it gains without noise. With a
    constant B_noise the product is 1 by definition; here B_noise grows as the loss falls.
    """
    smallest = min(study.batch_sizes) * FRACTION
    found, few = study.ask([study.to_sweep(SGD()), study.to_sweep(SGD(), batch_sizes=[smallest])])
    sizes, steps, fewest = found.batch_sizes, found.steps, float(few.examples[0])
    s, e = steps / found.smallest_steps - 1, steps * sizes / fewest - 1
    product = s * e
    table = rows_of({"batch_size": sizes, "steps_excess": s, "examples_excess": e, "product": product})
    off = float(np.max(np.abs(product - 1)))
    return Measured(
        table, off, "largest distance of the product from 1",
        f"Along the curve of tuned SGD, with Emin at B = {smallest:g} and Smin at an infinite batch, the product runs from "
        f"{product.min():.2g} to {product.max():.2g}.",
        TOLERANCE, "the curve is exact to 0.1%, so 10% allows for the error of a fit but not for another shape",
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
