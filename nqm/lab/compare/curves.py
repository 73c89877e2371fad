"""Measured steps to a target against batch size, with intervals over seeds.

The setting at each batch size was chosen by a search. The steps of the best trial are biased low, because that trial is the
luckiest of many. So a curve is the median over fresh seeds at that setting, and the steps of the search are kept beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import number
from ...nets.estimates import LEVELS, Estimate
from ...nets.training.foreign import DESCENT_OF
from ...optimizers.base import fill, free, parameters
from ...search.sweeps import EXCESS, Definition, course, excess_at
from ...show.tables import Table
from ...types import Array, Wrong
from ..results import Point, over_seeds
from ..space import Setting, optimizer_of

CURVE_RESAMPLES = 1000  # Intervals of a curve come from this many resamples of its seeds.
MEASURED: tuple[Definition, ...] = ("20%", "2x", "ratio")
"""The definitions of a critical batch size that need no model."""


@dataclass(frozen=True, eq=False, repr=False)
class Curve(Tabular):
    """One optimizer, tuned at each batch size.

    ``seeds`` has the steps of each fresh seed, infinity for a seed that did not reach the target. ``searched`` has the
    fewest steps of the search, NaN if no trial reached the target. ``label`` is the optimizer's label in the study, and
    ``optimizer`` its own name.
    """

    name: str
    batch_sizes: Array
    searched: Array
    seeds: tuple[Array, ...]
    settings: tuple[Mapping[str, Setting], ...]
    at_edge: tuple[tuple[str, ...], ...]
    label: str
    optimizer: str

    def _brief(self) -> str:
        return f"{self.name}, {course(self.batch_sizes, self.steps)}"

    @property
    def averaged(self) -> bool:
        """Whether the curve is that of an average of the weights."""
        return self.name != self.label

    @property
    def certain(self) -> bool:
        """Whether there are intervals: every batch size that reached the target was tried with two fresh seeds or more."""
        return all(len(s) > 1 for s, steps in zip(self.seeds, self.steps, strict=True) if math.isfinite(steps))

    @property
    def largest(self) -> float:
        """The largest batch size at which the target was reached."""
        arrived = self.batch_sizes[np.isfinite(self.steps)]
        return float(arrived[-1]) if len(arrived) else float(self.batch_sizes[-1])

    @cached_property
    def steps(self) -> Array:
        """Median over seeds, or the steps of the search if there are no seeds; NaN if the target was not reached."""
        medians = [np.median(s) if len(s) else least for s, least in zip(self.seeds, self.searched, strict=True)]
        return np.where(np.isfinite(medians), medians, np.nan)

    @property
    def examples(self) -> Array:
        return self.steps * self.batch_sizes

    @cached_property
    def resampled(self) -> Array:
        """Steps of curves whose seeds are resampled with replacement, (resamples, batch sizes)."""
        n, rng = CURVE_RESAMPLES, np.random.default_rng([0xC0, *self.name.encode()])
        drawn = [
            np.median(s[rng.integers(len(s), size=(n, len(s)))], axis=1) if len(s) else np.full(n, least)
            for s, least in zip(self.seeds, self.searched, strict=True)
        ]
        return np.stack(drawn, axis=1)

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
        return self._setting("lr", math.nan)

    def _setting(self, name: str, otherwise: float) -> Array:
        return np.array([float(s.get(name, otherwise)) for s in self.settings])

    @property
    def effective_lr(self) -> Array:
        """`Optimizer.effective_lr`; the learning rate itself for an optimizer that the package does not have."""
        known = DESCENT_OF[self.optimizer]() if self.optimizer in DESCENT_OF else optimizer_of(self.optimizer)
        if known is None:
            return self.lr
        given = {name: 0.0 if p.value is free else p.value for name, p in parameters(known).items()} | {"lr": math.nan}
        return np.asarray(fill(known, {name: self._setting(name, value) for name, value in given.items()}).effective_lr)

    def critical_batch_size(self, definition: Definition = "2x") -> Estimate:
        """`Sweep.critical_batch_size` with its interval over seeds; infinity means beyond the largest batch size."""
        if definition not in MEASURED:
            known = ", ".join(MEASURED)
            raise Wrong(f"definition of what was measured must be one of {known}, got {definition!r}", "definition")
        drawn = self.critical_resampled(definition) if self.certain else np.array([])
        return estimate(critical(self.batch_sizes, self.steps, definition), drawn)

    def critical_resampled(self, definition: Definition) -> Array:
        """The critical batch size of each resampled curve."""
        return np.array([critical(self.batch_sizes, steps, definition) for steps in self.resampled])

    def table(self) -> Table:
        """One row for each batch size."""
        low, high = self.interval
        return [
            {
                "optimizer": self.name, "batch_size": int(self.batch_sizes[i]), "steps": number(self.steps[i]),
                "low": number(low[i]), "high": number(high[i]), "examples": number(self.examples[i]),
                "searched": number(self.searched[i]), "seeds": len(self.seeds[i]),
                "effective_lr": number(self.effective_lr[i]), **self.settings[i], "at_edge": ", ".join(self.at_edge[i]),
            }
            for i in range(len(self.batch_sizes))
        ]  # fmt: skip


def estimate(value: float, drawn: Array) -> Estimate:
    """A number with the interval of its resampled values; an interval of NaN where there are none."""
    low, high = np.quantile(drawn, LEVELS, method="nearest") if len(drawn) else (math.nan, math.nan)
    return Estimate(float(value), float(low), float(high))


def critical(batch_sizes: Array, steps: Array, definition: Definition) -> float:
    """A critical batch size by definition; infinity if it is beyond the curve, NaN where there is no curve."""
    steps = np.where(np.isfinite(steps), steps, np.nan)
    if np.isfinite(steps).sum() < 2:
        return math.nan
    if definition == "ratio":
        return float(np.nanmin(steps * batch_sizes) / np.nanmin(steps))
    found = excess_at(batch_sizes, steps * batch_sizes, EXCESS[definition])
    return math.inf if math.isnan(found) else found


def curves_of(points: Iterable[Point]) -> list[Curve]:
    """A curve for each row of a study's results."""
    rows: dict[str, list[Point]] = {}
    for point in points:
        rows.setdefault(point.name, []).append(point)
    return [_curve(name, sorted(own, key=lambda point: point.batch_size)) for name, own in rows.items()]


def _curve(name: str, points: list[Point]) -> Curve:
    return Curve(
        name,
        np.array([point.batch_size for point in points], dtype=float),
        np.array([math.nan if point.steps is None else point.steps for point in points], dtype=float),
        tuple(np.array([math.inf if s is None else s for s in point.seeds], dtype=float) for point in points),
        tuple(point.settings | ({} if point.decay is None else {"ema_decay": point.decay}) for point in points),
        tuple(tuple(f"{setting} {end}" for setting, end in point.at_edge.items()) for point in points),
        points[0].label,
        next((point.trial.optimizer for point in points if point.trial), points[0].label),
    )
