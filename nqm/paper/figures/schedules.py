"""Appendix: the best learning-rate schedules of fifty pieces, for batch sizes 16 to 4096."""

from __future__ import annotations

from itertools import product

import numpy as np

from ...optimizers import SGD
from ...show.chart import Figure, chart
from ...show.numbers import spelled
from ...show.tables import Table, column, markdown
from ...show.verdict import Finding, Verdict
from ..claims import claim
from ..drawing import schedule_panels
from ..instance import PaperStudy, preconditioned

TITLE = "Appendix: optimal schedules of fifty pieces"
CAPTION = (
    "The learning-rate schedule with which SGD reaches loss 0.01 in the fewest steps, constant on each of fifty pieces, against "
    "the share of the run. As in the paper, no rate is above 2 / (h_1 + h_d), after the preconditioner. "
    "Left: without a preconditioner. Right: with p = 0.75."
)
PIECES = 50
BATCH_SIZES = (16, 64, 256, 1024, 4096)
SHOWN_POWERS = (0.0, 0.75)
COUNTS, COUNTED = (1, 2, 10, 50), (64, 1024)  # The numbers of pieces, and the batch sizes, of the table.


def data(study: PaperStudy) -> Table:
    """Learning rate, first step and last step of each piece, for each preconditioner and batch size."""
    table, cases = [], list(product(SHOWN_POWERS, BATCH_SIZES))
    schedules = study.ask([study.to_schedule(preconditioned(SGD(), p), b, PIECES) for p, b in cases])
    for (power, batch_size), found in zip(cases, schedules, strict=True):
        for i, piece in enumerate(found.table()):
            row = {"power": power, "batch_size": batch_size, "steps": found.steps, "piece": i}
            table.append({**row, "start": piece["start"], "end": piece["start"] + piece["steps"], "lr": piece["lr"]})
    return table


def draw(table: Table) -> Figure:
    panels = schedule_panels([{**row, "share": row["start"] / row["steps"]} for row in table], "lr", "learning rate")
    return chart(panels, size=(7.2, 3.2), key=panels[0].lines)


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    premises = {"powers": SHOWN_POWERS, "batch_sizes": BATCH_SIZES, "pieces": PIECES}
    fall = {
        power: [
            rates.max() / rates[-1] for b in BATCH_SIZES for rates in [column(table, "lr", power=power, batch_size=b)]
        ]
        for power in SHOWN_POWERS
    }
    return [
        claim("schedule_starts_at_largest_rate").finding(study, **premises),
        Finding(
            "It decays towards the end.",
            f"Largest rate over the last: {'; '.join(f'{spelled(v)} at p = {p:g}' for p, v in fall.items())}.",
            Verdict.of(*(all(v > 1.5 for v in values) for values in fall.values())),
        ),
    ]


def tables(table: Table, study: PaperStudy) -> str:
    """A table of the steps by number of pieces."""
    found = study.ask([study.to_schedule(SGD(), size, count) for size, count in product(COUNTED, COUNTS)])
    steps = np.reshape([one.steps for one in found], (len(COUNTED), len(COUNTS)))
    rows = [[size, *row] for size, row in zip(COUNTED, steps.tolist(), strict=True)]
    return "### Steps by number of pieces, p = 0\n\n" + markdown(["B", *map(str, COUNTS)], rows)
