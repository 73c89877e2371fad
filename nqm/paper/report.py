"""The report of all figures: the picture of each, what the paper says of it, and what this run measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..show.chart import Figure
from ..show.tables import Table, markdown
from ..show.verdict import JUDGED, Finding, Verdict
from .instance import TARGET, PaperStudy


class Drawing(Protocol):
    """The module of a figure. It may also have ``tables(table, study)``, Markdown of its own for the report."""

    @property
    def TITLE(self) -> str: ...
    @property
    def CAPTION(self) -> str: ...

    def data(self, study: PaperStudy) -> Table: ...
    def draw(self, table: Table) -> Figure: ...
    def findings(self, table: Table, study: PaperStudy) -> list[Finding]: ...


Part = tuple[Table, list[tuple[str, str, str]], str]
"""What is computed for a figure: its data, its findings with the names of their verdicts, and its own tables."""


def write(parts: Mapping[str, Part], figures: Mapping[str, Drawing], study: PaperStudy) -> str:
    """The report as Markdown: the figures that have parts, and the titles of the others."""
    spectrum = study.problem.spectrum
    found = [verdict for _, findings, _ in parts.values() for *_, verdict in findings]
    held, partly, failed = (found.count(verdict.name) for verdict in JUDGED)
    undecided = found.count(Verdict.open.name)
    untested = found.count(Verdict.untested.name)
    rest = f"; {undecided} about networks are not decided" if undecided else ""
    rest += f"; {untested} {'is' if untested == 1 else 'are'} not tested by what is measured here" if untested else ""
    text = [
        "# The noisy quadratic figures of Zhang et al. (2019)",
        "Every number about the model was computed when this file was written; none is copied. Numbers about real networks come "
        "from studies that were made before. Statements are those of "
        "*Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy Quadratic Model* (NeurIPS 2019, "
        "arXiv 1907.04164) or what its figures suggest, in our words, unless another work is named with them, or they are our own.",
        f"The instance: {spectrum.dim:,.0f} modes with curvature h_i = 1/i, gradient noise C = H, start theta_0 ~ "
        f"N(0, I), tr H = {spectrum.trace:.6f}, initial loss {spectrum.initial_loss:.6f}, target {TARGET:g}. "
        "Here the spectrum is exact, hyper-parameters are tuned continuously and steps are counted to the true first "
        "hit; the paper bins the spectrum and searches a grid.",
        f"Of {len(found)} statements, the numbers support {held}, support {partly} in part, and do not support {failed}{rest}.",
        *(_section(name, figures[name], part) for name, part in parts.items()),
    ]
    if omitted := [f"- `{name}`: {figure.TITLE}" for name, figure in figures.items() if name not in parts]:
        text += ["## Not drawn in this run", "\n".join(omitted)]
    return "\n\n".join(text) + "\n"


def _section(name: str, figure: Drawing, part: Part) -> str:
    _, findings, tables = part
    rows = [(says, measured, f"**{Verdict[verdict].value}**") for says, measured, verdict in findings]
    text = [
        f"## {figure.TITLE}",
        f"![{figure.TITLE}]({name}.png)",
        f"{figure.CAPTION} [PDF]({name}.pdf), [data]({name}.csv).",
        markdown(["statement", "measured here", "verdict"], rows),
    ]
    return "\n\n".join([*text, tables] if tables else text)
