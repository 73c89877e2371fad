"""Best learning rates of a schedule for an optimizer that is not linear, by its mean field.

All rates of a schedule are changed a little at once, each in a setting of its own, and one pass follows all settings. The blocks
of time are the same for all of them, so the differences of their losses are smooth, and give the gradient for L-BFGS.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

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
from .rates import RateFamily, Rates, levels

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

    def __init__(self, problem: Problem, optimizer: Optimizer, batch_size: float) -> None:
        super().__init__(problem, optimizer, batch_size)
        self.tuner = FollowedTuner(problem, self.optimizer)

    def least_loss(self, steps: int, pieces: int) -> Rates:
        """The rates of least loss after ``steps`` steps."""
        tuned = self.tuner.solve(Goal.of(self.batch_size, steps=steps))
        return self._confirmed(self._refined(self._constant(tuned, steps), pieces), math.inf)

    def fewest_steps(self, target: float, pieces: int) -> Rates | Tuned:
        """The rates that reach a target soonest; the best constant rate if that has fewer steps than pieces, or does not reach it."""
        tuned = self.tuner.solve(Goal.of(self.batch_size, target))
        if not tuned.steps or tuned.steps < pieces:
            return tuned
        constant = self._constant(tuned, tuned.steps)
        start = self._refined(constant._replace(steps=max(pieces, int(RATES.first_part * tuned.steps))), pieces)
        return self._confirmed(self._horizon(target, start, constant.on(pieces)), target)

    def _refined(self, constant: Rates, pieces: int) -> Rates:
        """The best rates at the horizon of a constant schedule, found over finer and finer schedules."""
        best, top = constant, math.log(float(constant.rates[0])) + RATES.above
        for level in levels(pieces)[1:] or [pieces]:
            best = self._descend(best.on(level), top)
        return best

    def _horizon(self, target: float, found: Rates, reached: Rates) -> Rates:
        """The schedule at the shortest horizon at which its best rates are at the target."""
        goal, T, lo, hi = math.log(target), found.steps, len(found.rates) - 1, MAX_STEPS
        top = float(np.log(found.rates.max())) + RATES.above
        for _ in range(RATES.horizons):
            found = self._descend(found._replace(steps=T), top)
            at = log_loss(found.loss).item()
            if at <= goal:
                reached, hi = found, T
            else:
                lo = T
            if 0 <= goal - at < RATES.close or hi - lo <= 1:
                break
            further = T + max(1, int(RATES.stretch * T))
            longer = log_loss(self._losses(found._replace(steps=further), found.rates[None], found.u[None])[0]).item()
            slope = min(-0.1, (longer - at) / math.log(further / T))
            move = np.clip((goal - RATES.close / 2 - at) / slope, -RATES.furthest, RATES.furthest)
            T = int(np.clip(round(T * math.exp(move)), lo + 1, max(hi - 1, lo + 1)))
        return reached

    def _descend(self, start: Rates, top: float) -> Rates:
        """The schedule of least loss that L-BFGS finds from a start, at its horizon."""
        from scipy.optimize import minimize

        count = len(start.rates)

        def objective(z: Array) -> tuple[float, Array]:
            points = z + CHANGE * np.vstack([np.zeros(len(z)), np.eye(len(z))])
            logs = np.log(np.minimum(self._losses(start, np.exp(points[:, :count]), points[:, count:]), CEILING))
            return float(logs[0]), (logs[1:] - logs[0]) / CHANGE

        bounds = [(top - RATES.depth, top)] * count + [(p.kind.low, p.kind.high - 2 * CHANGE) for p in self.shared]
        options = {"maxiter": RATES.iterations, "ftol": RATES.tolerance}
        first = np.append(np.minimum(np.log(start.rates), top), start.u)
        result = minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return Rates(start.steps, np.exp(result.x[:count]), result.x[count:], math.exp(float(result.fun)))

    def _losses(
        self, at: Rates, rates: Array, U: Array, where: Problem | None = None, detail: Detail = QUICK_DETAIL
    ) -> Array:
        """The loss at the end of each row of rates, (setting, piece), and of shared parameters."""
        values = {p.name: p.kind.value(U[:, i, None]) for i, p in enumerate(self.shared)}
        optimizer = fill(self.optimizer, {**values, "lr": np.ones((len(rates), 1))})
        pieces = Pieces(np.cumsum(split(at.steps, rates.shape[1])).tolist(), rates)
        field = (where or self.problem.nodes.followed_quickly).field(optimizer, self.batch_size, pieces, detail=detail)
        with np.errstate(all="ignore"):
            return np.nan_to_num(field.losses(field.move(field.start(), 0, at.steps), at.steps), nan=CEILING)

    def _confirmed(self, found: Rates, target: float) -> Rates:
        """The rates with their loss on finer nodes, and with more steps where the nodes of the search were slightly off."""
        for _ in range(100):
            loss = float(
                self._losses(found, found.rates[None], found.u[None], self.problem.nodes.followed, FINE_DETAIL)[0]
            )
            found = found._replace(loss=loss)
            if loss <= target:
                break
            found = found._replace(steps=found.steps + max(1, found.steps // 1000))
        return found
