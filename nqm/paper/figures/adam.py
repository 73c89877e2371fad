"""Beyond the paper: steps to the target against batch size for Adam itself, beside the preconditioners H^-p."""

from __future__ import annotations

import numpy as np

from ...optimizers import SGD, Adam, HeavyBall, Optimizer, free
from ...show.chart import BLACK, PALETTE, Figure, Line, Panel, around, chart
from ...show.numbers import brief, spelled
from ...show.plots import bound_pair, perfect_scaling
from ...show.tables import Table, column, distinct, markdown
from ...show.verdict import Finding, Verdict
from ..claims import claim
from ..instance import POWERS, TARGET, PaperStudy, preconditioned, sweep_rows

TITLE = "Beyond the paper: Adam itself"
CAPTION = (
    "Steps to loss 0.01, every setting tuned at every batch size. Solid: SGD, heavy ball, and Adam by its mean field with "
    "beta1 = 0.9 and with beta1 tuned; beta2 = 0.999. Dashed: heavy ball with the ideal preconditioner H^-p. Grey: the Bayes "
    "bound, and perfect scaling from SGD's first point."
)
TUNED_ADAM = "Adam, beta1 tuned"
METHODS: dict[str, Optimizer] = {"SGD": SGD(), "heavy ball": HeavyBall(), "Adam": Adam(), TUNED_ADAM: Adam(beta1=free)}
IDEAL: dict[str, Optimizer] = {f"H^-p, p = {p:g}": preconditioned(HeavyBall(), p) for p in POWERS[1:]}
COLORS = dict(zip((*METHODS, *IDEAL), (BLACK, PALETTE[0], *PALETTE[4:6], *PALETTE[1:4]), strict=True))
"""The colour of each curve; that of H^-p is the one that it has in the figures of the paper."""


def data(study: PaperStudy) -> Table:
    """Tuned steps and settings for each method and batch size, and the Bayes bound there."""
    methods = METHODS | IDEAL
    sweeps = study.ask([study.to_sweep(method) for method in methods.values()])
    return [
        {**row, "bayes_bound": study.bounds(row["batch_size"])["bayes_bound"]}
        for name, found in zip(methods, sweeps, strict=True)
        for row in sweep_rows(found, optimizer=name)
    ]


def draw(table: Table) -> Figure:
    lines = []
    for name in distinct(table, "optimizer"):
        sizes, steps = (column(table, c, optimizer=name) for c in ("batch_size", "steps"))
        style, marker = ("--", "") if name in IDEAL else ("-", "o")
        lines.append(Line(sizes, steps, name.replace("H^-p", "H$^{-p}$"), COLORS[name], style, marker=marker))
    first = lines[0]
    bayes = column(table, "bayes_bound", optimizer="SGD")
    guides = [perfect_scaling(first.x, first.y), *bound_pair(first.x, bayes, bayes)]
    limits = around(np.concatenate([line.y for line in lines]), 0.6, 1.6)
    name = f"steps to loss {TARGET:g}"
    panel = Panel([*guides, *lines], "batch size", name, "log2", "log2", legend="none", y_limits=limits)
    return chart([panel], size=(5.5, 4.1), key=[*lines, *guides])


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    names = ("adam_half_power", "critical_batch_order", "adam_rate_surges")
    heavy, adam, tuned = (column(table, "steps", optimizer=name) for name in ("heavy ball", "Adam", TUNED_ADAM))
    gain = adam / tuned
    return [
        Finding(
            "Adam takes fewer steps than heavy ball at every batch size.",
            f"Heavy ball takes {spelled(heavy / adam)} times the steps of Adam with beta1 = 0.9.",
            Verdict.of(*(heavy > adam)),
        ),
        Finding(
            "Tuning beta1 helps Adam at large batch sizes, as momentum helps SGD.",
            f"Adam with beta1 = 0.9 takes {spelled(gain)} times the steps of Adam with beta1 tuned; at the largest batch size "
            f"the best beta1 is {brief(column(table, 'beta1', optimizer=TUNED_ADAM)[-1])}.",
            Verdict.of(bool(gain[-1] > 1.1)),
        ),
        *(claim(name).finding(study) for name in names),
    ]


def tables(table: Table, study: PaperStudy) -> str:
    """A table of all tuned steps, with the critical batch sizes by two definitions."""
    methods = METHODS | IDEAL
    sizes = column(table, "batch_size", optimizer="SGD")
    rows = [
        [
            name,
            *column(table, "steps", optimizer=name),
            *(study.sweep(method).critical_batch_size(by) for by in ("2x", "20%")),
        ]
        for name, method in methods.items()
    ]
    header = ["B", *(f"2^{np.log2(b):g}" for b in sizes), "2x", "20%"]
    return (
        "### Tuned steps to the target\n\nThe last two columns are critical batch sizes: where steps are twice perfect "
        f"scaling, and 20% above it.\n\n{markdown(header, rows)}"
    )
