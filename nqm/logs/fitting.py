"""Fitting the law to logs: a robust maximum a posteriori estimate by exact gradients, with its covariance.

Residuals are those of the logarithm of the loss. Each log counts as `ForecastSettings.effective_points` independent points, however
many it has, because what a law misses of a run is the same for neighbouring points. Priors are weak where the logs decide, and
hold what few logs can decide near the values that other training runs had.

The covariance is that of an estimate whose weights are not the true ones (a sandwich). With P the inverse variances of the
priors, D the information of the logs in the units of the fit, and G_l the sum of the weighted derivatives of log l,

    covariance = (P + D)^-1 (P + sum_l f_l D_l + offset^2 G_l G_l') (P + D)^-1

D_l is the part of log l in D. f_l is the measured mean square of its residuals over the assumed one, for as many independent
points as their autocorrelation leaves, times count / (count - parameters) over all fitted points: as many degrees of freedom went
into the fit. ``offset`` is what all points of a run have in common, which no residual shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..types import Array, Wrong
from .course import Course
from .law import NAMES, LossLaw, RateMetric
from .log import Log

DECIDING_POINTS = 12
"""Logs with fewer points decide nothing: of parameters called decided, 90% intervals from logs of 8 points held 64 to 68% of the true
values, from 12 points 85 to 95%, and from 20 points 96 to 98% (one and three logs of a known law of SGD, 12 times)."""
FEWEST_POINTS = 3.0  # A log has at least so many independent points, which is what a fit needs of it.
# A 90% interval reaches so many standard deviations to either side. The normal law has 1.645, but the parts of the variance overlap:
# the scatter of a fit holds some of the error of the law. ``python -m benchmarks.forecast_intervals`` finds the number.
INTERVAL_90 = 1.45


@dataclass(frozen=True)
class ForecastSettings:
    """The numbers that steer a fit.

    The means of the priors of adaptive optimizers are derived. Their widths were chosen on runs of a model of 25 million weights and
    one of 100 million; ``python -m benchmarks.forecast_choice`` compares this law with those that sets of runs choose.
    """

    scatter: float = 1e-3  # Relative deviation at which a residual stops counting as Gaussian (Huber's delta).
    # Independent points of a log, however many it has: what the law misses of a run is the same for neighbouring points.
    effective_points: float = 10.0
    # Relative standard deviation of what all points of a run have in common, such as its seed. 16 pairs of runs of one
    # schedule (124 million weights) differ as 0.0004 does, and single pairs of 25 and 100 million weights as 0.00035 and 0.00045.
    offset: float = 0.0004
    most_points: int = 200  # Points of a log that are fitted; longer logs are averaged over neighbours.
    exponent: float = 1.0  # b of the law: the noise of a step is forgotten as the intrinsic time to this power.
    plain_exponent: float = 1.0  # The same for SGD, of which no published runs were at hand.
    # Starts of the fit: s0 as a share of the longest intrinsic time, and a factor on the noise that the priors expect.
    starts: tuple[tuple[float, float], ...] = ((0.003, 1.0), (0.1, 1.0))
    beginning: float = 0.1  # Points in the first part of a run count less: the law does not know the first transient.
    # Means and standard deviations of log parameters. They follow from how training works, and docs/forecast.md derives them.
    r0: tuple[float, float] = (
        0.0004,
        0.25,
    )  # Squared start of the weight norm: weights begin with a deviation of 0.02.
    # Saturation of noise times the least loss. The cross-entropy leaves its quadratic at an excess of about one nat, and language
    # models end near three.
    k: tuple[float, float] = (3.0, 0.25)
    alpha: tuple[float, float] = (0.6, 0.5)  # Exponent of the signal.
    # 2 C times the mean effective rate: how many times a step the noise of the fastest curvatures is forgotten. The largest
    # curvature at which Adam with beta1 = 0.9 is stable is 38 over the rate, and C is the mean of curvatures up to it.
    speed: tuple[float, float] = (38.0, 0.25)
    plain_alpha: tuple[float, float] = (0.6, 0.5)  # Exponent of the signal for SGD, where the logs must decide it.
    # The same for SGD: noise speed. A deviation of 2 drew N and C half of their deviations upwards, on logs with known laws.
    plain_speed: tuple[float, float] = (1.0, 5.0)

    def exponent_of(self, metric: RateMetric) -> float:
        """The exponent b for the optimizer of a metric."""
        return self.exponent if metric.adaptive else self.plain_exponent


SETTINGS_OF_FIT = ForecastSettings()


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted law with the covariance of its log parameters, which has zeros for those that were held."""

    law: LossLaw
    covariance: Array
    prior: Array  # standard deviations of the priors
    cost: float
    scatter: float  # weighted root mean square of the residuals, without spikes
    residuals: tuple[Array, ...]  # of the logarithm of the loss, for each log at its fitted points


