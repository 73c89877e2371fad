"""First hits: when a training's own loss first dips below a target.

A training arrives when its own loss is first below the target, not when the expected loss is, and near the target losses
fluctuate. So many trainings are sampled on the modes of the fit. With x_s the deterministic path of a mode, and x_n what
noise has added to it in one training,

    L = phi(signal) + sum kappa(L) h (x_s x_n + x_n^2 / 2),        noise of the next step: (c / B) f(L),

the model of `following` with random numbers in place of their variances. Losses are looked at every ``cadence`` steps, as a
training that evaluates its loss every ``cadence`` steps would. Adam and AdamW are sampled likewise (`adaptive`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...engine.readable import Readable
from ...engine.run import number
from ...engine.schedule import Schedule, as_schedule
from ...engine.trajectory import Trajectory
from ...optimizers import SGD
from ...optimizers.base import Averaging, Optimizer, Written, assign, parameters, require_set
from ...problems.base import AnySchedule, check_batch_size, check_target
from ...sampling.replicas import check_whole
from ...types import Array, Progress, Wrong
from ..natural import as_trained
from .adaptive import AdaptiveTrainings
from .descent import PULL
from .edge import KNOWN_EXCESS, capped, ceiling, excess
from .metric import AdamMetric
from .prediction import predict
from .stepwise import check_metric, in_metric, run_in_metric

if TYPE_CHECKING:
    from .model import Fit

HIT_REPLICAS = 64  # trainings that are sampled
MAX_SAMPLED_STEPS = 10_000  # steps after which a sampled training counts as one that does not arrive
BAND = (0.1, 0.5, 0.9)  # quantiles of first hits: the ends of the 80% band, and the median between them
RATE_FACTORS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.2, 1.4, 2.0)
"""Multiples of a learning rate tuned for the expected loss that are tried for first hits."""
MOST_NOISE = 0.2
"""Largest share of noise in the loss on arrival at which a setting is recommended. Above it, on an MLP on 2,000 pictures of
Fashion-MNIST, trainings took 1.5 times the sampled steps and more, and above 0.35 they did not arrive."""
SEARCHED_EXCESS = 1.3
"""Largest learning rate of SGD that a search is taken to find, over the largest stable one at the target. The best rates of real
searches were 1.13 times that one on digits, 0.98 on a CNN, and 1.1 on an MLP with GELU; 1.3 leaves some room above these."""
SLOWED = 0.5
"""Noise slows trainings by more than the model has (`following`). With a share n of noise in the loss on arrival, they took as many
steps as were sampled on digits after 100 steps, and 1 + n times as many on that MLP. A promise is 1 + SLOWED n times the sampled
steps."""
ENOUGH_WORSE = (
    2  # the search over learning rates, from the largest on, ends after so many in a row that are worse than the best
)
LATENESS = 3.0  # sampled trainings end after this multiple of the steps after which the expected loss arrives
FEWEST_SAMPLED_STEPS = 64  # but not before this step
SAMPLED_STREAM = 0xF125  # stream of the random numbers of first hits


@dataclass(frozen=True, eq=False, repr=False)
class FirstHits(Readable):
    """The steps at which sampled trainings first were below a target; infinite for those that did not arrive."""

    optimizer: Optimizer
    batch_size: float
    target: float
    cadence: int
    hits: Array
    most: int = MAX_SAMPLED_STEPS  # steps after which a training counts as one that does not arrive
    growth: float = 0.0  # fraction by which the steps at which the loss is looked at grow, as in a study
    error: tuple[float, float] = (1.0, 1.0)  # factors by which the error of the fit may move the steps

    @property
    def low(self) -> float:
        """One training in ten arrives by this step."""
        return quantile_of(self.hits, BAND[0])

    @property
    def steps(self) -> float:
        """The median; infinite if fewer than half of the trainings arrive."""
        return quantile_of(self.hits, BAND[1])

    @property
    def high(self) -> float:
        """Nine trainings in ten arrive by this step."""
        return quantile_of(self.hits, BAND[2])

    @property
    def early(self) -> float:
        """The first end of the band in which four of five trainings arrive, with the error of the fit."""
        start = self.low * self.error[0]
        return max(1.0, float(math.floor(start))) if math.isfinite(start) else start

    @property
    def late(self) -> float:
        """The last end of that band; infinite if the error of the fit is too large to tell."""
        end = self.high * self.error[1]
        return float(math.ceil(end)) if math.isfinite(end) else end

    @property
    def message(self) -> str:
        """The distribution in words."""
        look = "every step" if self.cadence == 1 else f"every {self.cadence} steps"
        look = f"after steps that grow by {self.growth:.0%}" if self.growth else look
        if math.isinf(self.steps):
            share = np.isfinite(self.hits).mean()
            return f"{share:.0%} of trainings dip below {self.target:g} within {self.most:,} steps, looked at {look}"
        end = steps_or_more(self.late, self.most)
        band = f"80% of trainings between {self.early:,.0f} and {end}"
        if self.error != (1.0, 1.0):
            band += ", by their own scatter and the error of the fit"
        taken = f"{self.steps:,.0f} step{'' if self.steps == 1 else 's'}"
        return f"a training's own loss, looked at {look}, first dips below {self.target:g} after {taken} ({band})"

    def _brief(self) -> str:
        return f"{self.optimizer}, batch_size={self.batch_size:,.10g}: {self.message}"

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as ``--json`` prints them."""
        return {
            "optimizer": str(self.optimizer), "batch_size": number(self.batch_size), "target": self.target,
            "cadence": self.cadence, "growth": self.growth, "steps": number(self.steps), "low": number(self.early),
            "high": number(self.late),
        }  # fmt: skip


