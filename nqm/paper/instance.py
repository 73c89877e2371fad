"""Studies of the paper's instance: searches answered once, ahead of time by workers; statements beside their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol, TypeVar, cast

from ..engine.spectrum import Spectrum
from ..lab.executors import Executor
from ..optimizers import EMA, SGD, HeavyBall, Optimizer, Preconditioned
from ..optimizers.base import parameters
from ..problems.bounds import bayes_bound, conjugate_gradient_steps, paper_bound
from ..problems.quadratic import Quadratic
from ..search import Scheduled, optimal_schedule
from ..search.sweeps import Sweep, sweep
from ..show.tables import Table

DIM = 10_000
EXPONENT = 1.0
TARGET = 0.01
BATCH_SIZES = tuple(2**k for k in range(2, 21, 2))
POWERS = (0.0, 0.25, 0.5, 0.75)
WITH_MOMENTUM = {"SGD": SGD(), "heavy ball": HeavyBall()}
WITH_AVERAGE = {"SGD": SGD(), "SGD with EMA": EMA(SGD())}
Methods = Mapping[str, Optimizer]
T = TypeVar("T", covariant=True)


@cache
def instance(dim: int = DIM, exponent: float = EXPONENT) -> Quadratic:
    """The paper's problem: d = 10^4, h_i = 1/i, C = H, theta_0 ~ N(0, I); or one with another d or decay of h."""
    if exponent == 0:
        return Quadratic(Spectrum([1.0], count=dim))  # equal modes are one mode
    return Quadratic(Spectrum.power_law(dim, exponent))


@dataclass(frozen=True)
class SweepQuestion:
    dim: int
    exponent: float
    optimizer: Optimizer
    target: float
    batch_sizes: tuple[float, ...]

    def answer(self) -> Sweep:
        return sweep(instance(self.dim, self.exponent), self.optimizer, self.batch_sizes, target=self.target)


@dataclass(frozen=True)
class ScheduleQuestion:
    dim: int
    exponent: float
    optimizer: Optimizer
    target: float
    batch_size: float
    pieces: int

    def answer(self) -> Scheduled:
        problem = instance(self.dim, self.exponent)
        return optimal_schedule(problem, self.optimizer, self.batch_size, self.target, pieces=self.pieces)


Question = SweepQuestion | ScheduleQuestion


class Asks(Protocol[T]):
    """A question, and the kind of its answer."""

    def answer(self) -> T: ...


def answer(question: Asks[T]) -> T:
    """What a worker does: the problem is its own, so a question is all that travels."""
    return question.answer()


