"""Best learning rates of a schedule for an optimizer that is not linear, by its mean field.

All rates of a schedule are changed a little at once, each in a setting of its own, and one pass follows all settings. The blocks
of time are the same for all of them, so the differences of their losses are smooth, and give the gradient for L-BFGS.

A loss above its bound (`limits`) is charged for after each block. The answer is followed in single steps if there are at most
`SINGLE_STEPS`, and in blocks of 1/64 of the time passed beyond.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..engine.mean_field import FINE_DETAIL, QUICK_DETAIL, Detail
from ..engine.schedule import Target
from ..optimizers.base import Optimizer, fill
from ..problems.base import MAX_STEPS, Problem
from ..types import Array
from .answer import Goal, Tuned
from .chain import split
from .exact.losses import CEILING, log_loss
from .followed import FollowedTuner
from .limits import LOSS_BOUND, Limit
from .peaks import Peaks
from .rates import RateFamily, Rates, levels

SINGLE_STEPS = 4096  # A schedule of at most this many steps is followed in single steps before it is answered.
CHANGE = 1e-4  # how much a log rate is changed for its derivative; rounding then leaves 1e-9 of it


@dataclass(frozen=True)
class FollowedRateSettings:
    """A search for the rates of a schedule by mean field."""

    first_part: float = 0.6
    """The first schedules are searched at this part of the steps of the best constant rate."""
    depth: float = 12.0
    """A log rate is at least this far below the largest one allowed."""
    above: float = 3.0
    """A log rate is at most this far above the best constant rate."""
    iterations: int = 60
    """Most iterations of a descent."""
    tolerance: float = 1e-7
    """Relative change of the log loss at which a descent ends."""
    horizons: int = 12
    """Most horizons that are tried for a target."""
    close: float = 1e-3
    """A horizon is found once the log loss is this little below that of the target."""
    stretch: float = 0.05
    """The slope of the loss over the horizon is that of the schedule when stretched by this part."""
    furthest: float = 0.7
    """Largest change of the log of a horizon in one move."""
    charge: float = 300.0
    """A loss above its bound adds the square of its log over the bound, times this, to the log of the loss at the end."""
    slack: float = 2e-3
    """Log of the part by which the bound is lower in a search than in the answer, at first."""
    rounds: int = 5
    """A search is repeated at most this many times with a lower bound, where its answer is above the bound at some step."""
    lowered: float = 0.95
    """After these, all rates are multiplied by this until no step is above the bound."""


RATES = FollowedRateSettings()


@dataclass(frozen=True, eq=False)
class Pieces:
    """Learning rates of many settings, constant on pieces: what `MeanField` asks of a schedule."""

    ends: list[int]
    rates: Array  # (settings, pieces)

    @property
    def repeats_from(self) -> int:
        return self.ends[-2] if len(self.ends) > 1 else 0

    def same_until(self, t: int) -> float:
        return self.ends[self._piece(t)] if t < self.repeats_from else math.inf

    def at(self, t: int) -> tuple[Array, float, float]:
        return self.rates[:, self._piece(t), None], 1.0, 1.0

    def multipliers(self, target: Target, steps: int, first: int = 0) -> Array:
        pieces = [self._piece(t) for t in range(first, first + steps)]
        return self.rates[:, pieces] if target == "lr" else np.ones(steps)

    def _piece(self, t: int) -> int:
        return min(bisect_right(self.ends, t), len(self.ends) - 1)


class FollowedRates(RateFamily):
    """The best rates of a schedule for one problem, optimizer and batch size; the questions of `RateSearch`."""

    def __init__(self, problem: Problem, optimizer: Optimizer, batch_size: float, limit: Limit) -> None:
        super().__init__(problem, optimizer, batch_size)
        self.limit, self.slack = limit, RATES.slack
        self.tuner = FollowedTuner(problem, self.optimizer)

    def least_loss(self, steps: int, pieces: int) -> Rates:
        """The rates of least loss after ``steps`` steps."""
        tuned = self.tuner.solve(Goal.of(self.batch_size, steps=steps))
        return self._confirmed(self._refined(self._constant(tuned, steps), pieces), math.inf)

    def fewest_steps(self, target: float, pieces: int) -> Rates | Tuned:
        """The rates that reach a target soonest; the best constant rate if that does not reach it."""
        tuned = self.tuner.solve(Goal.of(self.batch_size, target))
        if not tuned.steps:
            return tuned
        constant = self._constant(tuned, tuned.steps)
        part = constant.on(1, max(1, int(RATES.first_part * tuned.steps)))
        start = self._refined(part, pieces)
        return self._confirmed(self._horizon(target, start, constant.on(pieces), pieces), target)

    def peaks(self, found: Rates) -> Peaks:
        """The largest loss of each piece, on the nodes and in the steps of the answer."""
        detail = replace(FINE_DETAIL, part=0.0) if found.steps <= SINGLE_STEPS else FINE_DETAIL
        seen = self._followed(found, found.rates[None], found.u[None], self.problem.nodes.followed, detail)
        times, losses = zip(*((t, float(loss[0])) for t, loss in seen), strict=True)
        ends = np.cumsum(split(found.steps, len(found.rates)))
        starts = np.append(0, ends[:-1])
        piece = np.searchsorted(ends, times[1:])
        walked, steps = np.array(losses[1:]), np.array(times[1:])
        best = [max(np.flatnonzero(piece == i), key=lambda j: walked[j]) for i in range(len(ends))]
        return Peaks(losses[0], starts, walked[np.searchsorted(steps, ends)], walked[best], steps[best])

    def _refined(self, constant: Rates, pieces: int) -> Rates:
        """The best rates at the horizon of a constant schedule, found over finer and finer schedules."""
        best, top = constant, math.log(float(constant.rates[0])) + RATES.above
        for level in levels(min(pieces, constant.steps))[1:] or [1]:
            best = self._descend(best.on(level), top)
        return best

    def _horizon(self, target: float, found: Rates, reached: Rates, pieces: int) -> Rates:
        """The schedule at the shortest horizon at which its best rates are at the target."""
        goal, T, lo, hi = math.log(target), found.steps, 0, MAX_STEPS
        top = float(np.log(found.rates.max())) + RATES.above
        for _ in range(RATES.horizons):
            found = self._descend(found.on(pieces, T), top)
            at = log_loss(found.loss).item()
            if at <= goal:
                reached, hi = found, T
            else:
                lo = T
            if 0 <= goal - at < RATES.close or hi - lo <= 1:
                break
            further = T + max(1, int(RATES.stretch * T))
            longer = float(self._merits(found._replace(steps=further), found.rates[None], found.u[None])[0])
            slope = min(-0.1, (longer - at) / math.log(further / T))
            move = np.clip((goal - RATES.close / 2 - at) / slope, -RATES.furthest, RATES.furthest)
            T = int(np.clip(round(T * math.exp(move)), lo + 1, max(hi - 1, lo + 1)))
        return reached

    def _descend(self, start: Rates, top: float) -> Rates:
        """The schedule of least loss that L-BFGS finds from a start, at its horizon."""
        from scipy.optimize import minimize

        count = len(start.rates)
        top = min(top, math.log(self.limit.cap(self.at(start, 1.0), self.problem.spectrum)))

        def objective(z: Array) -> tuple[float, Array]:
            points = z + CHANGE * np.vstack([np.zeros(len(z)), np.eye(len(z))])
            logs = self._merits(start, np.exp(points[:, :count]), points[:, count:])
            return float(logs[0]), (logs[1:] - logs[0]) / CHANGE

        bounds = [(top - RATES.depth, top)] * count + [(p.kind.low, p.kind.high - 2 * CHANGE) for p in self.shared]
        options = {"maxiter": RATES.iterations, "ftol": RATES.tolerance}
        first = np.append(np.minimum(np.log(start.rates), top), start.u)
        result = minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return Rates(start.steps, np.exp(result.x[:count]), result.x[count:], math.exp(float(result.fun)))

    def _followed(
        self, at: Rates, rates: Array, U: Array, where: Problem | None = None, detail: Detail = QUICK_DETAIL
    ) -> Iterator[tuple[int, Array]]:
        """The start and the end of each block of steps, with the loss there, for each row of rates, (setting, piece), and of U."""
        values = {p.name: p.kind.value(U[:, i, None]) for i, p in enumerate(self.shared)}
        optimizer = fill(self.optimizer, {**values, "lr": np.ones((len(rates), 1))})
        pieces = Pieces(np.cumsum(split(at.steps, rates.shape[1])).tolist(), rates)
        field = (where or self.problem.nodes.followed_quickly).field(optimizer, self.batch_size, pieces, detail=detail)
        with np.errstate(all="ignore"):
            yield 0, np.nan_to_num(field.losses(field.start(), 0), nan=CEILING)
            for t, state in field.blocks(at.steps):
                yield t, np.nan_to_num(field.losses(state, t), nan=CEILING, posinf=CEILING)

    def _merits(self, at: Rates, rates: Array, U: Array) -> Array:
        """The log of the loss at the end of each setting, and what is charged for losses above the bound."""
        ends, charges = set(np.cumsum(split(at.steps, rates.shape[1])).tolist()), np.zeros(len(rates))
        lowest = logs = np.zeros(len(rates))
        for t, loss in self._followed(at, rates, U):
            logs = np.log(np.clip(loss, 1 / CEILING, CEILING))
            if t and self.limit.bounded:
                over = np.maximum(0.0, logs - lowest - math.log(LOSS_BOUND) + self.slack)
                charges += RATES.charge * over**2
            if t == 0:
                lowest = logs
            elif t in ends:
                lowest = np.minimum(lowest, logs)
        return np.minimum(logs + charges, math.log(CEILING))

    def _confirmed(self, found: Rates, target: float) -> Rates:
        """The rates with their loss on finer nodes, at the target, and at no step above the bound on the loss."""
        for _ in range(100):
            found, loss = self._kept(found)
            found = found._replace(loss=loss)
            if loss <= target:
                break
            lacks = min(log_loss(loss).item() - math.log(target), 1.0)
            found = found._replace(steps=min(MAX_STEPS, found.steps + max(1, int(found.steps * max(lacks, 1e-3)))))
        return found

    def _kept(self, found: Rates) -> tuple[Rates, float]:
        """The schedule with no loss above its bound, by a search with a lower bound or else with lower rates; and its loss."""
        top, turn, seen = math.log(float(found.rates.max())) + RATES.above, 0, self.peaks(found)
        while self.limit.bounded and (over := float(seen.over.max())) > 1:
            turn, self.slack = turn + 1, self.slack + math.log(over)
            if turn <= RATES.rounds:
                found = self._descend(found, top)
            else:
                found = found._replace(rates=found.rates * RATES.lowered)
            seen = self.peaks(found)
        return found, float(seen.ends[-1])
