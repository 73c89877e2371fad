"""What the figures share: the paper's instance, results kept for the run, statements beside their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from ..batch import Sweep, sweep
from ..bounds import bayes_bound, conjugate_gradient_steps, paper_bound
from ..optimizers import Optimizer, Preconditioned
from ..optimizers.base import parameters
from ..problem import Quadratic
from ..search import Scheduled, optimal_schedule
from ..spectrum import Spectrum

Table = list[dict[str, Any]]

DIM = 10_000
TARGET = 0.01
BATCH_SIZES = tuple(2**k for k in range(2, 21, 2))
POWERS = (0.0, 0.25, 0.5, 0.75)


@cache
def instance() -> Quadratic:
    """The paper's problem: d = 10^4, h_i = 1/i, C = H, theta_0 ~ N(0, I)."""
    return Quadratic(Spectrum.power_law(DIM))


@dataclass(frozen=True)
class SweepQuestion:
    optimizer: Optimizer
    target: float
    batch_sizes: tuple[int, ...]

    def answer(self) -> Sweep:
        return sweep(instance(), self.optimizer, self.target, self.batch_sizes)


@dataclass(frozen=True)
class ScheduleQuestion:
    optimizer: Optimizer
    batch_size: float
    pieces: int

    def answer(self) -> Scheduled:
        return optimal_schedule(instance(), self.optimizer, self.batch_size, TARGET, pieces=self.pieces)


Question = SweepQuestion | ScheduleQuestion


def answer(question: Question) -> Any:
    """What a worker does: the problem is its own, so a question is all that travels."""
    return question.answer()


class Study:
    """Questions about the paper's instance, each answered once in a run.

    Parameters
    ----------
    batch_sizes : where curves have their points; fewer make a quick look.
    pool : an executor that works ahead on questions it is told of; none to answer each when it is asked.
    """

    def __init__(self, batch_sizes: Sequence[int] = BATCH_SIZES, pool: Executor | None = None) -> None:
        self.problem, self.target = instance(), TARGET
        self.batch_sizes, self.pool = tuple(batch_sizes), pool
        self._known: dict[Any, Any] = {}

    def to_sweep(self, optimizer: Optimizer, target: float = TARGET) -> SweepQuestion:
        return SweepQuestion(optimizer, target, self.batch_sizes)

    def sweep(self, optimizer: Optimizer, target: float = TARGET) -> Sweep:
        """Tuned steps to the target over the batch sizes."""
        return self._ask(self.to_sweep(optimizer, target))

    def schedule(self, optimizer: Optimizer, batch_size: float, pieces: int) -> Scheduled:
        """The best schedule to the target."""
        return self._ask(ScheduleQuestion(optimizer, batch_size, pieces))

    def prepare(self, questions: Iterable[Question]) -> None:
        """Tell the pool what will be asked."""
        if self.pool is None:
            return
        for question in questions:
            if question not in self._known:
                self._known[question] = self.pool.submit(answer, question)

    def _ask(self, question: Question) -> Any:
        if question not in self._known:
            self._known[question] = answer(question)
        known = self._known[question]
        return known.result() if isinstance(known, Future) else known

    def bounds(self, batch_size: float) -> dict[str, float]:
        spectrum = self.problem.spectrum
        return {
            "paper_bound": paper_bound(spectrum, self.target, batch_size),
            "bayes_bound": bayes_bound(spectrum, self.target, batch_size),
        }

    def cg_steps(self, power: float) -> int | None:
        return conjugate_gradient_steps(self.problem.spectrum, self.target, power)


class Verdict(Enum):
    """What the numbers say of a statement."""

    holds = "holds"
    partly = "holds in part"
    fails = "not supported"

    @classmethod
    def of(cls, *checks: bool) -> Verdict:
        """All of its parts hold, some, or none."""
        return cls.holds if all(checks) else cls.partly if any(checks) else cls.fails


@dataclass(frozen=True)
class Finding:
    """A statement, the number that this run measured for it, and the verdict."""

    says: str
    measured: str
    verdict: Verdict


def preconditioned(optimizer: Optimizer, power: float) -> Optimizer:
    return Preconditioned(optimizer, power) if power else optimizer


def sweep_rows(found: Sweep, **first: Any) -> Table:
    """A sweep as rows, with columns of ours in front."""
    rows = []
    for i, batch_size in enumerate(found.batch_sizes):
        optimizer = found.optimizers[i]
        settings = {} if optimizer is None else {name: p.value for name, p in parameters(optimizer).items()}
        settings.pop("power", None)
        numbers = {name: float(getattr(found, name)[i]) for name in ("steps", "examples", "effective_lr")}
        rows.append({**first, "batch_size": float(batch_size), **numbers, **settings})
    return rows


def column(table: Table, name: str, **where: Any) -> np.ndarray:
    """One column of the rows that match, nan where a row has none."""
    values = [row.get(name) for row in table if all(row[k] == v for k, v in where.items())]
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def distinct(table: Table, name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in table))


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; numbers short."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(short(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def short(value: Any) -> str:
    """A number as a reader wants it: whole steps in full, others to four digits."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.4g}"


def spelled(values: Iterable[float], digits: str = ".3g") -> str:
    """Numbers in a row: ``.855, .843``."""
    return ", ".join(format(float(v), digits) for v in values)
