"""Every noisy-quadratic figure of Zhang et al. (2019), redrawn, one of Adam itself, and a chapter on real networks, with a report.

Each figure is a module of `figures`, of the form `report.Drawing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from ..show.chart import save
from ..show.tables import made, to_csv
from ..types import Progress, unknown
from . import report
from .figures import adam, curves, fig2, fig3a, fig3b, fig4a, fig4b, networks, schedules, thresholds
from .instance import PaperStudy
from .parts import Parts
from .report import Drawing, Part

FIGURES: dict[str, Drawing] = {
    "fig2": fig2, "fig3a": fig3a, "fig3b": fig3b, "fig4a": fig4a, "fig4b": fig4b,
    "curves": curves, "thresholds": thresholds, "schedules": schedules, "adam": adam, "networks": networks,
}  # fmt: skip


def run_all(
    folder: str | Path, only: Sequence[str] | None = None, progress: Progress | None = None,
    study: PaperStudy | None = None, workers: int = 1, notice: Callable[[str], object] | None = None,
) -> list[Path]:  # fmt: skip
    """Write each figure as PNG, PDF and CSV, and ``report.md``; return the paths of all files.

    Finished figures are stored in the folder until all are finished, so the same call continues a run that was interrupted.

    Parameters
    ----------
    folder : where to write; it is created if necessary.
    only : names of the figures to draw; by default all of `FIGURES`.
    progress : called with the number of figures done and their total.
    study : a study with other batch sizes than the paper's.
    workers : number of processes that share the searches, as in `PaperStudy.shared`.
    notice : called with a sentence if the folder has figures of an interrupted run.
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
    written: list[Path] = []
    for done, name in enumerate(names):
        if progress:
            progress(done, len(names))
        if name not in parts.known:
            parts.keep(name, _part(FIGURES[name], study))
        table, *_ = cast(Part, parts.known[name])
        written += [folder / f"{name}.{ending}" for ending in ("png", "pdf", "csv")]
        save(FIGURES[name].draw(table), *written[-3:-1])
        to_csv(table, written[-1])
    if progress:
        progress(len(names), len(names))
    written.append(folder / "report.md")
    written[-1].write_text(report.write({name: cast(Part, parts.known[name]) for name in names}, FIGURES, study))
    return written


def _part(figure: Drawing, study: PaperStudy) -> Part:
    table = figure.data(study)
    tables = getattr(figure, "tables", None)
    findings = [(f.says, f.measured, f.verdict.name) for f in figure.findings(table, study)]
    return table, findings, tables(table, study) if tables else ""


def chosen(only: Sequence[str] | None = None) -> list[str]:
    """Names of the figures to draw, in the order in which they are drawn."""
    wanted = [only] if isinstance(only, str) else list(only or FIGURES)
    for name in wanted:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES, argument="only")
    return [name for name in FIGURES if name in wanted]


__all__ = ["FIGURES", "PaperStudy", "chosen", "run_all"]
