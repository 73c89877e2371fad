"""The paper's problem, and `PaperStudy`, which asks for tuned sweeps and optimal schedules of it, each once in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Generic, NamedTuple, TypeVar, cast

from ..engine.spectrum import Spectrum
from ..lab.executors import Executor, Here, Workers
from ..optimizers import EMA, SGD, HeavyBall, Optimizer, Preconditioned
from ..optimizers.base import parameters
from ..problems.bounds import bayes_bound, conjugate_gradient_steps, paper_bound
from ..problems.quadratic import Quadratic
from ..search import Scheduled, Tuned, optimal_schedule, tune
from ..search.sweeps import MOST_ADDED, Sweep, sweep
from ..show.tables import Table, rows_of

DIM = 10_000
EXPONENT = 1.0
TARGET = 0.01
BATCH_SIZES = tuple(2**k for k in range(2, 21, 2))
POWERS = (0.0, 0.25, 0.5, 0.75)
WITH_MOMENTUM = {"SGD": SGD(), "heavy ball": HeavyBall()}
WITH_AVERAGE = {"SGD": SGD(), "SGD with EMA": EMA(SGD())}
Methods = Mapping[str, Optimizer]
T = TypeVar("T")


@cache
def instance(dim: int = DIM, exponent: float = EXPONENT, noise_exponent: float | None = None) -> Quadratic:
    """The paper's problem: d = 10^4, h_i = 1/i, C = H, theta_0 ~ N(0, I); or another d, decay of h, or decay of c."""
    if exponent == 0 and not noise_exponent:
        return Quadratic(Spectrum([1.0], count=dim))  # Equal modes are one mode.
    return Quadratic(Spectrum.power_law(dim, exponent, noise_exponent))


class Question(NamedTuple, Generic[T]):
    """A search: a function of this module and its arguments, which a worker process can be sent."""

    search: Callable[..., T]
    arguments: tuple[object, ...]


Place = tuple[int, float, float | None]
"""The arguments of `instance`."""


def swept(place: Place, optimizer: Optimizer, target: float, batch_sizes: tuple[float, ...], most_added: int) -> Sweep:
    return sweep(instance(*place), optimizer, batch_sizes, target, most_added=most_added)


def tuned(place: Place, optimizer: Optimizer, batch_size: float) -> Tuned[Optimizer]:
    return tune(instance(*place), optimizer, batch_size, TARGET)


def scheduled(place: Place, optimizer: Optimizer, batch_size: float, pieces: int) -> Scheduled:
    """The best schedule with the paper's cap on rates."""
    return optimal_schedule(instance(*place), optimizer, batch_size, TARGET, pieces=pieces, max_rate="paper")