def first_hits(
    fit: Fit, optimizer: Written, batch_size: float, target: float, schedule: AnySchedule = None, *, cadence: int = 1,
    growth: float = 0.0, replicas: int = HIT_REPLICAS, most: int = MAX_SAMPLED_STEPS, seed: int = 0,
) -> FirstHits:  # fmt: skip
    """When trainings from the checkpoint of a fit first have a loss below the target, with an 80% band.

    Losses are looked at every ``cadence`` steps; or, with ``growth``, at steps that each are later by this fraction, as a study
    of `nqm lab` does. A training that has not arrived after ``most`` steps counts as one that does not arrive.
    """
    optimizer = as_trained(optimizer)
    require_set(optimizer, "first_hits")
    size, target = check_batch_size(batch_size), check_target(target)
    check_whole("cadence", cadence, 1)
    require_ahead(fit, target)
    hits = np.full(check_whole("replicas", replicas, 1), np.inf)
    walk = trainings(fit, optimizer, size, as_schedule(schedule, most), replicas, seed)
    last, t = check_whole("most", most, 1), 0
    for look in looks(cadence, growth, last):
        if walk is None or np.isfinite(hits).all():
            break
        while t < look:
            walk.step()
            t += 1
        hits[np.isinf(hits) & (walk.losses() <= target)] = t
    return FirstHits(optimizer, size, target, cadence, hits, last, growth)


def require_ahead(fit: Fit, target: float) -> None:
    """Refuse a target that the checkpoint of a fit has reached already."""
    if target >= fit.loss:
        raise Wrong(f"target {target:g} is not below the loss at the checkpoint, {fit.loss:.4g}", argument="target")


def quantile_of(hits: Array, level: float) -> float:
    """The step by which this share of trainings have arrived; infinite if fewer arrive."""
    return float(np.quantile(hits, level, method="higher"))


def steps_or_more(steps: float, most: int) -> str:
    """A number of steps in words, where trainings were ended after ``most``."""
    return f"{steps:,.0f}" if math.isfinite(steps) else f"more than {most:,}"


def looks(cadence: int, growth: float, last: int) -> Iterable[int]:
    """The steps up to ``last`` at which the loss is looked at.

    >>> list(looks(4, 0.0, 10))
    [4, 8]
    """
    if not growth:
        return range(cadence, last + 1, cadence)
    from ..training.groups import evaluation_steps

    return evaluation_steps(growth, last)


def trainings(
    fit: Fit, optimizer: Optimizer, size: float, plan: Schedule | None, replicas: int, seed: int
) -> Sampled | AdaptiveTrainings | None:
    """Sampled trainings at the checkpoint of a fit, or None if the learning rate is further past the edge than is known."""
    rng = np.random.Generator(np.random.SFC64([SAMPLED_STREAM, seed]))
    check_metric(fit, optimizer)
    if in_metric(optimizer):
        return AdaptiveTrainings(run_in_metric(fit, optimizer, size, plan), replicas, rng)
    if optimizer.depends_on_horizon:
        known = "SGD, HeavyBall, Nesterov or an EMA of them"
        raise Wrong(f"first hits of {optimizer} are not predicted from this fit; take {known}", argument="optimizer")
    if excess(fit.spectrum, optimizer, plan) > (1.0 if fit.bend is None else KNOWN_EXCESS):
        return None
    return Sampled(fit, Trajectory(optimizer, capped(fit.spectrum, optimizer, plan).h, plan), size, replicas, rng)


class SampledPoint(NamedTuple):
    """The weights that are read by a row of slots, and what is known of every training there."""

    row: Array
    signal: float  # loss without noise
    noise: Array  # (training, mode): what noise has added to the weights
    added: Array  # what noise has added to the loss of each training