@dataclass(frozen=True, eq=False)
class Reading:
    """A log as a fit sees it: its course, the logarithms of its losses, and the weights of their residuals."""

    course: Course
    y: Array
    weight: Array
    omitted: int  # points that are not fitted: the start and the warm-up


def reading(
    log: Log, metric: RateMetric, batch_size: float | None, settings: ForecastSettings = SETTINGS_OF_FIT
) -> Reading:
    """The points of a log after its warm-up, averaged where there are many, and weighted."""
    rates, last = log.rates, int(log.step[-1])
    if not last or not rates.max() > 0:
        raise Wrong(f"log {log.name!r} has no step with a positive learning rate", argument="logs")
    if log.loss.min() <= 0:
        at = int(log.step[log.loss.argmin()])
        raise Wrong(
            f"a forecast needs positive losses; log {log.name!r} has {log.loss.min():g} at step {at:,}", argument="logs"
        )
    keep = after_warmup(log)
    if keep.sum() < 3:
        raise Wrong(
            f"log {log.name!r} has {keep.sum()} points after its warm-up of {warmup_of(rates):,} steps; a fit needs 3",
            argument="logs",
        )
    step, y = averaged(log.step[keep], np.log(log.loss[keep]), settings.most_points)
    weight = np.minimum(1.0, step / (settings.beginning * last)) ** 2
    weight *= np.sqrt(settings.effective_points / (weight**2).sum())
    course = Course.of(rates, step, metric.weight_decay, sizes_of(log, batch_size))
    return Reading(course, y, weight, int((~keep).sum()))


def after_warmup(log: Log) -> Array:
    """Which points of a log are fitted: those after its first step and its warm-up."""
    return (log.step > 0) & (log.step >= warmup_of(log.rates))


