"""Verbs about Zhang et al. (2019): redraw their figures and measure their claims."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..types import Progress, Wrong
from . import options
from .options import CLAIM, flag, option, verb
from .output import Sink, progress, show_pairs
from .screen import say

if TYPE_CHECKING:
    from ..paper.claims import Checked, Claim

PROCESSES = min(4, os.cpu_count() or 1)  # Figures and claims share their searches among this many processes.
FEW_CLAIMS = 3  # Up to this many claims are measured in one process, because starting more processes takes longer.
FIGURE_SECONDS = 10.0  # Average time of a figure, with two busy processes on two cores.
CLAIM_SECONDS = 5.0  # Average time of a claim, measured in the same way.
STARTING_SECONDS = 10  # Time in which a process loads nqm and what a figure or a claim needs.


@verb(
    "redraw the figures of Zhang et al. (2019)",
    "nqm paper",
    "nqm paper --out figures --only fig2 --only fig4a",
    "nqm paper --only networks",
)
@option("--out folder DIR", "Folder to write into.", click.Path(file_okay=False), default="nqm-paper")
@option("--only NAME", "Draw this figure only; may be repeated.", multiple=True)
@options.sink()
def paper(folder: str, only: tuple[str, ...], sink: Sink) -> None:
    """Redraw every noisy-quadratic figure of Zhang et al. (2019), with data and a report that checks its statements.

    The figure adam is not in the paper: it shows Adam itself beside the preconditioners that stand for it. The figure networks
    sets what studies of real networks measured beside the model; these studies come with the package and are not run again.

    Finished figures are kept if you interrupt the command; the same command then continues.
    """
    from ..paper import chosen, run_all

    workers = 1 if only else PROCESSES
    with _reporting("figures", chosen(only), FIGURE_SECONDS, workers, kept=True) as report:
        written = [str(path) for path in run_all(folder, only or None, report, workers=workers, notice=_say)]
    sink.deliver(lambda: {"written": written}, lambda: click.echo("\n".join(written)))


@verb(
    "measure the claims of Zhang et al. (2019)",
    "nqm claims --list",
    "nqm claims ema_lowers_floor stationary_covariance --turn",
    "nqm claims --out claims",
    "nqm claims lr_momentum_interchangeable --json",
    "nqm claims stationary_covariance --premise x=1.9 --csv covariance.csv",
)
@click.argument("chosen", metavar="[NAME]...", nargs=-1, type=CLAIM)
@flag("--list listing", "List the claims and measure none.")
@option("--out folder DIR", "Write pictures, and one page as claims.md and claims.html.", click.Path(file_okay=False))
@flag("--turn", "Measure each claim again under the premise that turns its verdict, if one is known.")
@option("--premise premises NAME=VALUE", "Measure one claim with this premise; may be repeated.", multiple=True)
@options.sink(csv=True)
def claims(
    chosen: tuple[Claim, ...], listing: bool, folder: str | None, turn: bool, premises: tuple[str, ...], sink: Sink
) -> None:
    """Measure the claims of Zhang et al. (2019), and print for each the statement, the measured number and the verdict.

    Each says whose it is: the paper's, that of another work, which is named with its year, or our own. They are counted apart.

    Without a NAME, all claims are measured, in several processes. A verdict follows from the number and a tolerance, whose
    reason is given. Random numbers are seeded. With --out, finished claims are kept if you interrupt the command; the same
    command then continues.
    """
    from ..paper.claims import CLAIMS, run_all

    if listing and (premises or turn or folder or sink.csv):
        raise click.UsageError("--list measures nothing, so it goes with --json and NAME alone")
    if (premises or sink.csv) and len(chosen) != 1:
        raise click.UsageError("--premise and --csv are about one claim: give its NAME")
    given = dict(chosen[0].read(text) for text in premises)
    if len(given) < len(premises):
        raise Wrong(f"give each premise once, got {', '.join(premises)}", argument="premises")
    if listing:
        listed = chosen or CLAIMS.values()
        sink.deliver(lambda: {"claims": [c.to_dict() for c in listed]}, lambda: _show_claims(listed))
        return
    workers = 1 if 0 < len(chosen) <= FEW_CLAIMS else PROCESSES
    names = [claim.name for claim in chosen or CLAIMS.values() if chosen or not claim.missing]
    with _reporting("claims", names, CLAIM_SECONDS * (1 + turn), workers, kept=bool(folder)) as report:
        found = run_all(names, folder, turn=turn, premises=given, progress=report, workers=workers, notice=_say)
    sink.deliver(
        lambda: {"claims": [one.to_dict() for one in found]},
        lambda: _show_checked(found),
        lambda: [row for one in found for row in one.measured.table],
    )
    if folder:
        for page in ("claims.md", "claims.html"):
            _say(f"wrote {os.path.join(folder, page)}")


@contextmanager
def _reporting(what: str, names: Sequence[str], seconds: float, workers: int, kept: bool) -> Iterator[Progress | None]:
    """Say how long several parts will take, then show progress: a bar on a terminal, and elsewhere a line per finished part."""

    def line(done: int, total: int) -> None:
        if done:
            _say(f"{names[done - 1]}: done ({done} of {total})")

    if len(names) > 1:
        minutes = (STARTING_SECONDS + len(names) * seconds / workers) / 60
        rough = "half a minute" if minutes < 0.75 else "a minute" if minutes < 1.5 else f"{minutes:.0f} minutes"
        processes = "1 process" if workers == 1 else f"{workers} processes"
        ending = f"{'' if kept else 'with --out, '}finished ones are kept if you interrupt"
        _say(f"{len(names)} {what} on {processes}: roughly {rough}, and longer on a busy machine; {ending}")
    with progress(what) as bar:
        yield bar or (line if len(names) > 1 else None)


def _say(sentence: str) -> None:
    say(sentence, err=True)


def _show_checked(found: Sequence[Checked]) -> None:
    """Print claims with their measurements, one entry per line; on a terminal lines are wrapped."""
    from ..paper.claims import left_out
    from ..paper.claims.page import entries, summary

    for one in found:
        click.secho(one.claim.name, bold=True)
        for name, text in [("claim", one.claim.statement), ("said by", one.claim.origin), *entries(one)]:
            _show_entry(name, text)
        click.echo()
    say(f"{summary(found)} {left_out(found)}".rstrip())


def _show_claims(claims: Iterable[Claim]) -> None:
    for claim in claims:
        click.secho(claim.name, bold=True)
        more = "".join(f" ({note})" for note in (claim.origin, claim.missing) if note)
        _show_entry("", claim.statement + more)


def _show_entry(name: str, text: str) -> None:
    show_pairs({f"  {name:<9}" if name else "": text})
