"""Measure many claims, on several processes if there are some, and draw what was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...show.chart import save
from ...show.tables import Row, Table
from ..instance import PaperStudy
from .base import Claim, Measured, Premises

T = TypeVar("T")
Timed = tuple[Measured, float]


@dataclass(frozen=True, eq=False)
class Checked:
    """A claim with what was measured for it, and again with the premises that turn it, if that was asked for."""

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
    claims: Sequence[Claim], study: PaperStudy, folder: Path | None = None, turn: bool = False,
    premises: Premises | None = None,
) -> Iterator[Checked]:  # fmt: skip
    """Measure claims in order, each as soon as it and those before it are done; pictures go into the folder.

    Claims that ask the study share its answers and are put together here; the others are whole tasks for its pool.
    """
    study.prepare(question for c in claims if c.questions for question in c.questions(study))
    tasks = {
        (c.name, again): _Task(c, {**(premises or {}), **(c.turn if again else {})}, study)
        for c in claims
        for again in (False, True)[: 1 + turn]
    }
    pictures = []
    for c in claims:
        measured, seconds = tasks[c.name, False].result()
        turned = tasks[c.name, True].result()[0] if turn else None
        if folder:
            pictures.append(_submit(study.pool, _draw, c, measured.table, folder / f"{c.name}.png"))
        yield Checked(c, measured, seconds, turned)
    for picture in pictures:
        if picture is not None:
            picture.result()


class _Task:
    """A measurement: under way in the pool, or taken when it is asked for."""

    def __init__(self, claim: Claim, premises: Premises, study: PaperStudy) -> None:
        self.claim, self.premises, self.study = claim, premises, study
        self.ahead = _submit(study.pool, _measure, claim, premises) if study.pool and not claim.studies else None

    def result(self) -> Timed:
        return self.ahead.result() if self.ahead else _measure(self.claim, self.premises, self.study)


def _submit(pool: Executor | None, function: Callable[..., T], *arguments: object) -> Future[T] | None:
    """To the pool, or done at once if there is none."""
    if pool is None:
        function(*arguments)
        return None
    return pool.submit(function, *arguments)


def _measure(claim: Claim, premises: Premises, study: PaperStudy | None = None) -> Timed:
    begun = time.perf_counter()
    measured = claim.check(study, **premises)
    return measured, time.perf_counter() - begun


def _draw(claim: Claim, table: Table, path: Path) -> None:
    save(claim.draw(table), path)
