"""The claims of Zhang et al. (2019), some of other works, and our own, each measured, with a verdict.

`check` measures one claim, `run_all` measures all. Each file of this package that has a ``STATEMENT`` is one `Claim`;
`CLAIMS` lists them.

>>> check("stationary_covariance").sentence
'holds within 0.5% at lr h = 0.01'
>>> check("stationary_covariance", x=1.0).verdict.value
'not supported'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from ...show.tables import made
from ...types import Progress, Wrong, unknown
from ..instance import PaperStudy
from ..parts import Parts
from . import page
from .base import Claim, Measured, Premises
from .collect import Checked, collect


def _found() -> dict[str, Claim]:
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return {claim.name: claim for claim in (Claim.of(m) for m in modules if hasattr(m, "STATEMENT"))}


CLAIMS: dict[str, Claim] = _found()


def claim(name: str) -> Claim:
    """The claim of this name; the error for an unknown name suggests the nearest one."""
    if name not in CLAIMS:
        raise unknown("claim", name, CLAIMS)
    return CLAIMS[name]


def check(name: str, study: PaperStudy | None = None, **premises: object) -> Measured:
    """Measure one claim, with other premises where they are given."""
    return claim(name).check(study, **premises)


def run_all(
    only: Sequence[str] | None = None, folder: str | Path | None = None, *, turn: bool = False,
    premises: Premises | None = None, progress: Progress | None = None, study: PaperStudy | None = None, workers: int = 1,
    notice: Callable[[str], object] | None = None,
) -> list[Checked]:  # fmt: skip
    """Measure claims; with a folder, write a picture of each and one page of all, ``claims.md`` and ``claims.html``.

    Finished measurements are stored in the folder until all are finished, so the same call continues a run that was
    interrupted. Measurements with other premises are not stored.

    Parameters
    ----------
    only : names of the claims to measure; by default all claims whose requirements are installed.
    folder : where to write; it is created if necessary.
    turn : measure each claim again with the premise that changes its verdict, if one is known.
    premises : other premises, if one claim alone is measured.
    progress : called with the number of claims done and their total.
    study : a study with other batch sizes than the paper's.
    workers : number of processes that share the work, as in `PaperStudy.shared`.
    notice : called with a sentence if the folder has measurements of an interrupted run.
    """
    chosen = [claim(name) for name in only] if only else [c for c in CLAIMS.values() if not c.missing]
    for c in chosen:
        if c.missing:
            raise Wrong(f"{c.name} {c.missing}")
    if premises and len(chosen) != 1:
        raise Wrong(f"premises are those of one claim, got {len(chosen)} claims; name that claim", "premises")
    folder, study = made(folder, "claims.md") if folder else None, study or PaperStudy()
    parts = Parts(folder / "unfinished-claims.jsonl" if folder and not premises else None, study.about)
    if notice and parts.note:
        notice(parts.note)
    found = []
    with study.shared(workers) as shared:
        for one in collect(chosen, shared, parts, folder, turn, premises):
            found.append(one)
            if progress:
                progress(len(found), len(chosen))
    if folder:
        page.write(found, folder, left_out(found))
    parts.finish()
    return found


def left_out(found: Sequence[Checked]) -> str:
    """A sentence on the claims that were omitted because an extra is not installed; empty unless all others were measured."""
    absent = [c for c in CLAIMS.values() if c.missing]
    if not absent or {one.claim.name for one in found} != {c.name for c in CLAIMS.values() if not c.missing}:
        return ""
    return " ".join(
        f"Omitted: {', '.join(c.name for c in absent if c.missing == why)} ({why})."
        for why in dict.fromkeys(c.missing for c in absent)
    )


__all__ = ["CLAIMS", "Checked", "Claim", "Measured", "check", "claim", "left_out", "run_all"]
