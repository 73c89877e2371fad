"""The report: each figure, what the paper says of it, and what this run measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..show.tables import markdown
from ..show.verdict import JUDGED, Finding
from .instance import TARGET, PaperStudy


@dataclass(frozen=True)
class Section:
    """A figure's part of the report."""

    name: str
    title: str
    caption: str
    findings: Sequence[Finding]
    tables: str = ""


def write(sections: Sequence[Section], left_out: Mapping[str, str], study: PaperStudy) -> str:
    """The report as Markdown. ``left_out`` maps figures that were not asked for to their titles."""
    spectrum = study.problem.spectrum
    found = [finding for section in sections for finding in section.findings]
    held, partly, failed = (sum(f.verdict is v for f in found) for v in JUDGED)
    parts = [
        "# The noisy quadratic figures of Zhang et al. (2019)",
        "Every number below was computed when this file was written; none is copied. Statements are those of "
        "*Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy Quadratic Model* (NeurIPS 2019, "
        "arXiv 1907.04164), of works it leans on, and what its figures suggest, in our words.",
        f"The instance: {spectrum.dim:,.0f} modes with curvature h_i = 1/i, gradient noise C = H, start theta_0 ~ "
        f"N(0, I), tr H = {spectrum.trace:.6f}, initial loss {spectrum.initial_loss:.6f}, target {TARGET:g}. "
        "Here the spectrum is exact, hyper-parameters are tuned continuously and steps are counted to the true first "
        "hit; the paper bins the spectrum and searches a grid.",
        f"Of {len(found)} statements the numbers support {held}, {partly} in part, and {failed} not.",
        *(_section(section) for section in sections),
    ]
    if left_out:
        names = "\n".join(f"- `{name}`: {title}" for name, title in left_out.items())
        parts.append(f"## Not drawn in this run\n\n{names}")
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> str:
    rows = [(f.says, f.measured, f"**{f.verdict.value}**") for f in section.findings]
    parts = [
        f"## {section.title}",
        f"![{section.title}]({section.name}.png)",
        f"{section.caption} [PDF]({section.name}.pdf), [data]({section.name}.csv).",
        markdown(["statement", "measured here", "verdict"], rows),
    ]
    return "\n\n".join([*parts, section.tables] if section.tables else parts)