class PaperStudy:
    """Questions about the paper's instance, each answered once in a run.

    Parameters
    ----------
    batch_sizes : where curves have their points; fewer make a quick look.
    pool : an executor that works ahead on questions it is told of; none to answer each when it is asked.
    dim, exponent : of the problem, h_i = i^-exponent for i up to dim.
    """

    def __init__(
        self, batch_sizes: Sequence[float] = BATCH_SIZES, pool: Executor | None = None, dim: int = DIM,
        exponent: float = EXPONENT,
    ) -> None:  # fmt: skip
        self.problem, self.target = instance(dim, exponent), TARGET
        self.batch_sizes, self.pool = tuple(batch_sizes), pool
        self.dim, self.exponent = dim, exponent
        self._known: dict[object, object] = {}  # answers, or what will be one, by question

    @property
    def about(self) -> tuple[object, ...]:
        """What every answer depends on, besides its question."""
        return self.batch_sizes, self.dim, self.exponent, self.target

    def on(self, exponent: float) -> PaperStudy:
        """The same study of a problem whose curvature decays otherwise; answers are shared."""
        if exponent == self.exponent:
            return self
        other = PaperStudy(self.batch_sizes, self.pool, self.dim, exponent)
        other._known = self._known
        return other

    def sharing(self, pool: Executor | None) -> PaperStudy:
        """The same study with workers of a pool; itself if there is none."""
        return self if pool is None else PaperStudy(self.batch_sizes, pool, self.dim, self.exponent)

    def to_sweep(
        self, optimizer: Optimizer, target: float = TARGET, batch_sizes: Sequence[float] | None = None
    ) -> SweepQuestion:
        sizes = self.batch_sizes if batch_sizes is None else tuple(batch_sizes)
        return SweepQuestion(self.dim, self.exponent, optimizer, target, sizes)

    def to_schedule(self, optimizer: Optimizer, batch_size: float, pieces: int) -> ScheduleQuestion:
        return ScheduleQuestion(self.dim, self.exponent, optimizer, TARGET, float(batch_size), pieces)

    def sweep(self, optimizer: Optimizer, target: float = TARGET, batch_sizes: Sequence[float] | None = None) -> Sweep:
        """Tuned steps to the target over the batch sizes."""
        return self._ask(self.to_sweep(optimizer, target, batch_sizes))

    def schedule(self, optimizer: Optimizer, batch_size: float, pieces: int) -> Scheduled:
        """The best schedule to the target."""
        return self._ask(self.to_schedule(optimizer, batch_size, pieces))

    def to_table(self, methods: Methods, powers: Sequence[float] = POWERS) -> list[Question]:
        """The questions behind `table`."""
        return [self.to_sweep(preconditioned(optimizer, p)) for p in powers for optimizer in methods.values()]

    def table(
        self, methods: Methods, powers: Sequence[float] = POWERS, batch_sizes: Sequence[float] | None = None
    ) -> Table:
        """Tuned steps and settings for each preconditioner, method and batch size."""
        return [
            row
            for power in powers
            for name, optimizer in methods.items()
            for found in [self.sweep(preconditioned(optimizer, power), batch_sizes=batch_sizes)]
            for row in sweep_rows(found, optimizer=name, power=power)
        ]

    def critical(self, optimizer: Optimizer, powers: Sequence[float] = POWERS) -> list[float]:
        """Critical batch size, 20% above perfect scaling, for each preconditioner."""
        return [self.sweep(preconditioned(optimizer, p)).critical_batch_size() for p in powers]

    def prepare(self, questions: Iterable[Question]) -> None:
        """Tell the pool what will be asked."""
        if self.pool is None:
            return
        for question in questions:
            if question not in self._known:
                self._known[question] = self.pool.submit(answer, question)

    def _ask(self, question: Asks[T]) -> T:
        if question not in self._known:
            self._known[question] = answer(question)
        known = self._known[question]
        return cast(T, known.result() if isinstance(known, Future) else known)

    def bounds(self, batch_size: float) -> dict[str, float]:
        asked = self.problem.spectrum, self.target, batch_size
        return {"paper_bound": paper_bound(*asked), "bayes_bound": bayes_bound(*asked)}

    def cg_steps(self, power: float) -> int | None:
        return conjugate_gradient_steps(self.problem.spectrum, self.target, power)


def asking(methods: Methods) -> Callable[[PaperStudy], list[Question]]:
    """``questions`` of a claim or a figure that will ask for the table of some methods."""
    return partial(PaperStudy.to_table, methods=methods)


def preconditioned(optimizer: Optimizer, power: float) -> Optimizer:
    """With the preconditioner H^-power, if that is one."""
    return Preconditioned(optimizer, power) if power else optimizer


def sweep_rows(found: Sweep, **first: object) -> Table:
    """A sweep as rows, with columns of ours in front."""
    rows = []
    for i, batch_size in enumerate(found.batch_sizes):
        optimizer = found.optimizers[i]
        settings = {} if optimizer is None else {name: p.value for name, p in parameters(optimizer).items()}
        settings.pop("power", None)
        numbers = {name: float(getattr(found, name)[i]) for name in ("steps", "examples", "effective_lr")}
        rows.append({**first, "batch_size": float(batch_size), **numbers, **settings})
    return rows
