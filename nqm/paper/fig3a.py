"""Figure 3a: steps to the target against batch size, SGD and heavy ball, four preconditioners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..bounds import bayes_bound, paper_bound
from ..optimizers import SGD, HeavyBall
from ..search import tune
from .pictures import steps_chart
from .study import (
    POWERS,
    Finding,
    Question,
    Study,
    Table,
    Verdict,
    column,
    distinct,
    markdown,
    preconditioned,
    spelled,
    sweep_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Figure 3a: steps against batch size, with and without momentum"
CAPTION = (
    "Steps to loss 0.01, every setting tuned at every batch size, for SGD (dashed) and heavy ball (solid) with the "
    "preconditioner H^-p. Grey: the Bayes bound and the paper's d/2CB, perfect scaling from SGD's first point, and the "
    "steps of conjugate gradients without noise (CG) for each p."
)
METHODS = {"SGD": SGD(), "heavy ball": HeavyBall()}


def questions(study: Study) -> list[Question]:
    return [study.to_sweep(preconditioned(o, p)) for p in POWERS for o in METHODS.values()]


def data(study: Study | None = None) -> Table:
    """Tuned steps and settings for each method, preconditioner and batch size, and the bounds there."""
    study = study or Study()
    table = []
    for power in POWERS:
        floor = {"cg_steps": study.cg_steps(power)}
        for name, optimizer in METHODS.items():
            rows = sweep_rows(study.sweep(preconditioned(optimizer, power)), optimizer=name, power=power)
            table += [{**row, **study.bounds(row["batch_size"]), **floor} for row in rows]
    return table


def draw(table: Table) -> Figure:
    return steps_chart(table, [n for n in distinct(table, "cg_steps") if n])


def findings(table: Table, study: Study) -> list[Finding]:
    steps = {(m, p): column(table, "steps", optimizer=m, power=p) for m in METHODS for p in POWERS}
    sizes = column(table, "batch_size", optimizer="SGD", power=0.0)
    return [
        _small_batch(steps, sizes, study),
        _large_batch(steps, sizes),
        *_preconditioning(steps, sizes, study),
        _bound(table, study),
        _hyperbola(study),
    ]


def _small_batch(steps: dict, sizes: np.ndarray, study: Study) -> Finding:
    tuned = [steps["heavy ball", p][0] / steps["SGD", p][0] for p in POWERS]
    fixed = tune(study.problem, HeavyBall(momentum=0.9), sizes[0], study.target).steps or np.nan
    fixed_ratio = fixed / steps["SGD", 0.0][0]
    return Finding(
        "At small batch sizes momentum gives nothing over SGD.",
        f"At B = {sizes[0]:g}, steps of heavy ball over SGD's: {fixed_ratio:.4f} at momentum 0.9 with only the "
        f"learning rate tuned (p = 0), but {spelled(tuned)} for p = {spelled(POWERS)} once momentum is tuned too.",
        Verdict.of(abs(fixed_ratio - 1) < 0.02, all(abs(r - 1) < 0.02 for r in tuned)),
    )


def _large_batch(steps: dict, sizes: np.ndarray) -> Finding:
    gain = [steps["SGD", p][-1] / steps["heavy ball", p][-1] for p in POWERS]
    return Finding(
        "At large batch sizes momentum helps.",
        f"At B = {sizes[-1]:,.0f} SGD needs {spelled(gain)} times the steps of heavy ball for p = {spelled(POWERS)}.",
        Verdict.of(*(g > 1.02 for g in gain)),
    )


def _preconditioning(steps: dict, sizes: np.ndarray, study: Study) -> list[Finding]:
    critical = {
        m: [study.sweep(preconditioned(o, p)).critical_batch_size() for p in POWERS] for m, o in METHODS.items()
    }
    told = "; ".join(f"{m}: {', '.join(f'{b:,.0f}' for b in found)}" for m, found in critical.items())
    gain = [[steps[m, 0.0][0] / steps[m, p][0] for p in POWERS[1:]] for m in METHODS]
    return [
        Finding(
            "Preconditioning and momentum each extend perfect scaling to larger batches.",
            f"Critical batch size (20% above perfect scaling) for p = {spelled(POWERS)}: {told}.",
            Verdict.of(
                *(bool(np.all(np.diff(found) > 0)) for found in critical.values()),
                all(h > s for s, h in zip(*critical.values(), strict=True)),
            ),
        ),
        Finding(
            "Preconditioning helps at small batch sizes too.",
            f"At B = {sizes[0]:g}, SGD at p = 0 needs {spelled(gain[0])} times the steps of p = {spelled(POWERS[1:])}, "
            f"heavy ball {spelled(gain[1])} times.",
            Verdict.of(*(bool(np.all(np.diff([1.0, *g]) > 0)) for g in gain)),
        ),
    ]


def _bound(table: Table, study: Study) -> Finding:
    spectrum, loose, batch = study.problem.spectrum, 3.0, 4
    steps = tune(study.problem, SGD(), batch, loose).steps or np.nan
    paper, bayes = paper_bound(spectrum, loose, batch), bayes_bound(spectrum, loose, batch)
    # Steps are whole: a method that stops within the bound's last step has not broken it.
    above = np.all(np.ceil(column(table, "paper_bound")) <= column(table, "steps"))
    gap = column(table, "paper_bound")[0] / column(table, "bayes_bound")[0] - 1
    return Finding(
        "No method needs fewer than d/(2CB) steps.",
        f"At target {loose:g}, B = {batch} SGD needs {steps:g} steps where d/(2CB) says {paper:.0f}: the start is "
        f"information too. The Bayes bound, {bayes:.2g} there, holds. At target {study.target:g} the two differ by "
        f"{gap:.1%} and every curve lies {'above both' if above else 'below it somewhere'}.",
        Verdict.of(bool(steps >= paper and above)),
    )


def _hyperbola(study: Study) -> Finding:
    found = study.sweep(SGD())
    s = found.steps / found.smallest_steps - 1
    e = found.examples / found.examples[0] - 1
    product = (s * e)[1:]
    return Finding(
        "Steps and examples trade along the hyperbola (S / Smin - 1)(E / Emin - 1) = 1 (McCandlish et al., 2018).",
        f"On SGD's exact curve, with Emin at B = {found.batch_sizes[0]:g} and Smin at an infinite batch, the product "
        f"runs from {product.min():.2g} to {product.max():.2g}.",
        Verdict.of(bool(product.min() > 0.9 and product.max() < 1.1)),
    )


def tables(table: Table, study: Study) -> str:
    """Tuned steps in full, and the critical batch sizes by each definition."""
    sizes = column(table, "batch_size", optimizer="SGD", power=0.0)
    rows = [
        [f"{m}, p = {p:g}", *column(table, "steps", optimizer=m, power=p)] for m in METHODS for p in POWERS
    ]  # fmt: skip
    for name, label in (("paper_bound", "d/(2CB)"), ("bayes_bound", "Bayes bound")):
        rows.append([label, *column(table, name, optimizer="SGD", power=0.0)])
    critical = []
    for method, optimizer in METHODS.items():
        for p in POWERS:
            found = study.sweep(preconditioned(optimizer, p))
            knee = found.critical_batch_size("knee") if method == "SGD" else None
            by = (found.critical_batch_size("20%"), found.critical_batch_size("2x"), found.critical_batch_size("ratio"))
            critical.append([f"{method}, p = {p:g}", *by, knee])
    return "\n\n".join(
        [
            "### Tuned steps to the target",
            markdown(["B", *(f"2^{np.log2(b):g}" for b in sizes)], rows),
            "### Critical batch sizes",
            "Batch size at which steps exceed perfect scaling by 20%, by 2x, Emin / Smin, and SGD's closed-form knee "
            "tr(P^-1 C) / (2 max(h/P) target).",
            markdown(["", "20%", "2x", "Emin/Smin", "knee"], critical),
        ]
    )
