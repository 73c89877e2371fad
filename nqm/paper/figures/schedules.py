"""Appendix: the best learning-rate schedules of fifty pieces, for batch sizes 16 to 4096."""

from __future__ import annotations

from itertools import product

import numpy as np

from ...optimizers import SGD
from ...optimizers.base import parameters
from ...show.chart import Figure, Line, Panel, chart, ramp
from ...show.numbers import shown, spelled
from ...show.tables import Table, column, distinct, markdown
from ...show.verdict import Finding, Verdict
from ..claims import claim
from ..instance import PaperStudy, Question, preconditioned

TITLE = "Appendix: optimal schedules of fifty pieces"
CAPTION = (
    "The learning rate of SGD that reaches loss 0.01 in the fewest steps, constant on fifty pieces, over the share of "
    "the run; left without a preconditioner, right with p = 0.75."
)
PIECES = 50
BATCH_SIZES = (16, 64, 256, 1024, 4096)
SHOWN_POWERS = (0.0, 0.75)
COUNTS, COUNTED = (1, 2, 10, 50), (64, 1024)  # pieces and batch sizes of the table


def questions(study: PaperStudy) -> list[Question]:
    drawn = [study.to_schedule(preconditioned(SGD(), p), b, PIECES) for p, b in product(SHOWN_POWERS, BATCH_SIZES)]
    return [*drawn, *(study.to_schedule(SGD(), size, count) for size, count in product(COUNTED, COUNTS))]


def data(study: PaperStudy | None = None) -> Table:
    """Learning rate, first step and last step of each piece, for each preconditioner and batch size."""
    study = study or PaperStudy()
    table = []
    for power, batch_size in product(SHOWN_POWERS, BATCH_SIZES):
        found = study.schedule(preconditioned(SGD(), power), batch_size, PIECES)
        lr = parameters(found.optimizer)["lr"].value * found.schedule.lr
        ends = list(found.schedule.ends)
        for i, (start, end, rate) in enumerate(zip([0, *ends[:-1]], ends, lr, strict=True)):
            row = {"power": power, "batch_size": batch_size, "steps": found.steps, "piece": i}
            table.append({**row, "start": int(start), "end": int(end), "lr": float(rate)})
    return table


def draw(table: Table) -> Figure:
    sizes = distinct(table, "batch_size")
    panels = []
    for power in distinct(table, "power"):
        lines = []
        for batch_size, color in zip(sizes, ramp(len(sizes)), strict=True):
            key = {"power": power, "batch_size": batch_size}
            start, end, lr = (column(table, name, **key) for name in ("start", "end", "lr"))
            share = np.append(start, end[-1]) / end[-1]
            lines.append(Line(share, np.append(lr, lr[-1]), f"B = {shown(batch_size)}", color, stairs=True))
        panels.append(Panel(lines, "share of the run", "learning rate", "linear", "log", f"p = {power:g}", "none"))
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
    """What more pieces buy."""
    rows = [[size, *(study.schedule(SGD(), size, count).steps for count in COUNTS)] for size in COUNTED]
    return "### Steps by number of pieces, p = 0\n\n" + markdown(["B", *map(str, COUNTS)], rows)
