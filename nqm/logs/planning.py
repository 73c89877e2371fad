"""The best learning rates under a forecast, by exact gradients, beside the usual schedules, each tuned.

The rates are straight lines between knots at equal distances after a warm-up. A schedule that may only fall has the knots
``min_lr + (max_lr - min_lr) exp(-(d_0 + ... + d_j))`` with d >= 0, so that a search over d needs no constraint but signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.schedule import Schedule
from ..problems.base import check_steps, is_number
from ..types import Array, Wrong
from .asking import ratio_of, row_of
from .best import BestSchedule
from .course import Course
from .log import Log
from .reach import distances, require_reach

if TYPE_CHECKING:
    from .forecasting import Forecast

Rates = Log | Sequence[float] | Array
"""Learning rates of a run that has been trained already: a log, or one rate for each step."""

BLOCKS_OF_PIECE = 4  # Each piece is at least so many blocks of constant rate: 8 moved the best loss by less than 1e-5.
MOST_RATES = (
    500  # pieces that a schedule may be asked to have; one evaluation with its gradient takes some milliseconds
)
HEADROOM = 1.0  # Without max_lr, rates go up to this many times the largest of the logs: beyond it nothing was seen.


def best_schedule(
    forecast: Forecast, steps: int, max_lr: float | None = None, min_lr: float = 0.0, *, pieces: int = 50,
    monotone: bool = True, warmup: int | None = None, trunk: Rates | None = None, batch_size: float | None = None,
    extrapolate: bool = False,
) -> BestSchedule:  # fmt: skip
    """The learning rates that end with the least expected loss after so many steps.

    Parameters
    ----------
    steps : length of the run, the trunk included.
    max_lr : largest rate; by default the largest of the logs.
    min_lr : smallest rate after the warm-up.
    pieces : straight lines after the warm-up, or after the trunk.
    monotone : whether rates may only fall.
    warmup : steps of linear warm-up; by default as in the logs. There is none after a trunk.
    trunk : what has been trained already, as a `Log` or one rate for each step: the rest is planned.
    batch_size : that of the run; by default that of the logs.
    extrapolate : plan beyond the reach of the logs (`nqm.logs.reach`), too, where nothing has checked a forecast.
    """
    plan = _plan(forecast, steps, max_lr, min_lr, pieces, warmup, trunk, batch_size)
    arguments = {"peak rate": "max_lr", "length": "steps", "batch size": "batch_size"}
    require_reach(distances(forecast, plan.max_lr, plan.steps, batch_size), arguments, extrapolate)
    if plan.trained:
        require_reach(distances(forecast, float(plan.begun.max())), {"peak rate": "trunk"}, extrapolate)
    usual = plan.rivals()
    found, nearest = plan.rates_of(plan.best(monotone, usual)), plan.usual(min(usual, key=lambda row: row["loss"]))
    rates = min(found, nearest, key=plan.loss)  # A few straight lines may miss the knee of a schedule that has one.
    outlook = forecast.predict(rates, plan.steps, batch_size=plan.batch_size, extrapolate=extrapolate)
    rivals = [{**row, "above": row["loss"] - float(outlook.loss[-1])} for row in usual]
    schedule = Schedule(np.ones(plan.steps, dtype=np.int64), rates / rates.max())
    end = float(outlook.loss[-1])
    compared = {
        row["schedule"]: forecast.predict(
            plan.usual(row), plan.steps, batch_size=plan.batch_size, extrapolate=extrapolate
        )
        for row in usual
    }
    return BestSchedule(
        schedule, float(rates.max()), plan.steps, end, float(outlook.low[-1]), float(outlook.high[-1]), rivals, outlook,
        plan.batch_size, len(plan.begun) if trunk is not None else 0, compared,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class RatePlan:
    """What is searched: the rates at knots after a beginning that is given."""

    forecast: Forecast
    steps: int
    max_lr: float
    min_lr: float
    begun: Array  # rates of the warm-up as shares of the largest, or of the trunk as they are
    trained: bool
    pieces: int
    batch_size: float | None

    def rates_of(self, knots: Array) -> Array:
        """The rate of each step: the beginning, then straight lines between the knots."""
        rest = self.steps - len(self.begun)
        after = np.interp((np.arange(rest) + 0.5) / rest, np.linspace(0, 1, len(knots)), knots)
        return np.append(self.begun if self.trained else self.begun * knots[0], after)

    def loss(self, rates: Array) -> float:
        """The expected loss at the end of a run with these rates."""
        ratio = ratio_of(self.forecast, self.batch_size, self.steps)
        return self.forecast.law.final(
            Course.of(rates, np.array([self.steps]), self.forecast.metric.weight_decay, ratio)
        )[0]

    def slope(self, knots: Array) -> tuple[float, Array]:
        """The loss at the end and its derivative by the knots."""
        course, shares = self.blocks
        lr = shares @ knots
        if self.trained:
            lr = np.append(course.lr[: len(course.lr) - len(lr)], lr)
        loss, by_lr = self.forecast.law.final(replace(course, lr=lr, peak=float(lr.max())))
        return loss, by_lr[len(by_lr) - len(shares) :] @ shares

    @cached_property
    def blocks(self) -> tuple[Course, Array]:
        """Blocks of the run, and how the rates of those that are planned follow from the knots, one row for each."""
        begun, rest = len(self.begun), self.steps - len(self.begun)
        cuts = begun + np.unique(np.round(np.linspace(0, rest, BLOCKS_OF_PIECE * self.pieces + 1)).astype(np.int64))
        ratio = ratio_of(self.forecast, self.batch_size, self.steps)
        rates = np.append(self.begun if self.trained else self.begun * self.max_lr, np.full(rest, self.max_lr))
        course = Course.of(rates, cuts[cuts > 0], self.forecast.metric.weight_decay, ratio)
        course = replace(course, steps=np.array([self.steps]), blocks=np.array([len(course.lr) - 1]))
        middle = (np.cumsum(course.lengths) - course.lengths / 2 - begun) / rest
        after = middle > 0
        places = np.linspace(0, 1, self.pieces + 1)
        shares = np.stack([np.interp(middle[after], places, row) for row in np.eye(self.pieces + 1)], axis=1)
        if not self.trained:  # The warm-up rises to the first knot.
            rise = np.zeros((int((~after).sum()), self.pieces + 1))
            rise[:, 0] = course.lr[~after] / self.max_lr
            shares = np.concatenate([rise, shares])
        return course, shares

    def best(self, monotone: bool, rivals: Sequence[Mapping[str, Any]]) -> Array:
        """The best knots, from the shapes of the rivals and others, each improved by a quasi-Newton search."""
        from scipy.optimize import minimize

        low, high = self.min_lr, self.max_lr
        span, u = high - low, np.linspace(0, 1, self.pieces + 1)
        if span <= 0:
            return np.full(self.pieces + 1, high)

        def free(x: Array) -> tuple[float, Array]:
            loss, slope = self.slope(low + span * x)
            return loss, slope * span

        def falling(d: Array) -> tuple[float, Array]:
            shares = np.exp(-np.cumsum(d))
            loss, slope = self.slope(low + span * shares)
            return loss, -np.cumsum((slope * span * shares)[::-1])[::-1]

        decays = [(row["peak"], max(row["decay_steps"], 1) / (self.steps - len(self.begun))) for row in rivals]
        decays += [(high, 0.2), (high, 0.5), (0.4 * high, 1.0)]
        shapes = [(np.minimum(1.0, (1 - u) / d) * min(p, high) / high).clip(1e-4, 1) for p, d in decays]
        best_loss, best = math.inf, shapes[0]
        for shape in shapes:
            start = np.diff(-np.log(shape), prepend=0.0) if monotone else shape
            bounds = [(0.0, None if monotone else 1.0)] * len(u)
            with np.errstate(all="ignore"):
                found = minimize(falling if monotone else free, start, jac=True, method="L-BFGS-B", bounds=bounds,
                                 options={"maxiter": 300, "ftol": 1e-13, "gtol": 1e-10})  # fmt: skip
            x = np.exp(-np.cumsum(found.x)) if monotone else found.x
            if found.fun < best_loss:
                best_loss, best = float(found.fun), x
        return low + span * best

    def rivals(self) -> list[dict[str, Any]]:
        """Cosine, linear and WSD with a linear decay, each with its best peak, and for WSD its best length of decay."""
        rest = self.steps - len(self.begun)
        floor = self.min_lr
        top = float(self.begun[-1]) if self.trained and len(self.begun) else None
        peaks = [top] if top else list(np.geomspace(max(self.max_lr / 30, floor * 1.0001, 1e-12), self.max_lr, 12))
        rows = []
        for name, shape in self._shapes.items():
            shares = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0] if name == "WSD" else [1.0]
            tried = [(self._shaped(shape(d), p), p, d) for p in peaks for d in shares]
            loss, peak, decay = min(tried)
            loss, peak, decay = self._refined(shape, (loss, peak, decay), len(peaks) > 1, name == "WSD")
            rows.append({"schedule": name, "peak": float(peak), "decay_steps": round(decay * rest), "loss": loss})
        return rows

    def usual(self, row: Mapping[str, Any]) -> Array:
        """The learning rates of a row of `rivals`."""
        share = row["decay_steps"] / max(self.steps - len(self.begun), 1)
        return self._rates(self._shapes[row["schedule"]](share), row["peak"])

    @cached_property
    def _shapes(self) -> dict[str, Callable[[float], Array]]:
        """Multipliers of the usual schedules after the warm-up, by the share of the steps in which the rate falls."""
        rest = self.steps - len(self.begun)
        u = np.arange(rest) / max(rest, 1)
        return {
            "cosine": lambda d: (1 + np.cos(np.pi * u)) / 2,
            "linear": lambda d: 1 - u,
            "WSD": lambda d: np.minimum(1.0, (1 - u) / d),
        }

    def _rates(self, shape: Array, peak: float) -> Array:
        begun = self.begun if self.trained else self.begun * peak
        return np.append(begun, self.min_lr + (peak - self.min_lr) * shape)

    def _shaped(self, shape: Array, peak: float) -> float:
        return self.loss(self._rates(shape, peak))

    def _refined(
        self, shape: Callable[[float], Array], best: tuple[float, float, float], peaks: bool, decays: bool
    ) -> tuple[float, float, float]:
        """Halve the distance to the neighbours a few times around the best of a grid."""
        factor, shift = 1.35, 0.08
        for _ in range(4):
            _, peak, decay = best
            options = [peak * f for f in ((1 / factor, 1.0, factor) if peaks else (1.0,))]
            lengths = [decay + s for s in ((-shift, 0.0, shift) if decays else (0.0,))]
            allowed = [
                (p, d) for p in options for d in lengths
                if self.min_lr < p <= self.max_lr * (1 + 1e-12) and 0.01 <= d <= 1.0 and (p, d) != (peak, decay)
            ]  # fmt: skip
            best = min([best, *((self._shaped(shape(d), p), p, d) for p, d in allowed)])
            factor, shift = math.sqrt(factor), shift / 2
        return best


def _plan(
    forecast: Forecast, steps: int, max_lr: float | None, min_lr: float, pieces: int, warmup: int | None,
    trunk: Rates | None, batch_size: float | None,
) -> RatePlan:  # fmt: skip
    """The checked question."""
    steps = check_steps(steps, 2)
    top = HEADROOM * forecast.peaks[1] if max_lr is None else max_lr
    for name, value in (("max_lr", top), ("min_lr", min_lr)):
        if not is_number(value) or not 0 <= value < math.inf or (name == "max_lr" and value == 0):
            raise Wrong(f"{name} must be a learning rate, got {value!r}", argument=name)
    if min_lr > top:
        raise Wrong(f"min_lr {min_lr:g} is above max_lr {top:g}", argument="min_lr")
    if trunk is not None:
        begun = trunk.rates if isinstance(trunk, Log) else row_of(trunk)
    else:
        n = min(forecast.warmup, steps // 10) if warmup is None else check_steps(warmup, 0, "warmup")
        begun = np.arange(1, n + 1) / max(n, 1)
    if len(begun) >= steps:
        what = "the trunk" if trunk is not None else "the warm-up"
        raise Wrong(f"{what} has {len(begun):,} steps, the whole run only {steps:,}; give more steps", argument="steps")
    if isinstance(pieces, bool) or not is_number(pieces) or pieces != int(pieces) or not 1 <= pieces <= MOST_RATES:
        raise Wrong(f"pieces must be a whole number from 1 to {MOST_RATES}, got {pieces!r}", argument="pieces")
    pieces = min(int(pieces), steps - len(begun))
    return RatePlan(forecast, steps, float(top), float(min_lr), begun, trunk is not None, pieces, batch_size)
