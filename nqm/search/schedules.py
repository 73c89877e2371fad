"""Best piecewise-constant schedules of the learning rate, by exact gradients, and of the batch size, in closed form.

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
from ..optimizers.base import Optimizer, Written, as_optimizer, free, parameters
from ..optimizers.nonlinear import refuse_moments
from ..problems.base import MAX_STEPS, Problem, check_batch_size, require_separable
from ..types import Array, Wrong
from .answer import Goal, Tuned
from .chain import Chain, split
from .exact.family import Family
from .exact.losses import log_loss
from .exact.minimise import minimise
from .exact.settings import SETTINGS
from .exact.tuning import Tuner
from .followed_rates import FollowedRates
from .rates import RateSearch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes

MOST_PIECES = 1000  # Largest number of pieces that a user may ask for.
SURVIVED = 2.0  # A schedule on which the loss rises to more than this many times its start carries a warning.


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
    """Largest loss at the end of a piece, over the loss at the start; 1 if it never rises above that."""

    @property
    def warning(self) -> str:
        """A sentence if the loss rises so far on the way that a network would not survive it; else empty."""
        if not self.rise > SURVIVED:
            return ""
        return (
            f"on the way the loss rises to {self.rise:.3g} times its start; a quadratic comes back from there, a network would "
            "not: stable=True (--stable) keeps every rate below the edge of stability"
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
        found |= {"rise": number(self.rise), "warning": self.warning}
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
    stable: bool = False,
) -> Scheduled:
    """Best schedule of ``pieces`` pieces of equal length, of the learning rate or of the batch size.

    The loss of an optimizer that is not linear is that of its mean field.

    Parameters
    ----------
    optimizer : its learning rate is scheduled; other free parameters (momentum, decay) are tuned with it.
    batch_size : positive. With ``on="batch_size"`` it is the unit of the multipliers.
    target : reach this loss in the fewest steps.
    steps, examples : reach the least loss in this many steps or examples.
    on : ``"batch_size"`` needs ``examples``, the budget; the learning rate and the number of steps are tuned with it.
    stable : keep every rate below the edge of stability. Without it some pieces may pass the edge, which saves a quadratic
        some steps; `Scheduled.rise` says how far the loss rises then.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> problem = Quadratic(Spectrum.power_law(10_000))
    >>> 28100 < optimal_schedule(problem, SGD(), batch_size=64, target=0.01, pieces=2).steps < 28300
    True
    """
    optimizer = as_optimizer(optimizer)
    _check(problem, optimizer, pieces)
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
        if stable:
            raise Wrong(
                "stable=True is about learning rates; with on='batch_size' the rate is one, and stable", "stable"
            )
        return _best_batches(problem, optimizer, check_batch_size(batch_size), float(examples), int(pieces))
    goal = Goal.of(batch_size, target, steps, examples)
    if goal.target is None and goal.steps < pieces:
        raise Wrong(f"{pieces} pieces need at least one step each, got {goal.steps} steps", goal.argument)
    if stable and not optimizer.linear:
        raise Wrong(
            f"stable=True needs a linear optimizer, whose edge of stability is known; {optimizer} is not linear",
            "stable",
        )
    return _best_rates(problem, optimizer, goal, int(pieces), stable)


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


def _best_rates(problem: Problem, optimizer: Optimizer, goal: Goal, pieces: int, stable: bool) -> Scheduled:
    """The schedule of learning rates that serves a goal best."""
    target, batch_size = goal.target, goal.batch_size
    linear = optimizer.linear
    search = (
        RateSearch(problem, optimizer, batch_size, stable) if linear else FollowedRates(problem, optimizer, batch_size)
    )
    found = search.fewest_steps(target, pieces) if target else search.least_loss(goal.steps, pieces)
    if isinstance(found, Tuned):  # The steps are too few to be divided, or the target is not reached.
        T, few = found.steps or 0, f", fewer than {pieces} pieces: constant" if found.steps else ""
        schedule, message = Schedule([max(T, 1)]), found.message + few
        return Scheduled(schedule, T, found.loss, found.optimizer, batch_size, found.outcome, message)
    lr = parameters(optimizer)["lr"].value
    base = float(found.rates.max() if lr is free else lr)
    outcome = Outcome.reached if target else Outcome.finished
    message = outcome.value.format(steps=found.steps, target=target) + f" with {pieces} pieces"
    message += "" if linear else "; by mean field"
    schedule = Schedule(split(found.steps, pieces), found.rates / base)
    chosen = search.at(found, base)
    rise = _rise(problem, chosen, batch_size, schedule) if linear else 1.0
    return Scheduled(schedule, found.steps, found.loss, chosen, batch_size, outcome, message, rise)


def _rise(problem: Problem, optimizer: Optimizer, batch_size: float, schedule: Schedule) -> float:
    """The largest loss at the end of a piece over that at the start, and at least 1.

    A piece beyond the edge of stability makes the loss grow until it ends, so its end is where the loss is largest.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        signal, noise = problem.losses(optimizer, np.append(0, schedule.ends), batch_size, schedule)
        losses = signal + noise / batch_size
    return float(np.nanmax(np.append(1.0, losses / losses[0])))


def _best_batches(problem: Problem, optimizer: Optimizer, unit: float, examples: float, pieces: int) -> Scheduled:
    """The schedule of least loss for a budget of examples. Batch sizes are in closed form; rate and steps are searched."""
    nodes = problem.nodes.searched(optimizer)
    family, tuner = Family(optimizer, nodes.spectrum), Tuner(problem, optimizer)
    start = tuner.solve(Goal.of(unit, examples=max(examples, unit)))

    def settle(point: Array, where: Problem) -> tuple[float, Array, int, Optimizer]:
        """Loss, batch sizes, steps and optimizer at a point (log2 of the steps, then the coordinates of the family)."""
        T = max(pieces, round(2.0 ** float(point[0])))
        chosen = family.at(point[1:])
        lengths = split(T, pieces)
        rates = np.full(pieces, parameters(chosen)["lr"].value)
        signal, shares = Chain(where, chosen, [], lengths).noise_shares(rates, np.zeros(0))
        batches = share_batches(shares, lengths, examples)
        return signal + float((shares / batches).sum()), batches, T, chosen

    def values(points: Array) -> Array:
        return log_loss(np.array([settle(point, nodes)[0] for point in points]))

    low = np.append(math.log2(pieces), family.low)
    high = np.append(math.log2(min(examples, MAX_STEPS)), family.high)
    first = np.append(
        math.log2(max(start.steps or pieces, pieces)), family.point(start.optimizer) if len(family) else []
    )
    best = minimise(values, [np.clip(first, low, high)], SETTINGS.wide, low, high)[0].u
    loss, batches, T, chosen = settle(best, problem)
    schedule = Schedule(split(T, pieces), batch_size=batches / unit)
    message = f"least loss for {examples:g} examples is {loss:.4g}, in {T:,} steps with {pieces} pieces"
    return Scheduled(schedule, T, loss, chosen, unit, Outcome.finished, message)


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