@dataclass(frozen=True, eq=False)
class PaperStudy:
    """Searches on the paper's problem, each answered once in a run.

    Parameters
    ----------
    batch_sizes : the batch sizes of every curve; with fewer a run is shorter.
    pool : an executor that runs the searches of one question beside each other; by default this process runs them.
    dim, exponent : the problem has curvature h_i = i^-exponent for i = 1 to dim.
    noise_exponent : its gradient noise has variance c_i = i^-noise_exponent; if omitted, that of the paper, C = H.
    """

    batch_sizes: tuple[float, ...] = BATCH_SIZES
    pool: Executor | None = None
    dim: int = DIM
    exponent: float = EXPONENT
    noise_exponent: float | None = None
    _known: dict[Question, Future] = field(default_factory=dict, repr=False)  # Answers by question.

    @property
    def problem(self) -> Quadratic:
        return instance(*self._place)

    @property
    def _place(self) -> Place:
        return self.dim, self.exponent, self.noise_exponent

    @property
    def about(self) -> tuple[object, ...]:
        """Everything besides the question that an answer depends on."""
        return self.batch_sizes, self._place, TARGET

    def on(self, exponent: float = EXPONENT, noise_exponent: float | None = None) -> PaperStudy:
        """The same study of a problem with another decay of the curvature, or of the noise; the two share their answers."""
        return replace(self, exponent=exponent, noise_exponent=noise_exponent)

    @contextmanager
    def shared(self, workers: int) -> Iterator[PaperStudy]:
        """The same study with worker processes, which end with the context; 1 worker is this process itself.

        A script that asks for more than one needs the usual ``if __name__ == "__main__":``.
        """
        if workers == 1:
            yield self
            return
        with closing(Workers(workers)) as pool:
            yield replace(self, pool=pool)

    def to_sweep(
        self, optimizer: Optimizer, target: float = TARGET, batch_sizes: Sequence[float] | None = None
    ) -> Question[Sweep]:
        """The question for a sweep. Where batch sizes are named, no critical batch size is asked for, and none are added."""
        sizes, most_added = (self.batch_sizes, MOST_ADDED) if batch_sizes is None else (tuple(batch_sizes), 0)
        return Question(swept, (self._place, optimizer, target, sizes, most_added))

    def to_tune(self, optimizer: Optimizer, batch_size: float) -> Question[Tuned[Optimizer]]:
        return Question(tuned, (self._place, optimizer, float(batch_size)))

    def to_schedule(self, optimizer: Optimizer, batch_size: float, pieces: int) -> Question[Scheduled]:
        return Question(scheduled, (self._place, optimizer, float(batch_size), pieces))

    def sweep(self, optimizer: Optimizer, target: float = TARGET, batch_sizes: Sequence[float] | None = None) -> Sweep:
        """Tuned steps to the target at each batch size."""
        return self.ask([self.to_sweep(optimizer, target, batch_sizes)])[0]

    def schedule(self, optimizer: Optimizer, batch_size: float, pieces: int) -> Scheduled:
        """The schedule that reaches the paper's target in the fewest steps."""
        return self.ask([self.to_schedule(optimizer, batch_size, pieces)])[0]

    def table(self, methods: Methods, batch_sizes: Sequence[float] | None = None) -> Table:
        """Tuned steps and settings for each preconditioner, method and batch size."""
        cases = list(product(POWERS, methods))
        found = self.ask([self.to_sweep(preconditioned(methods[m], p), batch_sizes=batch_sizes) for p, m in cases])
        pairs = zip(cases, found, strict=True)
        return [row for (p, m), one in pairs for row in sweep_rows(one, optimizer=m, power=p)]

    def by_power(self, optimizer: Optimizer) -> list[Sweep]:
        """Tuned steps to the target at each batch size, for each preconditioner."""
        return self.ask([self.to_sweep(preconditioned(optimizer, p)) for p in POWERS])

    def critical(self, optimizer: Optimizer) -> list[float]:
        """Critical batch size, at twice the steps of perfect scaling, for each preconditioner."""
        return [found.critical_batch_size() for found in self.by_power(optimizer)]

    def ask(self, questions: Sequence[Question[T]]) -> list[T]:
        """The answers to questions, which the workers of a pool search at the same time."""
        for question in questions:
            if question not in self._known:
                search = self.pool.submit if self.pool else Here().submit
                self._known[question] = search(question.search, *question.arguments)
        return [cast(T, self._known[question].result()) for question in questions]

    def bounds(self, batch_size: float) -> dict[str, float]:
        asked = self.problem.spectrum, TARGET, batch_size
        return {"paper_bound": paper_bound(*asked), "bayes_bound": bayes_bound(*asked)}

    def cg_steps(self, power: float) -> int | None:
        return conjugate_gradient_steps(self.problem.spectrum, TARGET, power)


def preconditioned(optimizer: Optimizer, power: float) -> Optimizer:
    """The optimizer with the preconditioner H^-power; the optimizer itself if the power is 0."""
    return Preconditioned(optimizer, power) if power else optimizer


def sweep_rows(found: Sweep, **first: object) -> Table:
    """A sweep as rows, each with the columns ``first`` in front."""
    columns = {"batch_size": found.batch_sizes, "steps": found.steps, "examples": found.examples}
    rows = rows_of(columns | {"effective_lr": found.effective_lr})
    settings = [parameters(optimizer) if optimizer else {} for optimizer in found.optimizers]
    return [
        {**first, **row, **{name: p.value for name, p in own.items() if name != "power"}}
        for row, own in zip(rows, settings, strict=True)
    ]
