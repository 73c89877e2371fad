"""Measured steps to a target against batch size, with intervals that hold the luck of seeds and of searches.

The setting at each batch size was chosen by a search. The steps of the best trial are biased low, because that trial is the
luckiest of many. So a curve is the median over fresh seeds at that setting, and the steps of the search are kept beside it.

Another search would have found another setting, whose median differs. Repeated searches show by how much. Let y be the
logarithm of the median over fresh seeds of a search, and V the variance of y between the R searches of a batch size, pooled
over batch sizes, with as many degrees of freedom n as there are searches beyond the first of each. Critical batch sizes and
verdicts use the mean of y over the searches (`Curve.typical`): unlike the least of them, it is independent of V, and all
searches overestimate the optimum alike. A *resampled* curve adds to each mean a normal error of variance (V / R) (n / c), where
c is drawn from the chi-squared law of n degrees of freedom, so that intervals from few searches are as wide as Student's. It
also adds a uniform error as wide as the resolution of steps, which is one step, or the study's ``growth`` if that is more.

Repeated searches can miss the optimum alike, and their differences do not show it: at large batch the best rate of SGD lies at an
edge beyond which trainings diverge, and all searches stay on one side of it. So resampled critical batch sizes have a uniform
error of up to `SHARED_ERROR` besides.

The best effective learning rates of the searches have a mean, a pooled variance and resampled values in the same way.

A search that did not reach the target ran out of steps, and what it took is only known to be more (`Curve.least`). In a resampled
curve a batch size has infinitely many steps if one of its searches, drawn at random, with its seeds resampled, has an infinite
median. What follows from such a curve is computed twice, with infinitely many steps and with the lower bound, and only what both
agree on is decided.

A best setting at an end of its range may not be the best, and a cell that is not finished may find a better one. What rests on such
a cell is not decided (`Curve.doubts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import number
from ...nets.estimates import LEVELS, Estimate
from ...nets.training.foreign import DESCENT_OF
from ...optimizers.base import fill, free, parameters
from ...search.bend import ScalingCurve
from ...search.sweeps import EXCESS, Definition, course, excess_at
from ...show.tables import Table
from ...types import Array, Wrong
from ..plan import SEARCH
from ..results import Point
from ..seeds import over_seeds
from ..space import Setting, optimizer_of

CURVE_RESAMPLES = 2000  # Intervals of a curve come from this many resampled curves.
MOST_SHARE = (
    0.98  # The correction for bias takes no larger share of resampled values on one side, of which too few are beyond.
)
SHARED_ERROR = 0.1  # Repeated searches may all miss the optimum by this share at one batch size, and hardly at another.
MEASURED: tuple[Definition, ...] = ("20%", "2x", "ratio")
"""The definitions of a critical batch size that need no model."""


@dataclass(frozen=True, eq=False, repr=False)
class Curve(Tabular):
    """One optimizer, tuned at each batch size.

    ``seeds`` has the steps of each fresh seed, infinity for a seed that did not reach the target. ``searched`` has the
    fewest steps of the search, infinity if no trial reached the target, NaN if the search has not ended. ``label`` is the
    optimizer's label in the study, and ``optimizer`` its own name. ``repeats`` has the same as ``seeds`` for every repeated
    search; a search of which no trial reached the target has the one value infinity. ``growth`` is the fraction by which the
    steps grow from one evaluation of the metric to the next. ``rates`` has the effective learning rate that each repeated search
    found, NaN for a search that did not reach the target. ``at_edge`` has the settings that a search left at an end of their range.
    ``allowed`` has the steps that a training was allowed, 0 where none came so far because all diverged. ``unfinished`` says of
    each batch size whether some search of it has not ended.
    """

    name: str
    batch_sizes: Array
    searched: Array
    seeds: tuple[Array, ...]
    settings: tuple[Mapping[str, Setting], ...]
    at_edge: tuple[tuple[str, ...], ...]
    label: str
    optimizer: str
    repeats: tuple[tuple[Array, ...], ...]
    growth: float = 0.0
    rates: tuple[Array, ...] = ()
    allowed: tuple[float, ...] = ()
    unfinished: tuple[bool, ...] = ()

    def _brief(self) -> str:
        return f"{self.name}, {course(self.batch_sizes, self.steps)}"

    @property
    def averaged(self) -> bool:
        """Whether the curve is that of an average of the weights."""
        return self.name != self.label

    @property
    def certain(self) -> bool:
        """Whether there are intervals: at some batch size two repeated searches or more reached the target."""
        return self.freedom > 0

    @cached_property
    def freedom(self) -> int:
        """The number of searches beyond the first of each batch size: the degrees of freedom of `scatter`."""
        return _freedom(self._repeated)

    @cached_property
    def scatter(self) -> float:
        """Standard deviation of the logarithm of steps between repeated searches; NaN without repeated searches."""
        return _pooled(self._repeated)

    @cached_property
    def _repeated(self) -> list[Array]:
        """For each batch size the logarithms of the medians of those searches that reached the target."""
        medians = [np.array([np.median(seeds) for seeds in found]) for found in self.repeats]
        return [np.log(np.maximum(found[np.isfinite(found)], 1.0)) for found in medians]

    @property
    def largest(self) -> float:
        """The largest batch size at which the target was reached."""
        arrived = self.batch_sizes[np.isfinite(self.steps)]
        return float(arrived[-1]) if len(arrived) else float(self.batch_sizes[-1])

    @cached_property
    def steps(self) -> Array:
        """Median over seeds, or the steps of the search if there are no seeds.

        Infinity if the target was not reached, NaN if the search has not ended.
        """
        medians = [np.median(s) if len(s) else least for s, least in zip(self.seeds, self.searched, strict=True)]
        return np.array(medians, dtype=float)

    @property
    def examples(self) -> Array:
        return self.steps * self.batch_sizes

    @cached_property
    def least(self) -> Array:
        """At each batch size the steps within which a search that did not reach the target did not do so; 1 if that is not known.

        Its trials had the steps that a training is allowed. Its fresh seeds had `StudySearchSettings.confirm_steps` times the
        steps of the search.
        """
        allowed = np.array(self.allowed or np.ones(len(self.batch_sizes)), dtype=float)
        return np.maximum(np.fmin(allowed, SEARCH.confirm_steps * self.searched), 1.0)

    @property
    def ran_out(self) -> Array:
        """The batch sizes at which no training reached the target, and the steps were at their limit."""
        return np.isinf(self.steps) & (self.least > 1)

    def doubts(self, batch_sizes: Array | None = None) -> list[str]:
        """Why nothing is decided that rests on these batch sizes, by default on all: best settings at an edge, unfinished cells."""
        asked = [i for i, B in enumerate(self.batch_sizes) if batch_sizes is None or B in batch_sizes]
        open_ = [f"{self.batch_sizes[i]:,.0f}" for i in asked if any(self.unfinished[i : i + 1])]
        found = [f"{self.name} is not finished at B = {', '.join(open_)}"] if open_ else []
        names = dict.fromkeys(one.split()[0] for i in asked for one in self.at_edge[i])
        for name in names:
            at = [
                f"{self.batch_sizes[i]:,.0f}" for i in asked if any(one.split()[0] == name for one in self.at_edge[i])
            ]
            found.append(f"the best {name} of {self.name} lies at an end of its range at B = {', '.join(at)}")
        return found

    @cached_property
    def typical(self) -> Array:
        """The geometric mean over repeated searches; ``steps`` where there are none, or where the target was not reached."""
        means = [math.exp(logs.mean()) if len(logs) else math.nan for logs in self._repeated]
        return np.where(np.isfinite(self.steps) & np.isfinite(means), means, self.steps)

    @cached_property
    def resampled(self) -> Array:
        """Steps of resampled curves, (resamples, batch sizes), as the head of this module says."""
        n, rng = CURVE_RESAMPLES, np.random.default_rng([0xC0, *self.name.encode()])
        errors = _errors(self._repeated, rng)
        resolution = np.maximum(self.growth, 1 / np.maximum(self.typical, 1.0))
        drawn = self.typical * np.exp(errors + resolution * rng.uniform(-0.5, 0.5, size=errors.shape))
        for i, found in enumerate(self.repeats):
            if any(np.isinf(seeds).any() for seeds in found):
                drawn[_never(found, n, rng), i] = math.inf
        return drawn

    @cached_property
    def rated(self) -> Array:
        """The places of the batch sizes at which a best learning rate is known."""
        return np.flatnonzero(np.isfinite(self.effective_lr) & np.isfinite(self.steps))

    @cached_property
    def _log_rates(self) -> list[Array]:
        """For each of the `rated` batch sizes, the logarithms of the best effective learning rates of its searches."""
        logs = [np.log(self.rates[i]) if i < len(self.rates) else np.empty(0) for i in self.rated]
        return [found[np.isfinite(found)] for found in logs]

    @cached_property
    def log_rates(self) -> Array:
        """The mean logarithm of the best effective learning rate over repeated searches, at the `rated` batch sizes."""
        best = np.log(self.effective_lr[self.rated])
        return np.array([found.mean() if len(found) else one for found, one in zip(self._log_rates, best, strict=True)])

    @cached_property
    def rates_resampled(self) -> Array:
        """Resampled values of `log_rates`, (resamples, batch sizes)."""
        return self.log_rates + _errors(self._log_rates, np.random.default_rng([0xC1, *self.name.encode()]))

    @property
    def coverage(self) -> Array:
        """Probability with which each interval holds the median; NaN without seeds."""
        return np.array([over_seeds(s).coverage for s in self.seeds])

    @property
    def interval(self) -> tuple[Array, Array]:
        """The ends of the interval of the median over seeds at each batch size; NaN without seeds."""
        found = [over_seeds(s) for s in self.seeds]
        return np.array([e.low for e in found]), np.array([e.high for e in found])

    @property
    def lr(self) -> Array:
        return _setting(self.settings, "lr", math.nan)

    @property
    def effective_lr(self) -> Array:
        """The effective learning rate of the best setting at each batch size."""
        return effective_lr(self.optimizer, self.settings)

    def critical_batch_size(self, definition: Definition = "2x") -> Estimate:
        """`Sweep.critical_batch_size` with its 90% interval; infinity means beyond the largest batch size.

        Where searches ran out of steps it is a lower bound, and the interval holds what the lower bound of their steps allows.
        """
        if definition not in MEASURED:
            known = ", ".join(MEASURED)
            raise Wrong(f"definition of what was measured must be one of {known}, got {definition!r}", "definition")
        drawn = self.critical_resampled(definition) if self.certain else (np.array([]), np.array([]))
        low, high = (estimate(float(value), own) for value, own in zip(self._critical(definition), drawn, strict=True))
        return Estimate(low.value, min(low.low, high.low), max(low.high, high.high))

    def bounded(self, definition: Definition = "2x") -> bool:
        """Whether the critical batch size is only a lower bound, because searches ran out of steps."""
        low, high = self._critical(definition)
        return bool(low < high)

    def _critical(self, definition: Definition) -> tuple[Array, Array]:
        return critical_range(self.batch_sizes, self.typical, self.least, definition)

    def critical_resampled(self, definition: Definition) -> tuple[Array, Array]:
        """The smallest and the largest critical batch size of each resampled curve, with the error that searches share."""
        rng = np.random.default_rng([0xC2, *self.name.encode()])
        error = np.exp(SHARED_ERROR * rng.uniform(-1, 1, size=CURVE_RESAMPLES))
        low, high = critical_range(self.batch_sizes, self.resampled, self.least, definition)
        return low * error, high * error

    def read_between(self, definition: Definition = "2x") -> tuple[float, float]:
        """The batch sizes between which the critical one is read, on straight lines between logs: how rough it is.

        NaN and infinity for "ratio", which needs no reading, and where no batch size is beyond it.
        """
        if definition not in EXCESS:
            return math.nan, math.inf
        steps = np.where(np.isfinite(self.typical), self.typical, math.nan)
        _, low, high, _ = ScalingCurve.of(self.batch_sizes, steps, math.nan).crossing(EXCESS[definition])
        return low, high

    def table(self) -> Table:
        """One row for each batch size."""
        low, high = self.interval
        return [
            {
                "optimizer": self.name, "batch_size": int(self.batch_sizes[i]), "steps": number(self.steps[i]),
                "low": number(low[i]), "high": number(high[i]), "examples": number(self.examples[i]),
                "searched": number(self.searched[i]), "seeds": len(self.seeds[i]),
                "effective_lr": number(self.effective_lr[i]), **self.settings[i], "at_edge": ", ".join(self.at_edge[i]),
                **self._origin(i),
            }
            for i in range(len(self.batch_sizes))
        ]  # fmt: skip

    def _origin(self, i: int) -> dict[str, object]:
        """What `files.read_curves` needs of a batch size, besides the other columns of its row."""
        rates = self.rates[i] if i < len(self.rates) else ()
        return {
            "more_than": number(self.least[i] if self.ran_out[i] else math.nan),
            "state": "unfinished" if any(self.unfinished[i : i + 1]) else "done", "label": self.label,
            "allowed": number(self.allowed[i]) if self.allowed else None,
            "rule": self.optimizer, "growth": self.growth, "fresh_seeds": in_words(self.seeds[i]),
            "searches": "; ".join(map(in_words, self.repeats[i])), "search_rates": " ".join(f"{lr:.6g}" for lr in rates),
        }  # fmt: skip


def effective_lr(optimizer: str, settings: Sequence[Mapping[str, Setting]]) -> Array:
    """`Optimizer.effective_lr` at each setting; the learning rate itself for an optimizer that the package does not have."""
    known = DESCENT_OF[optimizer]() if optimizer in DESCENT_OF else optimizer_of(optimizer)
    if known is None:
        return _setting(settings, "lr", math.nan)
    given = {name: 0.0 if p.value is free else p.value for name, p in parameters(known).items()} | {"lr": math.nan}
    return np.asarray(
        fill(known, {name: _setting(settings, name, value) for name, value in given.items()}).effective_lr
    )


def _setting(settings: Sequence[Mapping[str, Setting]], name: str, otherwise: float) -> Array:
    return np.array([float(one.get(name, otherwise)) for one in settings])


def in_words(steps: Array) -> str:
    """Steps in one cell of a table; "never" is infinitely many."""
    return " ".join("never" if math.isinf(one) else f"{one:.0f}" for one in steps)


def _pooled(logs: Sequence[Array]) -> float:
    """Standard deviation between repeated searches, pooled over batch sizes; NaN without repeated searches."""
    freedom = _freedom(logs)
    squares = sum(float(np.var(found) * len(found)) for found in logs if len(found) > 1)
    return math.sqrt(squares / freedom) if freedom else math.nan


def _freedom(logs: Sequence[Array]) -> int:
    return sum(max(0, len(found) - 1) for found in logs)


def _errors(logs: Sequence[Array], rng: np.random.Generator) -> Array:
    """Student's errors of the means over repeated searches, (resamples, batch sizes); NaN without repeated searches."""
    freedom, n = _freedom(logs), CURVE_RESAMPLES
    width = np.array([1 / math.sqrt(max(1, len(found))) for found in logs])
    scale = _pooled(logs) * np.sqrt(freedom / rng.chisquare(freedom, (n, 1))) if freedom else math.nan
    return scale * width * rng.normal(size=(n, len(width)))


