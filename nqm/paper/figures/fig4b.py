"""Figure 4b: steps to the target with the best ten-piece learning-rate schedule, against a constant rate."""

from __future__ import annotations

from ...optimizers import SGD
from ...show.numbers import spelled
from ...show.tables import Table, column
from ...show.verdict import Finding, Verdict
from ..drawing import steps_chart
from ..instance import POWERS, PaperStudy, preconditioned

TITLE = "Figure 4b: an optimal schedule against a constant learning rate"
CAPTION = (
    "Steps to loss 0.01 for SGD with the best constant learning rate (dashed) and with the best piecewise-constant one "
    "of ten pieces (solid), with the preconditioner H^-p. As in the paper, no rate of a schedule is above 2 / (h_1 + h_d), the "
    "largest and the smallest curvature after the preconditioner. A run of fewer than ten steps has pieces of one step."
)
PIECES = 10
draw = steps_chart


def data(study: PaperStudy) -> Table:
    """Tuned steps with a constant rate and with ten pieces, for each preconditioner and batch size, and the bounds."""
    table, cases = [], [(p, float(size)) for p in POWERS for size in study.batch_sizes]
    sweeps = study.ask([study.to_sweep(preconditioned(SGD(), p)) for p in POWERS])
    schedules = study.ask([study.to_schedule(preconditioned(SGD(), p), size, PIECES) for p, size in cases])
    for power, found in zip(POWERS, sweeps, strict=True):
        for size, steps in zip(found.batch_sizes.tolist(), found.steps.tolist(), strict=True):
            table.append({"optimizer": "constant", "power": power, "batch_size": size, "steps": steps})
    for (power, size), found in zip(cases, schedules, strict=True):
        table.append({"optimizer": "ten pieces", "power": power, "batch_size": size, "steps": found.steps})
    return [row | study.bounds(row["batch_size"]) for row in table]


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    gain, above, more = {}, {}, {}
    for p in POWERS:
        steps, constant = (column(table, "steps", optimizer=one, power=p) for one in ("ten pieces", "constant"))
        gain[p], more[p] = constant / steps, constant[-1] - steps[-1]
        above[p] = steps / column(table, "bayes_bound", optimizer="ten pieces", power=p)
    small, large = ([g[i] for g in gain.values()] for i in (0, -1))
    return [
        Finding(
            "A learning-rate schedule saves steps at small batch sizes.",
            f"At B = {study.batch_sizes[0]:g} the best constant rate needs {spelled(small)} times the steps of ten pieces for "
            f"p = {spelled(POWERS)}; ten pieces take {spelled(a[0] for a in above.values())} times the Bayes bound.",
            Verdict.of(*(g > 1.1 for g in small)),
        ),
        Finding(
            "At large batch sizes it saves next to nothing.",
            f"At B = {study.batch_sizes[-1]:,} the factors are {spelled(large, 4)} for p = {spelled(POWERS)}, which is "
            f"{spelled(more.values())} steps.",
            Verdict.of(*(g < 1.05 or n <= 1 for g, n in zip(large, more.values(), strict=True))),
        ),
    ]