class Sampled:
    """Trainings on the modes of a fit: the deterministic path x, and for each training what noise has added to it."""

    def __init__(self, fit: Fit, path: Trajectory, batch_size: float, replicas: int, rng: np.random.Generator) -> None:
        modes, self.fit, self.path, self.t, self.rng = fit.spectrum, fit, path, 0, rng
        self.loud = np.flatnonzero(modes.c > 0)  # most modes have signal or noise, not both
        self.scale = np.sqrt(modes.c[self.loud] / batch_size)
        self.h, self.most = path.h, ceiling(modes, path.optimizer)
        self.root = np.sqrt(modes.s * modes.h / path.h)  # the loss along a capped mode is kept
        self.x = path.start().A[:, 0].copy()
        self.noise = np.zeros((len(self.x), replicas, len(self.loud)))
        self.own, self.stepped = modes.h[self.loud], path.h[self.loud]  # at the checkpoint, and in the system of a step
        self.curvature = np.tile(self.stepped, (replicas, 1))  # of each training now, along the modes that have noise
        self.point: SampledPoint | None = None

    def losses(self) -> Array:
        """The loss of each training at the weights that are reported now."""
        return self.losses_at(self.path.row(self.t))

    def losses_at(self, row: Array) -> Array:
        """The loss of each training at the weights with this row of slots."""
        point = self._at(row)
        return point.signal + point.added

    def _at(self, row: Array) -> SampledPoint:
        """The point with this row of slots; that of the last call if nothing has changed, as where plain SGD looks twice."""
        if self.point is None or not np.array_equal(self.point.row, row):
            read = (row * self.x).sum(0) * self.root
            q = self.fit.offset + float((self.h * read**2).sum() / 2)
            signal = q if self.fit.bend is None else float(self.fit.bend(np.array(q)))
            noise = _combined(row[:, self.loud], self.noise)
            added = (self.curvature * noise * (read[self.loud] + noise / 2)).sum(1)
            self.point = SampledPoint(row, signal, noise, added)
        return self.point

    def step(self) -> None:
        """Take one step in every training."""
        G, b, batch = self.path.system(self.t)
        look, keep, drive = self.path.gradient_point(self.t), 1.0, self.rng.standard_normal(self.noise.shape[1:])
        drive *= self.scale
        if (bend := self.fit.bend) is None:
            drive *= np.sqrt(1 / batch)
        else:
            point = self._at(look)
            losses, most = point.signal + point.added, np.maximum(self._most(), self.stepped)
            drive *= np.sqrt(bend.loudness(losses) / batch)[:, None]
            keep = bend.kept(point.signal, float(point.added.mean()))
            now = np.minimum(bend.sharpening(losses)[:, None] * self.own, most)
            self.curvature = self.curvature + PULL * (now - self.curvature)
            drive += (self.curvature - self.stepped) * point.noise
        change = [_combined(row, self.noise) for row in G[..., self.loud]]
        for noise, moved, driven in zip(self.noise, change, b[:, self.loud], strict=True):
            noise += moved + driven * drive
        seen = (look * self.x).sum(0)
        self.x = self.x + np.einsum("abx,bx->ax", G, self.x) + (keep - 1) * self.h * b * seen
        self.t, self.point = self.t + 1, None

    def _most(self) -> float:
        """The largest curvature that the network keeps at the learning rate of this step."""
        rate = self.path.schedule.at(self.t)[0] if self.path.schedule else 1.0
        return self.most / rate if rate > 0 else math.inf


def _combined(row: Array, noise: Array) -> Array:
    """The slots of every training, added up with the entries of a row (slot, mode)."""
    total = row[0] * noise[0]
    for entry, slot in zip(row[1:], noise[1:], strict=True):
        if entry.any():
            total += entry * slot
    return total