def estimate(value: float, drawn: Array) -> Estimate:
    """A number with the interval of its resampled values; an interval of NaN where there are none.

    A critical batch size rests on the minimum over batch sizes. Where several of them are nearly equal, the minimum of resampled
    values lies lower than that of the measured ones, as that of the measured ones lies lower than the true minimum. Efron's
    (1981) correction shifts the quantiles by this bias, which it takes from the share of resampled values below the
    measured one. It overcorrects where little is resampled below, so the interval holds the quantiles with the shift and without.

    >>> draws = np.arange(1001.0)
    >>> [(round(e.low), round(e.high)) for e in (estimate(500, draws), estimate(700, draws))]
    [(50, 950), (50, 996)]
    """
    drawn = drawn[~np.isnan(drawn)]  # Resampled curves of which too few batch sizes arrive have no value.
    if not len(drawn):
        return Estimate(float(value), math.nan, math.nan)
    normal = NormalDist()
    share = float(np.mean(drawn < value) + np.mean(drawn == value) / 2)
    shift = 2 * normal.inv_cdf(min(max(share, 1 - MOST_SHARE), MOST_SHARE))
    shifted = [normal.cdf(shift + normal.inv_cdf(level)) for level in LEVELS]
    low, high, low_shifted, high_shifted = np.quantile(drawn, (*LEVELS, *shifted), method="nearest")
    return Estimate(float(value), float(min(low, low_shifted)), float(max(high, high_shifted)))


