"""A forecast as a problem: what tunes, sweeps and draws a `Quadratic` does so with the law of some logs.

The law is that of `nqm.logs.law`. A loss is one as logged, with the law's floor, so that targets are losses as logged:

    loss = signal + noise / batch_size,     signal = floor + A (1 + S / s0)^-alpha,     noise = batch_size z / (1 + k z)

``SGD(lr)`` stands for the learning rate of the optimizer of the logs. Without a schedule it is the constant rate ``lr`` after the
warm-up of the logs, as in `Forecast.predict`; a schedule multiplies ``lr`` from the first step on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

import numpy as np

from ..engine.mean_field import Start
from ..engine.run import Outcome, Run
from ..engine.schedule import Schedule, as_schedule, constant, warmup
from ..engine.spectrum import Spectrum
from ..engine.trajectory import MAX_STEPS
from ..optimizers import SGD, Optimizer
from ..optimizers.base import Written, as_optimizer, require_set
from ..problems.base import AnySchedule, Nodes, Pair, Problem, Steps, check_batch_size, report_steps, total
from ..sampling.laws import Law
from ..types import Array, Wrong, is_number
from .course import Course, cuts
from .law import LossLaw
from .reach import LENGTH_REACH, SIZE_REACH, distances, require_reach

if TYPE_CHECKING:
    from .forecasting import Forecast

MOST_RATE = (
    2.0  # Searches try learning rates up to this many times the largest of the logs. Forecasts were checked to 1.5.
)
WALKED_STEPS = 2**13  # steps whose losses a walk computes at once while the rate changes
FINE = 2e-4  # A walk at a constant rate computes the loss at steps spaced by this share, and interpolates between them.
NODE_STEP = 0.4  # Spacing of the nodes in log h; the error of the trapezoid rule, exp(-pi^2 / spacing), is 2e-11.
NODE_TAIL = 1e-9  # share of the signal that lies below the smallest node
NODE_REACH = 25.0  # exponent of the densities at the largest node: exp(-25) is 1e-11
REFUSED = "a forecast answers for the optimizer of its logs, and SGD(lr) stands for its learning rate"


@dataclass(frozen=True, eq=False, repr=False)
class LoggedProblem(Problem):
    """The problem whose loss is the law of a forecast. It answers for the optimizer of the logs, as ``SGD(lr)``.

    Signal and noise are not separable: noise saturates, and the effective rate may depend on the batch size. The law holds
    between steps too and has no stability limit, so `stability_limit` is the largest rate that searches try. The spectrum
    holds the curvatures of the law, for show: their sums are those of the law to 1e-8.

    If the logs have no batch size, ``batch_size=1`` stands for theirs, and others are refused.

    Rates, batch sizes and lengths beyond the reach of the logs (`nqm.logs.reach`) are refused, and searches end there. With
    ``extrapolate`` they are answered: ``replace(forecast.problem, extrapolate=True)``.
    """

    forecast: Forecast
    extrapolate: bool = False
    edge: Spectrum | None = field(default=None, repr=False)  # modes by whose edge searches measure rates, in `nodes`
    separable: ClassVar[bool] = False
    noiseless: ClassVar[bool] = False
    instead: ClassVar[str] = (
        "use Forecast.optimal_schedule for the best schedule, and steps_to_target for each point of a map"
    )

    def _brief(self) -> str:
        return self.forecast._brief()

    @property
    def law(self) -> LossLaw:
        return self.forecast.law

    @cached_property
    def spectrum(self) -> Spectrum:  # type: ignore[override]
        return self.edge or self._curvatures()

    @property
    def modes(self) -> Spectrum:
        return self.spectrum

    @property
    def units(self) -> Pair:
        return self.spectrum.s, self.spectrum.c

    @property
    def initial_loss(self) -> float:
        return self.law["floor"] + self.law["A"]

    @cached_property
    def nodes(self) -> Nodes[LoggedProblem]:  # type: ignore[override]
        return SameNodes(self)

    @property
    def size_limits(self) -> tuple[float, float]:  # type: ignore[override]
        logged = self.forecast.batch_sizes
        if self.extrapolate or logged is None:
            return 0.0, math.inf
        return logged[0] / SIZE_REACH, logged[1] * SIZE_REACH

    @property
    def counts_examples(self) -> bool:
        """Whether a batch size is a number of examples; without batch sizes in the logs, 1 stands for an unknown one."""
        return self.forecast.batch_size is not None

    @property
    def largest_rate(self) -> float:
        """The largest learning rate that searches try."""
        return MOST_RATE * self.forecast.peaks[1]

    @property
    def max_steps(self) -> int:  # type: ignore[override]
        return MAX_STEPS if self.extrapolate else int(LENGTH_REACH * self.forecast.longest)

    def on(self, modes: Spectrum) -> LoggedProblem:
        return replace(self, edge=modes)

    def run(
        self, optimizer: Written, batch_size: float, steps: Steps, schedule: AnySchedule = None,
        grid: Literal["log", "linear"] = "log", points: int = 200, *, start: Start = "gaussian",
    ) -> Run:  # fmt: skip
        optimizer = as_optimizer(optimizer)
        batch_size, times = check_batch_size(batch_size), report_steps(steps, grid, points)
        last = max(int(times[-1]), 1)
        plan = as_schedule(schedule, last)
        lr = self._asked_rate(optimizer, batch_size, self._plan(plan), last)
        signal, noise = self._parts(lr, times, batch_size, plan)
        message = self.sentence(Outcome.finished, optimizer, batch_size, plan, steps=int(times[-1]))
        message += self.caveat(optimizer, batch_size, plan, int(times[-1]))
        loss, floor = total((signal, noise), batch_size), self.law["floor"]
        return Run(times, loss, signal, noise, batch_size, optimizer, floor, Outcome.finished, message)

    def losses(self, optimizer: Written, times: Steps, batch_size: float, schedule: AnySchedule = None) -> Pair:
        optimizer, single = as_optimizer(optimizer), np.ndim(times) == 0
        at = report_steps([times] if single else times, "log", 2)  # type: ignore[list-item]
        batch_size, last = check_batch_size(batch_size), max(int(at[-1]), 1)
        plan = as_schedule(schedule, last)
        lr = self._asked_rate(optimizer, batch_size, self._plan(plan), last)
        signal, noise = self._parts(lr, at, batch_size, plan)
        return (signal[0], noise[0]) if single else (signal, noise)

    def loss(self, optimizer: Optimizer, t: int, batch_size: float, schedule: Schedule | None = None) -> float:
        lr = self._asked_rate(optimizer, batch_size, self._plan(schedule), t)
        return float(total(self._parts(lr, np.array([t]), batch_size, schedule), batch_size)[0])

    def curve(self, optimizer: Optimizer, batch_size: float) -> Callable[[int], Array]:
        rates = self._rates(optimizer)
        return lambda t: total(self._ends(rates, t, batch_size), batch_size)

    def doublings(self, optimizer: Optimizer, batch_size: float) -> Iterator[Pair]:
        rates = self._rates(optimizer)
        return (self._ends(rates, 2**level, batch_size) for level in range(MAX_STEPS.bit_length() + 1))

    def hopeless_after(
        self, optimizer: Optimizer, batch_size: float, target: float, schedule: Schedule | None, limit: int
    ) -> int:
        return min(limit, 1)  # No loss is below the floor.

    def walk(
        self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, limit: int = MAX_STEPS
    ) -> Iterator[Array]:
        """The losses after each of the steps 1, 2, 3, ... up to ``limit``, in blocks.

        After the warm-up they are those of `loss` to 1e-6. Before it, and from those of `run`, whose blocks end at the
        reported steps, they may differ by 1e-4 while the rate changes.
        """
        plan, t = self._plan(schedule), 0
        lr = self._asked_rate(optimizer, batch_size, plan, 1)
        first = plan.repeats_from  # From this step on the rate is constant.
        while t < limit:
            far = t - first >= WALKED_STEPS
            to = min(limit, 4 * t if far else t + WALKED_STEPS)
            steps = at = np.arange(t + 1, to + 1)
            if far:
                count = math.ceil(math.log((to - first) / (t - first)) / FINE) + 2
                at = np.unique(first + np.rint(np.geomspace(t - first, to - first, count)).astype(np.int64))
            parts = np.array_split(at, math.ceil(len(at) / WALKED_STEPS))
            losses = np.concatenate([total(self._within(lr, part, batch_size, plan), batch_size) for part in parts])
            yield np.interp(np.log(steps - first), np.log(at - first), losses) if far else losses
            t = to

    def caveat(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None, steps: int) -> str:
        plan, rate = self._plan(schedule), self._rate(optimizer)
        size = None if self.forecast.batch_size is None else batch_size
        found = distances(self.forecast, rate * float(plan.lr.max()), steps, size)
        if not found:
            return ""
        parts = [each.phrase("it" if each.what == "length" else f"its {each.what}") for each in found]
        if rate > 0.98 * self.largest_rate:
            parts.append(f"searches try rates up to {self.largest_rate:.3g}")
        return f"; this run is outside the logs: {'; '.join(parts)}"

    def sentence(
        self, outcome: Outcome, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, *,
        steps: int = 0, target: float = math.nan, floor: float = math.nan, loss: float = math.nan,
    ) -> str:  # fmt: skip
        if outcome is Outcome.above_floor:
            return f"never reaches {target:g}: the floor of these logs is {floor:.4g}, whatever the learning rate"
        if outcome is Outcome.out_of_steps and steps >= self.max_steps:
            longest = f"lengths up to {LENGTH_REACH:g} times that of the longest log, {self.forecast.longest:,} steps"
            still = f"still at {loss:.4g} after {steps:,} steps, above {target:g}"
            return f"{still}; forecasts were checked for {longest}: extrapolate to go on"
        return super().sentence(
            outcome, optimizer, batch_size, schedule, steps=steps, target=target, floor=floor, loss=loss
        )

    def motion(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> NoReturn:
        raise Wrong("a forecast knows the loss, and not the moments of the weights; use run or losses", "problem")

    def gradient_noise(self, moments: Array) -> NoReturn:
        raise Wrong("a forecast knows the loss, and not the noise of each gradient; use run or losses", "problem")

    def _floor(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> float:
        """The law's floor, below which no run is. A constant rate never settles: its noise grows as the log of the steps."""
        self._rate(optimizer)
        return self.law["floor"]

    def _limit(self, optimizer: Optimizer, batch_size: float) -> float:
        self._sgd(optimizer)
        return self.largest_rate

    def _diverges(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> str:
        return f"the loss overflows; a forecast is reliable up to a learning rate of {self.largest_rate:.3g}"

    def _source(
        self, optimizer: Optimizer, batch_sizes: Array, laws: Sequence[Law], start: str, rotation: Array | None
    ) -> NoReturn:
        self._sgd(optimizer)
        raise Wrong("a forecast is a law of the expected loss, and has nothing to sample; use run", "problem")

    def check_optimizer(self, optimizer: Optimizer) -> None:
        self._sgd(optimizer)

    def _asked_rate(self, optimizer: Optimizer, batch_size: float, plan: Schedule, steps: int) -> float:
        """The learning rate of a run that a caller asks for. A run beyond the reach of the logs is refused; a small rate is not."""
        rate, known = self._rate(optimizer), self.forecast.batch_size is not None
        self._ratio(batch_size)
        found = distances(
            self.forecast, rate * float(plan.lr.max()), steps, batch_size * plan.batch_size if known else None
        )
        low = [each for each in found if each.what == "peak rate" and each.value < each.logged]
        arguments = {"peak rate": "optimizer", "length": "steps", "batch size": "batch_size"}
        require_reach([each for each in found if each not in low], arguments, self.extrapolate)
        return rate

    def _sgd(self, optimizer: Optimizer) -> SGD:
        if not isinstance(optimizer, SGD):
            raise Wrong(f"{REFUSED}; got {type(optimizer).__name__}", "optimizer")
        return optimizer

    def _rate(self, optimizer: Optimizer) -> float:
        sgd = self._sgd(optimizer)
        require_set(sgd, "a forecast")
        if not is_number(sgd.lr):
            raise Wrong("a forecast needs one learning rate, such as SGD(0.1)", "optimizer")
        return float(sgd.lr)

    def _rates(self, optimizer: Optimizer) -> Array:
        """The learning rates of all settings of an optimizer."""
        return np.ravel(np.asarray(self._sgd(optimizer).lr, dtype=float))

    def _plan(self, schedule: Schedule | None) -> Schedule:
        """The schedule of a run: if none is given, the warm-up of the logs and a constant rate."""
        if schedule is None:
            ramp = self.forecast.warmup
            return warmup(ramp) + constant(1) if ramp > 1 else constant(1)
        if not np.any(schedule.lr > 0):
            raise Wrong("the multipliers of the learning rate must be positive somewhere", "schedule")
        return schedule

    def _ratio(self, batch_size: float) -> float:
        """The batch size relative to that of the logs."""
        reference = self.forecast.batch_size
        if reference is None:
            if batch_size != 1:
                known = "batch_size=1 stands for theirs, and another one is not possible"
                raise Wrong(f"these logs have no batch size: {known}", "batch_size")
            return 1.0
        if math.isinf(batch_size) and self.forecast.metric.adaptive:
            raise Wrong("a forecast of an adaptive optimizer needs a finite batch size", "batch_size")
        require_reach(distances(self.forecast, sizes=batch_size), {"batch size": "batch_size"}, self.extrapolate)
        return batch_size / reference

    def _parts(self, lr: float, times: Array, batch_size: float, schedule: Schedule | None) -> Pair:
        """Signal with the floor, and noise, at each of the times."""
        signal, noise = self.law.parts(self._course(lr, times, batch_size, self._plan(schedule)))
        return self.law["floor"] + signal, _times(noise, batch_size)

    def _within(self, lr: float, times: Array, batch_size: float, plan: Schedule) -> Pair:
        """What `_parts` gives, on the blocks of a run up to the last of the times, which need not end at the times."""
        course = self._course(lr, times[-1:], batch_size, plan)
        ends = np.append(0.0, np.cumsum(course.lengths))
        block = np.searchsorted(ends, times, side="left") - 1
        steps = times - ends[block]
        mean = lr * (_sums(plan, times) - _sums(plan, ends[block])) / steps
        parts = Course(times, steps, mean, course.batch_size[block], block, course.peak)
        signal, noise = self.law.parts_within(course, parts)
        return self.law["floor"] + signal, _times(noise, batch_size)

    def _ends(self, rates: Array, t: int, batch_size: float) -> Pair:
        """Signal and noise after t steps for each learning rate; infinite beyond the largest rate."""
        plan, times, found = self._plan(None), np.array([t]), np.full((2, len(rates)), math.inf)
        for i, lr in enumerate(rates.tolist()):
            if lr <= self.largest_rate * (1 + 1e-12):
                found[:, i] = np.ravel(self._parts(lr, times, batch_size, plan))
        return found[0], found[1]

    def _course(self, lr: float, times: Array, batch_size: float, plan: Schedule) -> Course:
        """The course of a run, as `Course.of` gives it, without an array of all steps after the schedule has ended."""
        last = max(int(times[-1]), 1)
        head = min(plan.repeats_from + 1, last)
        ends = cuts(lr * plan.multipliers("lr", head), times, self.forecast.metric.weight_decay, last)
        changes = np.asarray(plan.ends[:-1], dtype=np.int64)[np.diff(plan.batch_size) != 0]
        ends = np.union1d(ends, changes[changes < last])
        lengths = np.diff(ends, prepend=0).astype(float)
        rates = lr * np.diff(_sums(plan, np.append(0, ends))) / lengths
        sizes = self._ratio(batch_size) * plan.batch_size[[plan.piece(int(end) - 1) for end in ends]]
        blocks = np.searchsorted(ends, times, side="right") - 1
        return Course(times, lengths, rates, sizes, blocks, lr * float(plan.lr.max()))

    def _curvatures(self) -> Spectrum:
        """Nodes of the law's two densities over curvature, by the trapezoid rule in log h.

        Their sums of ``mass exp(-2 h S)`` are ``A (1 + S / s0)^-alpha`` and ``N K(S)``, to 1e-8 of their values at S = 0.
        """
        A, alpha, s0, N, C = (self.law[name] for name in ("A", "alpha", "s0", "N", "C"))
        b = self.law.exponent
        low = min(math.log(NODE_TAIL) / alpha - math.log(2 * s0), math.log(NODE_TAIL) / b + math.log(C))
        high = math.log(NODE_REACH * max(C, 1 / (2 * s0)))
        h = np.exp(np.arange(max(low, -600.0), high + NODE_STEP, NODE_STEP))
        signal = A * NODE_STEP * np.exp(alpha * np.log(2 * s0 * h) - 2 * s0 * h - math.lgamma(alpha))
        noise = N * (self.forecast.batch_size or 1.0) * NODE_STEP * np.exp(b * np.log(h / C) - h / C - math.lgamma(b))
        return Spectrum(h, 2 * noise / h, 2 * signal / h)


class SameNodes(Nodes[LoggedProblem]):
    """A forecast needs no nodes for speed. Those of searches have the largest learning rate as their edge of stability."""

    @cached_property
    def fine(self) -> LoggedProblem:
        return self._problem

    @cached_property
    def coarse(self) -> LoggedProblem:
        return self._problem.on(Spectrum([2 / self._problem.largest_rate]))

    @cached_property
    def smooth(self) -> LoggedProblem:
        return self.coarse


def _times(noise: Array, batch_size: float) -> Array:
    return noise * batch_size if math.isfinite(batch_size) else np.zeros_like(noise)


def _sums(plan: Schedule, steps: Array) -> Array:
    """The sum of a schedule's multipliers of the learning rate over the first steps."""
    ends = np.append(0, np.asarray(plan.ends[:-1], dtype=np.int64))
    sums = np.append(0.0, np.cumsum(np.diff(ends) * plan.lr[:-1]))
    piece = np.minimum(np.searchsorted(ends, steps, side="right") - 1, len(ends) - 1)
    return sums[piece] + (steps - ends[piece]) * plan.lr[piece]