def tuned_for_hits(
    fit: Fit, tuned: Optimizer, expected: float, batch_size: float, target: float, *, cadence: int = 1,
    growth: float = 0.0, factors: Sequence[float] = RATE_FACTORS, searched: bool = False, progress: Progress | None = None,
) -> FirstHits:  # fmt: skip
    """First hits at the best of a few multiples of the learning rate; every multiple sees the same random numbers.

    ``tuned`` is tuned for the expected loss, which arrives after ``expected`` steps. The best has the smallest ``late``, among those
    with little noise on arrival: the more noise, the later trainings were. With ``searched`` the best has the smallest median, as if
    real trainings had been searched, and SGD is tried somewhat past the edge of stability too, which is that of the curvature at
    the target if it has grown. There a network swings, and predictions are rough; those of momenta and averages are worse than
    that: on digits an average was promised after 36 steps and took 103, and Nesterov with a momentum near 1 after 4 and did not
    arrive.
    """
    rate = next(p for p in parameters(tuned).values() if p.path[-1] == "lr")
    tried = [assign(tuned, rate.path, factor * rate.value) for factor in factors]
    if fit.metric is None:
        sharper = 1.0 if fit.bend is None else max(1.0, float(fit.bend.sharpening(target)))
        most = SEARCHED_EXCESS if searched and isinstance(tuned, SGD) and fit.bend is not None else 1.0
        known = math.inf if fit.tested is None else 0.99 * fit.tested.diverged
        limit = min(most / sharper, known)
        tried = [one for one in tried if excess(fit.spectrum, one, None) <= limit] or [tuned]
    most = int(min(max(LATENESS * expected, FEWEST_SAMPLED_STEPS, cadence), MAX_SAMPLED_STEPS))
    best, loud, worse = None, list[tuple[float, FirstHits]](), 0
    for i, one in enumerate(reversed(tried)):  # the lowest rates take longest, and most of them are not needed
        if progress:
            progress(i, len(tried))
        hit = first_hits(fit, one, batch_size, target, cadence=cadence, growth=growth, most=most)
        share = 0.0 if searched else noise_share(fit, hit)
        if share > MOST_NOISE:
            loud.append((share, hit))
            continue
        given = hit if searched else promised(fit, hit, share)
        order = (given.steps, given.high) if searched else end_of_band(given)
        if best is None or order < best[0]:
            best, worse = (order, given), 0
        else:
            worse += 1
        if worse == ENOUGH_WORSE:
            break
    if best is None:
        share, hit = min(loud, key=lambda one: one[0])
        return promised(fit, hit, share)
    return best[1]


def promised_hits(
    fit: Fit, optimizer: Written, batch_size: float, target: float, schedule: AnySchedule = None, *, cadence: int = 1,
    replicas: int = HIT_REPLICAS, most: int = MAX_SAMPLED_STEPS, seed: int = 0,
) -> FirstHits:  # fmt: skip
    """`first_hits` as `advise` promises them: later by what noise slows, and with the error of the fit in the band."""
    hit = first_hits(
        fit, optimizer, batch_size, target, schedule, cadence=cadence, replicas=replicas, most=most, seed=seed
    )
    return promised(fit, hit, noise_share(fit, hit, schedule), schedule)


def noise_share(fit: Fit, hit: FirstHits, schedule: AnySchedule = None) -> float:
    """The share of noise in the expected loss at the median first hit, at the weights that take the steps; 0 in the metric of Adam.

    It is infinite if no training arrives, or if nothing is predicted.
    """
    if not math.isfinite(hit.steps):
        return math.inf
    if isinstance(fit.metric, AdamMetric):
        return 0.0
    inner = hit.optimizer.inner if isinstance(hit.optimizer, Averaging) else hit.optimizer
    ahead = predict(fit, inner, hit.batch_size, [int(hit.steps)], schedule)
    if not ahead.run.outcome.ok or math.isinf(hit.batch_size):
        return 0.0 if math.isinf(hit.batch_size) else math.inf
    return float(ahead.run.noise[-1] / hit.batch_size / ahead.loss[-1])


def promised(fit: Fit, hit: FirstHits, share: float, schedule: AnySchedule = None) -> FirstHits:
    """The first hits that a fit promises: later by what noise slows, with the error of the fit; the band begins without that."""
    slowed = 1 + SLOWED * share if math.isfinite(share) else 1.0
    early, late = error_of(fit, hit, schedule)
    return replace(hit, hits=np.ceil(slowed * hit.hits), error=(early / slowed, late))


def end_of_band(hit: FirstHits) -> tuple[float, ...]:
    """What is smallest for the setting to recommend: when nine of ten trainings have arrived, with the error of the fit."""
    return hit.late, hit.steps, hit.high


def error_of(fit: Fit, hit: FirstHits, schedule: AnySchedule = None) -> tuple[float, float]:
    """The factors by which the 90% interval of the prediction lets the steps be fewer and more."""
    if not math.isfinite(hit.steps):
        return 1.0, 1.0
    last = int(min(max(LATENESS * LATENESS * hit.steps, FEWEST_SAMPLED_STEPS), MAX_SAMPLED_STEPS))
    ahead = predict(fit, hit.optimizer, hit.batch_size, list(range(last + 1)), schedule)
    if len(ahead.loss) <= last:  # nothing was predicted
        return 0.0, math.inf
    early, usual, late = (_first(curve, hit.target) for curve in (ahead.low, ahead.loss, ahead.high))
    if math.isinf(usual):  # single trainings dip below the target, but their mean does not
        return early / hit.steps if early < hit.steps else 1.0, math.inf
    return early / usual, late / usual


def _first(curve: Array, target: float) -> float:
    below = np.flatnonzero(curve <= target)
    return float(below[0]) if len(below) else math.inf
