"""Best piecewise-constant schedules: of the learning rate by exact gradients (`Chain`), of the batch size in closed form.

A piece of n steps whose noise adds kappa / B to the loss is best served, for E examples in all, by
``B = E sqrt(kappa / n) / sum sqrt(kappa n)`` (Cauchy and Schwarz).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import Outcome, number
from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer, free, parameters
from ..problems.base import MAX_STEPS, Problem, check_batch_size, check_target, require_separable
from ..types import Array, Wrong
from .answer import Tuned
from .chain import Chain, split
from .exact.family import Family
from .exact.losses import log_loss
from .exact.minimise import minimise
from .exact.tuning import Tuner
from .rates import RateSearch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PIECES = 1000  # that a schedule may be asked to have


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

    def _brief(self) -> str:
        size = f"batch_size={self.batch_size:,.10g}"
        return f"{self.optimizer}, {size}: {self.message}, loss {self.loss:.4g}; {self.schedule!r}"

    def table(self) -> list[dict[str, Any]]:
        """One row for each piece: where it begins, and the settings themselves, not their multipliers."""
        schedule, lr = self.schedule, parameters(self.optimizer)["lr"].value
        return [
            {"start": int(end - n), "steps": int(n), "lr": float(lr * a), "batch_size": self.batch_size * float(b)}
            for end, n, a, b in zip(schedule.ends, schedule.lengths, schedule.lr, schedule.batch_size, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        asked = {"optimizer": str(self.optimizer), "batch_size": number(self.batch_size)}
        found = {"steps": self.steps, "loss": number(self.loss), "outcome": self.outcome.name, "message": self.message}
        return {**asked, **found, "schedule": self.schedule.to_dict()}

    def plot(self, path: str | None = None) -> Figure:
        """The schedule over steps; a matplotlib figure, written to ``path`` if given."""
        from ..show.plots import plot_schedule

        return plot_schedule(self, path)


def optimal_schedule(
    problem: Problem,
    optimizer: Optimizer,
    batch_size: float,
    target: float | None = None,
    *,
    steps: int | None = None,
    examples: float | None = None,
    pieces: int = 10,
    on: Literal["lr", "batch_size"] = "lr",
) -> Scheduled:
    """Best schedule of ``pieces`` equal stretches: of the learning rate, or of the batch size.

    Parameters
    ----------
    optimizer : its learning rate is scheduled; other free parameters (momentum, decay) are tuned along with it.
    batch_size : positive. For ``on="batch_size"`` the unit of the multipliers.
    target, steps, examples : reach a loss in the fewest steps, or the least loss in so many steps or examples.
    on : ``"batch_size"`` needs ``examples``, the budget; learning rate and number of steps are tuned along with it.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> problem = Quadratic(Spectrum.power_law(10_000))
    >>> 28100 < optimal_schedule(problem, SGD(), batch_size=64, target=0.01, pieces=2).steps < 28300
    True
    """
    _check(problem, optimizer, pieces)
    batch_size = check_batch_size(batch_size)
    if sum(goal is not None for goal in (target, steps, examples)) != 1:
        raise Wrong("optimal_schedule needs exactly one goal: target=, steps= or examples=", argument="target")
    if on == "batch_size":
        if examples is None or not math.isfinite(examples) or examples < pieces:
            raise Wrong(
                f"on='batch_size' needs a budget, examples=, of at least one for each piece, got {examples!r}",
                argument="examples",
            )
        return _best_batches(problem, optimizer, batch_size, float(examples), int(pieces))
    if on != "lr":
        raise Wrong(f"on must be 'lr' or 'batch_size', got {on!r}", argument="on")
    if examples is not None:
        steps = int(examples // batch_size)
    if steps is None:
        return _best_rates(problem, optimizer, batch_size, int(pieces), check_target(target), None)
    if steps != int(steps) or not pieces <= steps <= MAX_STEPS:
        raise Wrong(
            f"steps must be a whole number from {pieces} (one for each piece) to 10^9, got {steps!r}", argument="steps"
        )
    return _best_rates(problem, optimizer, batch_size, int(pieces), None, int(steps))


def _check(problem: Problem, optimizer: Optimizer, pieces: int) -> None:
    """Refuse what cannot be scheduled."""
    require_separable(problem, "optimal_schedule")
    if isinstance(pieces, bool) or pieces != int(pieces) or not 1 <= pieces <= MOST_PIECES:
        raise Wrong(f"pieces must be a whole number from 1 to {MOST_PIECES}, got {pieces!r}", argument="pieces")
    if not isinstance(optimizer, Optimizer) or "lr" not in parameters(optimizer):
        raise Wrong(
            f"optimal_schedule needs an optimizer with one learning rate, got {optimizer!r}", argument="optimizer"
        )
    family = Family(optimizer, problem.spectrum)
    member = family.at((family.low + family.high) / 2)
    if member.cycle != 1 or not member.steady or member.averages:
        raise Wrong(
            f"optimal_schedule needs an optimizer whose steps are all alike, and those of {optimizer} are not",
            argument="optimizer",
        )


def _best_rates(
    problem: Problem, optimizer: Optimizer, batch_size: float, pieces: int, target: float | None, steps: int | None
) -> Scheduled:
    """Fewest steps to a target, or the least loss after so many steps."""
    search = RateSearch(problem, optimizer, batch_size)
    found = search.fewest_steps(target, pieces) if target else search.least_loss(steps or pieces, pieces)
    if isinstance(found, Tuned):  # There is nothing to divide.
        T, few = found.steps or 0, f", fewer than {pieces} pieces: constant" if found.steps else ""
        schedule, message = Schedule([max(T, 1)]), found.message + few
        return Scheduled(schedule, T, found.loss, found.optimizer, batch_size, found.outcome, message)
    lr = parameters(optimizer)["lr"].value
    base = float(found.rates.max() if lr is free else lr)
    outcome = Outcome.reached if target else Outcome.finished
    message = outcome.value.format(steps=found.steps, target=target) + f" with {pieces} pieces"
    schedule = Schedule(split(found.steps, pieces), found.rates / base)
    return Scheduled(schedule, found.steps, found.loss, search.at(found, base), batch_size, outcome, message)


def _best_batches(problem: Problem, optimizer: Optimizer, unit: float, examples: float, pieces: int) -> Scheduled:
    """Least loss for a budget of examples: batch sizes in closed form, rate and steps by search around them."""
    nodes = problem.nodes.searched(optimizer)
    family, tuner = Family(optimizer, nodes.spectrum), Tuner(problem, optimizer)
    start = tuner.solve(unit, examples=max(examples, unit))

    def settle(point: Array, where: Problem) -> tuple[float, Array, int, Optimizer]:
        """Loss and batch sizes at a point (log2 of the steps, coordinates of the family), with its steps and optimizer."""
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
    best = minimise(values, [np.clip(first, low, high)], 2.0, low, high)[0].u
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
