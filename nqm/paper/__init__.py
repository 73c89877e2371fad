"""Every noisy-quadratic figure of Zhang et al. (2019), redrawn, with a report that sets our numbers beside its words.

A figure is a module with ``data(study) -> table``, ``draw(table) -> figure`` and ``findings(table, study)``; it may name
the searches it will ask for (``questions``), so that workers run ahead, and add Markdown of its own (``tables``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..show.chart import save
from ..show.tables import made, write_csv
from ..types import Wrong
from . import report
from .figures import curves, fig2, fig3a, fig3b, fig4a, fig4b, schedules, thresholds
from .instance import PaperStudy
from .instance import workers as pool_of

class Figure(Protocol):
    """What a figure's module has."""

    TITLE: str
    CAPTION: str

    def data(self, study: PaperStudy) -> Table: ...
    def draw(self, table: Table) -> MatplotlibFigure: ...
    def findings(self, table: Table, study: PaperStudy) -> list[Finding]: ...


FIGURES: dict[str, Figure] = {
    module.__name__.rsplit(".", 1)[-1]: module
    for module in (fig2, fig3a, fig3b, fig4a, fig4b, curves, thresholds, schedules)
}


def run_all(
    folder: str | Path,
    only: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    study: PaperStudy | None = None,
    workers: int = 1,
) -> list[Path]:
    """Write each figure as PNG, PDF and CSV, and ``report.md``; the paths written.

    Parameters
    ----------
    folder : made if it is not there.
    only : names of the figures to draw; all of `FIGURES` if left out.
    progress : called with the number of figures done and their total.
    study : batch sizes to use instead of the paper's.
    workers : processes that share the searches. A script that asks for more than one needs the usual
        ``if __name__ == "__main__":``.
    """
    names, folder, study = _chosen(only), made(folder, "report.md"), study or PaperStudy()
    with pool_of(workers) as pool:
        return _run(names, folder, progress, study.sharing(pool))


def _run(names: list[str], folder: Path, progress: Callable[[int, int], None] | None, study: PaperStudy) -> list[Path]:
    written, sections = [], []
    for name in names:
        study.prepare(FIGURES[name].questions(study) if hasattr(FIGURES[name], "questions") else ())
    for done, name in enumerate(names):
        if progress:
            progress(done, len(names))
        figure = FIGURES[name]
        table = figure.data(study)
        written += [folder / f"{name}.{ending}" for ending in ("png", "pdf", "csv")]
        save(figure.draw(table), *written[-3:-1])
        write_csv(table, written[-1])
        more = figure.tables(table, study) if hasattr(figure, "tables") else ""
        sections.append(report.Section(name, figure.TITLE, figure.CAPTION, figure.findings(table, study), more))
    if progress:
        progress(len(names), len(names))
    left_out = {name: figure.TITLE for name, figure in FIGURES.items() if name not in names}
    written.append(folder / "report.md")
    written[-1].write_text(report.write(sections, left_out, study))
    return written


def _chosen(only: Sequence[str] | None) -> list[str]:
    wanted = [only] if isinstance(only, str) else list(only or FIGURES)
    for name in wanted:
        if name not in FIGURES:
            raise Wrong(f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in wanted]


__all__ = ["FIGURES", "PaperStudy", "run_all", "write_csv"]