def warmup_of(rates: Array) -> int:
    """The steps of warm-up: those before the first whose rate is near the largest of the first half of the run."""
    return int(np.argmax(rates >= 0.99 * rates[: max(1, len(rates) // 2)].max()))


def averaged(step: Array, y: Array, most: int) -> tuple[Array, Array]:
    """At most so many points: medians of groups of neighbours, at the mean step of each group."""
    if len(step) <= most:
        return step, y
    groups = np.array_split(np.arange(len(step)), most)
    return np.array([round(step[g].mean()) for g in groups]), np.array([np.median(y[g]) for g in groups])


def sizes_of(log: Log, reference: float | None) -> Array | float:
    """Batch sizes of a log's steps relative to the reference; 1 where none is known."""
    if log.batch_size is None or reference is None:
        return 1.0
    if np.ndim(log.batch_size) == 0:
        return float(log.batch_size) / reference
    at = np.searchsorted(log.step, np.arange(1, int(log.step[-1]) + 1), side="left")
    return np.asarray(log.batch_size)[np.minimum(at, len(log.step) - 1)] / reference


def fit_law(readings: list[Reading], metric: RateMetric, settings: ForecastSettings = SETTINGS_OF_FIT) -> Fitted:
    """The law that explains the readings best, from several starts."""
    from scipy.optimize import least_squares

    points, parameters = sum(len(r.y) for r in readings), len(metric.names)
    if points <= parameters:
        raise Wrong(
            f"these logs have {points} points after their warm-up, and the law has {parameters} parameters: nothing would be "
            f"decided; log {parameters + 1} points or more",
            argument="logs",
        )
    mean, deviation, starts = guesses(readings, metric, settings)
    free = [NAMES.index(name) for name in metric.names]
    objective = Objective(readings, metric, mean, deviation, free, settings)
    best = None
    for start in starts:
        scale: Any = deviation[free].clip(0.1, 0.5)
        slopes: Any = objective.jacobian  # SciPy's stubs know its name alone.
        found = least_squares(objective.residuals, start[free], jac=slopes, x_scale=scale, max_nfev=300)
        if np.all(np.isfinite(found.x)) and (best is None or found.cost < best.cost):
            best = found
    if best is None:
        raise Wrong("no law explains these logs: are the losses positive and the learning rates as trained?", "logs")
    theta = objective.full(best.x)
    law = LossLaw(metric, theta, settings.exponent_of(metric))
    residuals = tuple(np.log(law.loss(r.course)) - r.y for r in readings)
    scatter = math.sqrt(np.mean([mean_square(e, r.weight) for e, r in zip(residuals, readings, strict=True)]))
    covariance = np.zeros((len(NAMES), len(NAMES)))
    weights = [r.weight * huber(e / settings.scatter)[1] for e, r in zip(residuals, readings, strict=True)]
    freedom = points / (points - parameters)
    squares = [
        freedom * mean_square(e, r.weight) / independent_points(e) for e, r in zip(residuals, readings, strict=True)
    ]
    covariance[np.ix_(free, free)] = sandwich(objective.jacobian(best.x), weights, squares, settings)
    return Fitted(law, covariance, deviation, float(best.cost), scatter, residuals)


def sandwich(
    J: Array, weights: list[Array], squares: list[float], settings: ForecastSettings = SETTINGS_OF_FIT
) -> Array:
    """The covariance of the free parameters, as the module's docstring has it.

    J has the derivatives of the priors' residuals, then those of each log, ``weights`` what multiplies a log's residuals, and
    ``squares`` the mean square of a log's residuals over the number of independent points.
    """
    count = J.shape[1]
    P = J[:count].T @ J[:count]
    D = J[count:].T @ J[count:]
    middle = P.copy()
    ends = np.cumsum([len(w) for w in weights])[:-1]
    for rows, weight, square in zip(np.split(J[count:], ends), weights, squares, strict=True):
        f = square * settings.effective_points / settings.scatter**2
        G = (weight / settings.scatter) @ rows
        middle += f * rows.T @ rows + settings.offset**2 * np.outer(G, G)
    bread = np.linalg.pinv(P + D)
    return bread @ middle @ bread


def independent_points(residuals: Array) -> float:
    """How many points of a log are independent: their number over the sum of their autocorrelations, after the first tenth.

    The sum ends before the first correlation that a row of independent residuals would have by chance.
    """
    e = residuals[len(residuals) // 10 :]
    e = e - e.mean()
    count, square = len(e), float(e @ e)
    if not square > 0:
        return float(count)
    total = 1.0
    for lag in range(1, count // 2):
        correlation = float(e[lag:] @ e[:-lag]) / square
        if correlation < 1 / math.sqrt(count):
            break
        total += 2 * correlation
    return max(count / total, FEWEST_POINTS)


def mean_square(residuals: Array, weight: Array) -> float:
    """The weighted mean square of residuals; those beyond four times their median size, the spikes, count as that."""
    size = np.minimum(np.abs(residuals), 4 * np.median(np.abs(residuals)))
    return float(np.average(size**2, weights=weight**2))


@dataclass(frozen=True, eq=False)
class Objective:
    """Residuals and their derivatives by the free log parameters; the last call is kept."""

    readings: list[Reading]
    metric: RateMetric
    mean: Array
    deviation: Array
    free: list[int]
    settings: ForecastSettings

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kept", {})

    def full(self, x: Array) -> Array:
        theta = self.mean.copy()
        theta[self.free] = x
        return theta

    def residuals(self, x: Array) -> Array:
        return self._both(x)[0]

    def jacobian(self, x: Array) -> Array:
        return self._both(x)[1]

    def _both(self, x: Array) -> tuple[Array, Array]:
        kept: dict[bytes, tuple[Array, Array]] = self._kept  # type: ignore[attr-defined]
        key = x.tobytes()
        if key not in kept:
            kept.clear()
            kept[key] = self._evaluate(x)
        return kept[key]

    def _evaluate(self, x: Array) -> tuple[Array, Array]:
        law = LossLaw(self.metric, self.full(np.clip(x, -300, 300)), self.settings.exponent_of(self.metric))
        scatter = self.settings.scatter
        values = [(x - self.mean[self.free]) / self.deviation[self.free]]
        slopes = [np.diag(1 / self.deviation[self.free])]
        for each in self.readings:
            with np.errstate(all="ignore"):
                loss, J = law.jacobian(each.course)
                loss = np.maximum(loss, 1e-9)
                e = (np.log(loss) - each.y) / scatter
            value, slope = huber(e)
            values.append(each.weight * value)
            slopes.append((each.weight * slope / scatter / loss)[:, None] * J[:, self.free])
        return np.nan_to_num(np.concatenate(values), nan=1e6), np.nan_to_num(np.concatenate(slopes))


def huber(e: Array) -> tuple[Array, Array]:
    """The root of twice Huber's loss with its sign, and its derivative: quadratic below 1, linear above."""
    size = np.abs(e)
    root = np.sqrt(np.maximum(2 * size - 1, 1.0))
    return np.where(size <= 1, e, np.sign(e) * root), np.where(size <= 1, 1.0, 1 / root)


def guesses(
    readings: list[Reading], metric: RateMetric, settings: ForecastSettings
) -> tuple[Array, Array, list[Array]]:
    """Means and deviations of the priors, and the starts of the fit."""
    rates = [metric.rates(r.course, settings.r0[0])[0] for r in readings]
    times = [float(eta @ r.course.lengths) for eta, r in zip(rates, readings, strict=True)]
    S = max(times)
    mean_rate = float(
        np.exp(np.mean([np.log(t / r.course.lengths.sum()) for t, r in zip(times, readings, strict=True)]))
    )
    least = float(np.exp(min(r.y.min() for r in readings)))
    speed, alpha = (settings.speed, settings.alpha) if metric.adaptive else (settings.plain_speed, settings.plain_alpha)
    C = speed[0] / (2 * mean_rate)
    # Noise of a tenth of the loss at the mean rate: N eta log(1 + 2 C S) / (2 C).
    N = 0.05 * least * 2 * C / (mean_rate * np.log1p(2 * C * S))
    table = {
        "floor": (0.85 * least, 1.0), "A": (0.3 * least, 5.0), "alpha": alpha, "s0": (0.03 * S, 3.0),
        "N": (N, 5.0), "C": (C, speed[1]), "k": (settings.k[0] / least, settings.k[1]), "r0": settings.r0,
    }  # fmt: skip
    mean = np.log([table[name][0] for name in NAMES])
    deviation = np.array([table[name][1] for name in NAMES])
    starts = []
    for s0, noise in settings.starts:
        start = mean.copy()
        start[NAMES.index("s0")] = np.log(s0 * S)
        start[NAMES.index("N")] += np.log(noise)
        starts.append(start)
    return mean, deviation, starts