def critical(batch_sizes: Array, steps: Array, definition: Definition) -> Array:
    """Critical batch sizes by definition; infinity if one is beyond its curve, NaN where there is no curve.

    Curves lie along the last axis of ``steps``. Infinitely many steps are those of a batch size at which the target is never
    reached. The critical batch size then lies below that batch size, and not below the one before it, at which the limit of
    the interpolation puts it.

    >>> B = np.array([8.0, 16, 32, 64])
    >>> critical(B, np.array([[80, 40, 20, 30], [80, 40, 20, math.inf]]), "2x").round(1).tolist()
    [49.6, 32.0]
    """
    steps = np.asarray(steps, dtype=float)
    arrived, examples = np.isfinite(steps), steps * batch_sizes
    least, fewest = (np.min(x, axis=-1, initial=math.inf, where=arrived) for x in (examples, steps))
    if definition == "ratio":
        with np.errstate(invalid="ignore"):
            found = least / fewest
    else:
        found = np.fmin(excess_at(batch_sizes, examples, EXCESS[definition]), _last(batch_sizes, steps))
    return np.where(arrived.sum(axis=-1) < 2, math.nan, found)


def critical_range(batch_sizes: Array, steps: Array, least: Array, definition: Definition) -> tuple[Array, Array]:
    """The smallest and the largest critical batch sizes, where infinitely many steps are only known to be more than ``least``.

    The more steps at batch sizes before that of the fewest examples, and the fewer after it, the larger it is.

    >>> B = np.array([8.0, 16, 32, 64])
    >>> [float(x.round(1)) for x in critical_range(B, np.array([80, 40, 20, math.inf]), np.full(4, 25.0), "2x")]
    [32.0, 54.1]
    """
    never = np.isinf(steps)
    cheapest = np.argmin(np.where(np.isfinite(steps), steps * batch_sizes, math.inf), axis=-1)
    early = never & (np.arange(len(batch_sizes)) < cheapest[..., None])
    bound = np.where(never, least, steps)
    low, high = (critical(batch_sizes, np.where(at, bound, steps), definition) for at in (early, never & ~early))
    none = np.isnan(
        critical(batch_sizes, steps, definition)
    )  # A bound does not make a curve of one batch size that arrived.
    return np.where(none, math.nan, np.fmin(low, high)), np.where(none, math.nan, np.fmax(low, high))


