"""Best piecewise-constant schedules of the learning rate, by exact gradients, and of the batch size, in closed form.

Both are trainings: the loss on the way is bounded, unless a largest rate is given instead (`limits`).

Let the noise of a piece of n steps add kappa / B to the loss. For E examples in all, the best batch size of the piece is
``B = E sqrt(kappa / n) / sum sqrt(kappa n)``, by the inequality of Cauchy and Schwarz.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import Outcome, number
from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer, Written, as_optimizer, fill, free, parameters
from ..optimizers.nonlinear import refuse_moments
from ..problems.base import MAX_STEPS, Problem, check_batch_size, require_separable
from ..types import Array, Wrong
from .answer import Goal, Tuned, check_goal
from .chain import Chain, split
from .exact.family import Family
from .exact.losses import log_loss
from .exact.minimise import minimise
from .exact.settings import SETTINGS
from .exact.tuning import Tuner
from .followed_rates import FollowedRates
from .limits import LOSS_BOUND, Cap, Limit, MaxRate
from .peaks import CLOSE, peaks
from .rates import RateSearch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes

MOST_PIECES = 1000  # Largest number of pieces that a user may ask for.
SURVIVED = 2.0  # A schedule on which the loss rises to more than this many times its start carries a warning.
AT_BOUND = 0.01  # The loss has come to its bound if it lies this little below it, in logs.
OVER_BOUND = 100.0  # A loss above its bound counts as this many times the log by which it is above.
AT_CAP = 1e-6  # A rate is at its cap if it lies below it by this part at most.


@dataclass(frozen=True, repr=False)
class Scheduled(Tabular):
    """Answer of `optimal_schedule`: multipliers on the optimizer's learning rate, or on the batch size."""

    schedule: Schedule
    steps: int
    loss: float
    optimizer: Optimizer
    batch_size: float
    outcome: Outcome
    message: str
    rise: float = 1.0
    """Largest loss of any step, over the loss at the start; 1 if it never rises above that."""
    max_rate: MaxRate | None = None
    """The largest rate that was asked for; None if the loss is bounded instead."""
    cap: Cap = "none"
    """Which limit holds the schedule back: the bound on the "loss", the "paper"'s cap, the number "max_rate", or "none"."""

    @property
    def warning(self) -> str:
        """A sentence if the loss rises so far on the way that a network would not survive it; else empty."""
        if not self.rise > SURVIVED:
            return ""
        return (
            f"on the way the loss rises to {self.rise:.3g} times its start; a quadratic comes back from there, a network would "
            f"not: without max_rate= (--max-rate) the loss of no step is above {LOSS_BOUND:g} times the lowest before"
        )

    def _brief(self) -> str:
        size = f"batch_size={self.batch_size:,.10g}"
        return f"{self.optimizer}, {size}: {self.message}, loss {self.loss:.4g}; {self.schedule!r}"

    def table(self) -> list[dict[str, Any]]:
        """One row for each piece: where it begins, its steps, its learning rate and its batch size."""
        schedule, lr = self.schedule, parameters(self.optimizer)["lr"].value
        return [
            {"start": int(end - n), "steps": int(n), "lr": float(lr * a), "batch_size": self.batch_size * float(b)}
            for end, n, a, b in zip(schedule.ends, schedule.lengths, schedule.lr, schedule.batch_size, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        asked = {"optimizer": str(self.optimizer), "batch_size": number(self.batch_size)}
        found = {"steps": self.steps, "loss": number(self.loss), "outcome": self.outcome.name, "message": self.message}
        rate = self.max_rate if isinstance(self.max_rate, str) else number(self.max_rate)
        found |= {"max_rate": rate, "cap": self.cap, "rise": number(self.rise), "warning": self.warning}
        return {**asked, **found, "schedule": self.schedule.to_dict()}

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
        """The schedule over steps; a matplotlib figure, written to ``path`` if given."""
        from ..show.plots import plot_schedule

        return plot_schedule(self, path, ax=ax)


def optimal_schedule(
    problem: Problem,
    optimizer: Written,
    batch_size: float,
    target: float | None = None,
    *,
    steps: int | None = None,
    examples: float | None = None,
    pieces: int = 10,
    on: Literal["lr", "batch_size"] = "lr",
    max_rate: MaxRate | None = None,
) -> Scheduled:
    """Best schedule of ``pieces`` pieces of equal length, of the learning rate or of the batch size.

    It is a training: the expected loss of no step is above 1.05 times the lowest loss at the end of an earlier piece; the
    start counts as one. `Scheduled.cap` says whether this bound holds the schedule back. A run of fewer steps than pieces has
    pieces of one step. The loss of an optimizer that is not linear is that of its mean field.

    Parameters
    ----------
    optimizer : its learning rate is scheduled; other free parameters (momentum, decay) are tuned with it.
    batch_size : positive. With ``on="batch_size"`` it is the unit of the multipliers.
    target : reach this loss in the fewest steps.
    steps, examples : reach the least loss in this many steps or examples.
    on : ``"batch_size"`` needs ``examples``, the budget; the learning rate and the number of steps are tuned with it.
    max_rate : limits the learning rate instead of the loss on the way; `Scheduled.rise` says how far the loss rises then. A
        number is the largest rate. "paper" is that of Zhang et al. (2019), ``2 / (h_1 + h_d)``: no rate is above two over the sum
        of the largest and the smallest curvature, as the preconditioner leaves them. That is a rate of SGD, with or without
        `Preconditioned` and `EMA`; for other optimizers it has no meaning and is refused. ``inf`` sets no limit.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> problem = Quadratic(Spectrum.power_law(10_000))
    >>> 28100 < optimal_schedule(problem, SGD(), batch_size=64, target=0.01, pieces=2).steps < 28300
    True
    """
    optimizer = as_optimizer(optimizer)
    _check(problem, optimizer, pieces)
    limit = Limit.of(max_rate, optimizer)
    if on not in ("lr", "batch_size"):
        raise Wrong(f"on must be 'lr' or 'batch_size', got {on!r}", "on")
    if on == "batch_size":
        if not optimizer.linear:
            raise Wrong(
                f"on='batch_size' needs a linear optimizer, whose noise is a sum over steps; {optimizer} is not linear",
                "optimizer",
            )
        if examples is None or not math.isfinite(examples) or examples < pieces:
            raise Wrong(
                f"on='batch_size' needs a budget, examples=, of at least one for each piece, got {examples!r}",
                "examples",
            )
        return _best_batches(problem, optimizer, check_batch_size(batch_size), float(examples), int(pieces), limit)
    goal = Goal.of(batch_size, target, steps, examples)
    if goal.target is not None:
        check_goal(problem, goal.target)
    return _best_rates(problem, optimizer, goal, int(pieces), limit)


def _check(problem: Problem, optimizer: Optimizer, pieces: int) -> None:
    """Refuse a problem, an optimizer or a number of pieces that cannot be scheduled."""
    require_separable(problem, "optimal_schedule")
    if isinstance(pieces, bool) or pieces != int(pieces) or not 1 <= pieces <= MOST_PIECES:
        raise Wrong(f"pieces must be a whole number from 1 to {MOST_PIECES}, got {pieces!r}", "pieces")
    if not isinstance(optimizer, Optimizer) or "lr" not in parameters(optimizer):
        raise Wrong(f"optimal_schedule needs an optimizer with one learning rate, got {optimizer!r}", "optimizer")
    if not optimizer.has_mean_field:
        refuse_moments(optimizer)
    family = Family(optimizer, problem.spectrum)
    member = family.at((family.low + family.high) / 2)
    if member.cycle != 1 or not member.steady or member.averages:
        raise Wrong(
            f"optimal_schedule needs an optimizer whose steps are all alike, and those of {optimizer} are not",
            "optimizer",
        )


def _best_rates(problem: Problem, optimizer: Optimizer, goal: Goal, pieces: int, limit: Limit) -> Scheduled:
    """The schedule of learning rates that serves a goal best."""
    target, batch_size = goal.target, goal.batch_size
    searches = RateSearch if optimizer.linear else FollowedRates
    search = searches(problem, optimizer, batch_size, limit)
    found = search.fewest_steps(target, pieces) if target else search.least_loss(goal.steps, pieces)
    if isinstance(found, Tuned):  # There is nothing to do, or the target is not reached.
        steps = found.steps or 0
        schedule, least = Schedule([max(steps, 1)]), found.loss
        return Scheduled(
            schedule, steps, least, found.optimizer, batch_size, found.outcome, found.message, max_rate=limit.max_rate
        )
    lr = parameters(optimizer)["lr"].value
    base = float(found.rates.max() if lr is free else lr)
    outcome = Outcome.reached if target else Outcome.finished
    used = len(found.rates)
    message = outcome.value.format(steps=found.steps, target=target) + f" with {used} piece{'s' if used > 1 else ''}"
    message += " of one step" if used < pieces else ""
    schedule, chosen = Schedule(split(found.steps, used), found.rates / base), search.at(found, base)
    seen = search.peaks(found)
    cap, told = _binding(limit, limit.cap(chosen, problem.spectrum), float(found.rates.max()), float(seen.over.max()))
    message += told + ("" if optimizer.linear else "; by mean field")
    return Scheduled(
        schedule, found.steps, found.loss, chosen, batch_size, outcome, message, seen.rise, limit.max_rate, cap
    )


def _binding(limit: Limit, cap: float, largest: float, over: float) -> tuple[Cap, str]:
    """Which limit holds a schedule back, and the end of a message that says it."""
    if limit.bounded:
        binds = over >= 1 - AT_BOUND
        return ("loss" if binds else "none"), (
            f"; its loss comes to the bound, {LOSS_BOUND:g} times the lowest before"
            if binds
            else f"; its loss stays below the bound, {LOSS_BOUND:g} times the lowest before"
        )
    if math.isinf(cap):
        return "none", "; neither rates nor losses are limited"
    paper = limit.max_rate == "paper"
    name = f"the paper's cap, {cap:.4g}" if paper else f"the largest rate allowed, {cap:.4g}"
    if largest < (1 - AT_CAP) * cap:
        return "none", f"; its rates stay below {name}"
    return ("paper" if paper else "max_rate"), f"; it comes to {name}"


def _best_batches(
    problem: Problem, optimizer: Optimizer, unit: float, examples: float, pieces: int, limit: Limit
) -> Scheduled:
    """The schedule of least loss for a budget of examples. Batch sizes are in closed form; rate and steps are searched."""
    nodes = problem.nodes.searched(optimizer)
    family, tuner = Family(optimizer, nodes.spectrum), Tuner(problem, optimizer)
    start = tuner.solve(Goal.of(unit, examples=max(examples, unit)))

    def settle(point: Array, where: Problem) -> tuple[float, Schedule, Optimizer]:
        """Loss, schedule and optimizer at a point (log2 of the steps, then the coordinates of the family)."""
        lengths = split(max(pieces, round(2.0 ** float(point[0]))), pieces)
        chosen = family.at(point[1:])
        lr = min(float(parameters(chosen)["lr"].value), limit.cap(chosen, problem.spectrum))
        chosen = fill(chosen, {"lr": lr})
        signal, shares = Chain(where, chosen, [], lengths).noise_shares(np.full(pieces, lr), np.zeros(0))
        batches = share_batches(shares, lengths, examples)
        return signal + float((shares / batches).sum()), Schedule(lengths, batch_size=batches / unit), chosen

    def over(point: Array) -> float:
        """Log of the largest loss of a step over its bound."""
        _, schedule, chosen = settle(point, nodes)
        lengths = split(schedule.steps, pieces)
        return math.log((1 + CLOSE) * peaks(problem, chosen, unit, schedule, lengths).over.max())

    def values(points: Array, charge: float = 0.0) -> Array:
        logs = log_loss(np.array([settle(point, nodes)[0] for point in points]))
        return logs + charge * np.array([max(0.0, over(point)) for point in points]) if charge else logs

    low = np.append(math.log2(pieces), family.low)
    high = np.append(math.log2(min(examples, MAX_STEPS)), family.high)
    first = np.append(
        math.log2(max(start.steps or pieces, pieces)), family.point(start.optimizer) if len(family) else []
    )
    best = minimise(values, [np.clip(first, low, high)], SETTINGS.wide, low, high)[0].u
    if limit.bounded and over(best) > 0:
        best = minimise(lambda points: values(points, OVER_BOUND), [best], SETTINGS.wide, low, high)[0].u
    loss, schedule, chosen = settle(best, problem)
    steps = schedule.steps
    seen = peaks(problem, chosen, unit, schedule, split(steps, pieces))
    lr = float(parameters(chosen)["lr"].value)
    cap, told = _binding(limit, limit.cap(chosen, problem.spectrum), lr, float(seen.over.max()))
    message = f"least loss for {examples:g} examples is {loss:.4g}, in {steps:,} steps with {pieces} pieces{told}"
    return Scheduled(schedule, steps, loss, chosen, unit, Outcome.finished, message, seen.rise, limit.max_rate, cap)


def share_batches(shares: Array, lengths: Array, examples: float) -> Array:
    """Batch sizes of at least 1 that minimise ``sum shares / B`` for ``sum lengths B = examples``."""
    want = np.sqrt(np.maximum(shares, 0) / lengths)
    batches = np.ones(len(lengths))
    open_ = np.ones(len(lengths), dtype=bool)
    while open_.any():
        left = examples - lengths[~open_].sum()
        weight = (want * lengths)[open_].sum()
        batches[open_] = want[open_] * left / weight if weight > 0 else left / lengths[open_].sum()
        small = open_ & (batches < 1)
        if not small.any():
            break
        batches[small] = 1.0
        open_ &= ~small
    return batches
