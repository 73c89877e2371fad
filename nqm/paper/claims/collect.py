"""Measure many claims, in this process or on a pool of several, and draw what was measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ...show.chart import save
from ...show.tables import Row, Table
from ...show.verdict import Verdict
from ..instance import PaperStudy
from ..parts import Parts
from .base import Claim, Measured, Premises

Timed = tuple[Measured, float]


@dataclass(frozen=True, eq=False)
class Checked:
    """A claim, its measurement, and the measurement with the premise that changes the verdict, if it was asked for."""

    claim: Claim
    measured: Measured
    seconds: float
    turned: Measured | None = None

    def to_dict(self) -> Row:
        """Plain numbers, as ``--json`` prints them."""
        turned = {"premise": self.claim.turned_by, **self.turned.to_dict()} if self.turned else None
        about = self.claim.to_dict()
        return {**about, **self.measured.to_dict(), "seconds": round(self.seconds, 3), "turned": turned}


def collect(
    claims: Sequence[Claim], study: PaperStudy, parts: Parts, folder: Path | None = None, turn: bool = False,
    premises: Premises | None = None,
) -> Iterator[Checked]:  # fmt: skip
    """Measure claims in order and yield each when it is done; pictures go into the folder.

    Claims that ask the study are measured in this process and share its answers. All other claims are tasks for its pool.
    """
    tasks = {
        (c.name, again): _Task(c, {**(premises or {}), **(c.turn if again else {})}, study, parts, again)
        for c in claims
        for again in (False, True)[: 1 + (turn and bool(c.turn))]
    }
    pictures = []
    for c in claims:
        measured, seconds = tasks[c.name, False].result()
        turned = tasks[c.name, True].result()[0] if turn and c.turn else None
        if folder and study.pool:
            pictures.append(study.pool.submit(_draw, c, measured.table, folder / f"{c.name}.png"))
        elif folder:
            _draw(c, measured.table, folder / f"{c.name}.png")
        yield Checked(c, measured, seconds, turned)
    for picture in pictures:
        picture.result()


class _Task:
    """A measurement: known from an interrupted run, under way in the pool, or taken when its result is asked for."""

    def __init__(self, claim: Claim, premises: Premises, study: PaperStudy, parts: Parts, turned: bool) -> None:
        self.claim, self.premises, self.study, self.parts = claim, premises, study, parts
        self.name, self.ahead = f"{claim.name}, turned" if turned else claim.name, None
        if study.pool and not claim.studies and self.name not in parts.known:
            self.ahead = study.pool.submit(_measure, claim, premises)
            self.ahead.add_done_callback(self._keep)

    def result(self) -> Timed:
        if self.ahead:
            return self.ahead.result()
        if self.name not in self.parts.known:
            self._keep(_measure(self.claim, self.premises, self.study))
        found, seconds = cast(tuple[Row, float], self.parts.known[self.name])
        return Measured(**{**found, "verdict": Verdict[found["verdict"]]}), seconds

    def _keep(self, found: Timed | Future[Timed]) -> None:
        """Store a measurement as soon as it is finished, in whatever order the pool finishes them."""
        if isinstance(found, Future):
            if found.cancelled() or found.exception():
                return
            found = found.result()
        measured, seconds = found
        self.parts.keep(self.name, ({**vars(measured), "verdict": measured.verdict.name}, seconds))


def _measure(claim: Claim, premises: Premises, study: PaperStudy | None = None) -> Timed:
    begun = time.perf_counter()
    measured = claim.check(study, **premises)
    return measured, time.perf_counter() - begun


def _draw(claim: Claim, table: Table, path: Path) -> None:
    save(claim.draw(table), path)