def _last(batch_sizes: Array, steps: Array) -> Array:
    """The batch size before the first one that never arrives, of those that take more than the least examples; or infinity."""
    cheapest = np.argmin(np.where(np.isfinite(steps), steps * batch_sizes, math.inf), axis=-1)
    found, place = np.full(steps.shape[:-1], math.inf), np.full(steps.shape[:-1], math.nan)
    for i, B in enumerate(batch_sizes):
        never = np.isinf(steps[..., i]) & (cheapest < i) & np.isinf(found)
        found, place = np.where(never, place, found), np.where(np.isnan(steps[..., i]), place, B)
    return found


def _never(searches: Sequence[Array], count: int, rng: np.random.Generator) -> Array:
    """For each of some draws, whether a search drawn at random has an infinite median over its resampled seeds."""
    medians = np.stack([np.median(s[rng.integers(len(s), size=(count, len(s)))], axis=1) for s in searches])
    return np.isinf(medians[rng.integers(len(searches), size=count), np.arange(count)])


def curves_of(points: Iterable[Point]) -> list[Curve]:
    """A curve for each row of a study's results."""
    rows: dict[str, list[Point]] = {}
    for point in points:
        rows.setdefault(point.name, []).append(point)
    return [_curve(name, sorted(own, key=lambda point: point.batch_size)) for name, own in rows.items()]


def _curve(name: str, points: list[Point]) -> Curve:
    optimizer = next((point.trial.optimizer for point in points if point.trial), points[0].label)
    return Curve(
        name,
        np.array([point.batch_size for point in points], dtype=float),
        np.array([_searched(point) for point in points], dtype=float),
        tuple(_arrivals(point.seeds) for point in points),
        tuple(point.settings | ({} if point.decay is None else {"ema_decay": point.decay}) for point in points),
        tuple(tuple(f"{setting} {end}" for setting, end in point.at_edge.items()) for point in points),
        points[0].label,
        optimizer,
        tuple(tuple(map(_arrivals, point.searches)) for point in points),
        next((point.trial.growth for point in points if point.trial), 0.0),
        tuple(effective_lr(optimizer, point.tuned) for point in points),
        tuple(float(point.allowed) for point in points),
        tuple(point.state != "done" for point in points),
    )


def _arrivals(seeds: Sequence[int | None]) -> Array:
    return np.array([math.inf if steps is None else steps for steps in seeds], dtype=float)


def _searched(point: Point) -> float:
    """The fewest steps of a search: infinity if it ended without a trial that arrived, NaN if it has not ended."""
    if point.steps is not None:
        return point.steps
    return math.inf if point.state == "done" else math.nan
