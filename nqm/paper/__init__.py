"""Every noisy-quadratic figure of Zhang et al. (2019), redrawn, with a report that sets our numbers beside its words.

A figure is a module of `figures` (`Drawing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

from ..show.chart import Figure, save
from ..show.tables import Table, made, to_csv
from ..show.verdict import Finding, Verdict
from ..types import Progress, unknown
from . import report
from .figures import curves, fig2, fig3a, fig3b, fig4a, fig4b, schedules, thresholds
from .instance import PaperStudy
from .parts import Parts


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

FIGURES: dict[str, Drawing] = {
    "fig2": fig2, "fig3a": fig3a, "fig3b": fig3b, "fig4a": fig4a, "fig4b": fig4b,
    "curves": curves, "thresholds": thresholds, "schedules": schedules,
}  # fmt: skip


def run_all(
    folder: str | Path, only: Sequence[str] | None = None, progress: Progress | None = None,
    study: PaperStudy | None = None, workers: int = 1, notice: Callable[[str], object] | None = None,
) -> list[Path]:  # fmt: skip
    """Write each figure as PNG, PDF and CSV, and ``report.md``; the paths written.

    Finished figures are kept in the folder until all are: the same call continues a run that was interrupted.

    Parameters
    ----------
    folder : made if it is not there.
    only : names of the figures to draw; all of `FIGURES` if left out.
    progress : called with the number of figures done and their total.
    study : batch sizes to use instead of the paper's.
    workers : number of processes that share the searches, as in `PaperStudy.shared`.
    notice : called with a sentence if figures of an interrupted run are there.
    """
    names, folder, study = chosen(only), made(folder, "report.md"), study or PaperStudy()
    parts = Parts(folder / "unfinished-figures.jsonl", study.about)
    if notice and parts.note:
        notice(parts.note)
    with study.shared(workers) as shared:
        written = _run(names, folder, progress, shared, parts)
    parts.finish()
    return written


def _run(names: list[str], folder: Path, progress: Progress | None, study: PaperStudy, parts: Parts) -> list[Path]:
    written, sections = [], []
    for done, name in enumerate(names):
        if progress:
            progress(done, len(names))
        figure = FIGURES[name]
        if name not in parts.known:
            parts.keep(name, _part(figure, study))
        table, findings, more = cast(Part, parts.known[name])
        written += [folder / f"{name}.{ending}" for ending in ("png", "pdf", "csv")]
        save(figure.draw(table), *written[-3:-1])
        to_csv(table, written[-1])
        found = [Finding(says, measured, Verdict[verdict]) for says, measured, verdict in findings]
        sections.append(report.Section(name, figure.TITLE, figure.CAPTION, found, more))
    if progress:
        progress(len(names), len(names))
    left_out = {name: figure.TITLE for name, figure in FIGURES.items() if name not in names}
    written.append(folder / "report.md")
    written[-1].write_text(report.write(sections, left_out, study))
    return written


def _part(figure: Drawing, study: PaperStudy) -> Part:
    table = figure.data(study)
    tables = getattr(figure, "tables", None)
    findings = [(f.says, f.measured, f.verdict.name) for f in figure.findings(table, study)]
    return table, findings, tables(table, study) if tables else ""


def chosen(only: Sequence[str] | None = None) -> list[str]:
    """Names of the figures that are meant, in the order in which they are drawn."""
    wanted = [only] if isinstance(only, str) else list(only or FIGURES)
    for name in wanted:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES, argument="only")
    return [name for name in FIGURES if name in wanted]


__all__ = ["FIGURES", "PaperStudy", "chosen", "run_all"]
