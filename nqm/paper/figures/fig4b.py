"""Figure 4b: steps to the target with the best ten-piece learning-rate schedule, against a constant rate."""

from __future__ import annotations

from functools import partial

from ...optimizers import SGD
from ...show.numbers import spelled
from ...show.tables import Table, column
from ...show.verdict import Finding, Verdict
from ..drawing import steps_chart
from ..instance import POWERS, PaperStudy, preconditioned

TITLE = "Figure 4b: an optimal schedule against a constant learning rate"
CAPTION = (
    "Steps to loss 0.01 for SGD with the best constant learning rate (dashed) and with the best piecewise-constant one "
    "of ten pieces (solid), with the preconditioner H^-p. Schedules are drawn where the constant rate takes 20 steps "
    "for each piece: shorter pieces could pass the stability limit in turn, as Chebyshev's method does."
)
PIECES = 10
LARGEST = {0.0: 2**20, 0.25: 2**20, 0.5: 2**12, 0.75: 2**12}  # The largest batch size whose runs can be divided, by p.
SHORT_PIECES = "At larger batches runs are too\nshort to divide into ten pieces."
draw = partial(steps_chart, note=SHORT_PIECES)


def data(study: PaperStudy) -> Table:
    """Tuned steps with a constant rate and with ten pieces, for each preconditioner and batch size, and the bounds."""
    table, cases = [], [(p, float(size)) for p in POWERS for size in study.batch_sizes if size <= LARGEST[p]]
    sweeps = study.ask([study.to_sweep(preconditioned(SGD(), p)) for p in POWERS])
    schedules = study.ask([study.to_schedule(preconditioned(SGD(), p), size, PIECES) for p, size in cases])
    for power, found in zip(POWERS, sweeps, strict=True):
        for size, steps in zip(found.batch_sizes.tolist(), found.steps.tolist(), strict=True):
            table.append({"optimizer": "constant", "power": power, "batch_size": size, "steps": steps})
    for (power, size), found in zip(cases, schedules, strict=True):
        table.append({"optimizer": "ten pieces", "power": power, "batch_size": size, "steps": found.steps})
    return [row | study.bounds(row["batch_size"]) for row in table]


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    gain, sizes, above = {}, {}, {}
    for p in POWERS:
        steps = column(table, "steps", optimizer="ten pieces", power=p)
        sizes[p] = column(table, "batch_size", optimizer="ten pieces", power=p)
        gain[p] = column(table, "steps", optimizer="constant", power=p)[: len(steps)] / steps
        above[p] = steps / column(table, "bayes_bound", optimizer="ten pieces", power=p)
    first, last = sizes[POWERS[0]][0], max(study.batch_sizes)
    small = [g[0] for g in gain.values()]
    large = {p: g[-1] for p, g in gain.items() if sizes[p][-1] == last}
    return [
        Finding(
            "A learning-rate schedule saves steps at small batch sizes.",
            f"At B = {first:g} the best constant rate needs {spelled(small)} times the steps of ten pieces for "
            f"p = {spelled(POWERS)}; ten pieces take {spelled(a[0] for a in above.values())} times the Bayes bound.",
            Verdict.of(*(g > 1.1 for g in small)),
        ),
        Finding(
            "At large batch sizes it saves little.",
            f"At B = {last:,} the factors are {spelled(large.values())} for p = {spelled(large)}"
            + ("." if len(large) == len(POWERS) else "; for the other p these runs are too short to divide."),
            Verdict.of(*(g < 1.1 for g in large.values())),
        ),
    ]
