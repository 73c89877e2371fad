"""When an optimizer reaches a target, over batch sizes: by the expected loss, and by first hits, each with tuned settings.

The model of `following` reaches the target where ``phi(signal) + noise / B <= target``. With the noise that it has at the
target, f(target), and with phi as a straight line near ``goal = phi^-1(target)``, this is

    signal + noise f(target) / phi'(goal) / B <= goal:

again a noisy quadratic, with its noise scaled, so every search of the exact engine applies. Adam and AdamW are not linear, and
the search over their learning rate follows each of them step by step (`adaptive`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...engine.schedule import linear
from ...engine.spectrum import Spectrum
from ...optimizers import free
from ...optimizers.base import Averaging, Optimizer, fill, free_parameters, parameters
from ...problems.quadratic import Quadratic
from ...search.sweeps import Sweep, excess_at, sweep
from ...types import Array, Progress, Wrong, part_of
from ..estimates import Estimate
from .edge import KNOWN_EXCESS
from .following import followed
from .hits import BAND, MAX_SAMPLED_STEPS, RATE_FACTORS, FirstHits, quantile_of, tuned_for_hits
from .stepwise import in_metric, run_in_metric

if TYPE_CHECKING:
    from .model import Fit

LEAST_SLOPE = 0.1  # smallest slope of phi by which noise is divided; a descent that has nearly stopped has none
RATE_RATIOS = (2.0, 1.4, 1.2)  # a learning rate of Adam is tried this many times larger and smaller, in turn
FARTHEST_RATE = 8.0
"""A learning rate of Adam is tried up to this multiple of the one it has in the fit, and down to its inverse. Predictions were
checked at a third to three times that rate; at 45 times, on digits, trainings arrived in a fifth of the steps."""
OTHER_STARTS = (0.5, 0.25, 0.125, 2.0, 4.0, 8.0)
"""Multiples of the fit's learning rate from which the search starts in turn, if trainings do not arrive at the first one."""
FARTHEST_LOSS = 1.2
"""Weights that are averaged may have this multiple of the checkpoint's loss. Chosen on digits after 100 steps at batch size 8: an EMA
took 1.1 to 1.25 times the promised steps at 1.2, 1.6 times at 1.5, and never arrived at 2.5."""
USUAL_RATE = 0.5  # learning rate x largest curvature from which the search starts if the optimizer of the fit has none
NEAR_POINTS = 12  # number of steps, evenly spaced in log, at which weights that are averaged must be near
LOWEST_RATE = 64.0  # the search for a rate that keeps weights near ends at the tuned rate over this
RATE_HALVINGS = 4  # halvings of an octave in the search for the largest rate that keeps weights near; 4 give 4%
DECAYED_FACTORS = (1.0, 1.5, 2.2)  # multiples of the best constant learning rate of Adam that are tried with decay
CRITICAL_EXCESS = 2.0  # steps over perfect scaling at the critical batch size
LATE = f"its expected loss does not arrive within {MAX_SAMPLED_STEPS:,} steps at any learning rate that was tried"
HIT_RESAMPLES = 200  # number of resamples of the sampled trainings for the interval of a critical batch size


@dataclass(frozen=True, eq=False)
class Arrivals:
    """One family over batch sizes: when its expected loss arrives, and when its trainings first hit the target.

    ``expected`` is tuned for the expected loss. ``hits`` are tuned for the median first hit; None at a batch size at which the
    expected loss does not arrive.
    """

    expected: Sweep
    hits: tuple[FirstHits | None, ...]

    @property
    def family(self) -> Optimizer:
        return self.expected.family

    @cached_property
    def first(self) -> Sweep:
        """The sweep by first hits: medians, at the settings that are tuned for them."""
        arrived = [hit if hit is not None and math.isfinite(hit.steps) else None for hit in self.hits]
        steps = np.array([math.nan if hit is None else hit.steps for hit in arrived])
        chosen = tuple(None if hit is None else hit.optimizer for hit in arrived)
        rates = [math.nan if one is None else float(_rate(one)) for one in chosen]
        effective = [math.nan if one is None else float(one.effective_lr) for one in chosen]
        return replace(
            self.expected, steps=steps, examples=steps * self.expected.batch_sizes, optimizers=chosen, lr=np.array(rates),
            effective_lr=np.array(effective), method="sampled", added=(), found_bend=None,
        )  # fmt: skip

    def critical_by_hits(self) -> Estimate | None:
        """The batch size at which median first hits take twice the steps of perfect scaling; None if there is none.

        Its 90% interval comes from resampling the sampled trainings, and holds no error of the model.
        """
        value = self.first.critical_batch_size("2x")
        known = [(hit, size) for hit, size in zip(self.hits, self.expected.batch_sizes, strict=True) if hit is not None]
        if not math.isfinite(value) or not known:
            return None
        rng, sizes, found = np.random.default_rng(0xC817), np.array([size for _, size in known]), list[float]()
        for _ in range(HIT_RESAMPLES):
            drawn = [rng.choice(hit.hits, len(hit.hits)) for hit, _ in known]
            steps = np.array([quantile_of(one, BAND[1]) for one in drawn])
            steps = np.where(np.isfinite(steps), steps, np.nan)
            found.append(float(excess_at(sizes, steps * sizes, CRITICAL_EXCESS)))
        low, high = np.nanquantile(found, (0.05, 0.95))
        return Estimate(value, min(float(low), value), max(float(high), value))

    def table(self) -> list[dict[str, object]]:
        """A row for each batch size: settings, median first hit, examples, and when the expected loss arrives.

        ``low`` and ``high`` are the band of four of five trainings, with the error of the fit if that was asked for.
        """
        rows = []
        for i, (hit, size) in enumerate(zip(self.hits, self.expected.batch_sizes.tolist(), strict=True)):
            steps = math.nan if hit is None else hit.steps
            shown = self.family if hit is None else hit.optimizer
            rows.append({
                "batch_size": size, "optimizer": str(shown), "steps": steps, "low": math.nan if hit is None else hit.early,
                "high": math.nan if hit is None else hit.late, "examples": steps * size,
                "expected_steps": float(self.expected.steps[i]),
            })  # fmt: skip
        return rows


def arrivals_of(
    fit: Fit, family: Optimizer, batch_sizes: Sequence[float], target: float, *, cadence: int = 1,
    growth: float = 0.0, searched: bool = False, progress: Progress | None = None,
) -> Arrivals:  # fmt: skip
    """When a family, whose free parameters are tuned, reaches a target that the fit supports (`quadratic_at`).

    ``cadence`` and ``growth`` are as in `first_hits`, and ``searched`` as in `tuned_for_hits`. Progress is reported for every
    batch size and every learning rate that is tried there.
    """
    parts = 1 + len(batch_sizes)
    expected = _expected(fit, family, batch_sizes, target, part_of(progress, 0, parts))
    factors = RATE_FACTORS if _rate_name(family) in free_parameters(family) else (1.0,)
    if isinstance(family, Averaging):
        factors = tuple(factor for factor in factors if factor <= 1)  # its rate is as large as it may be
    hits = list[FirstHits | None]()
    for tuned, steps, size in zip(expected.optimizers, expected.steps, expected.batch_sizes, strict=True):
        found, show = None, part_of(progress, 1 + len(hits), parts)
        if tuned is not None:
            one, looked = _tamed(tuned, family, float(steps)), {"cadence": cadence, "growth": growth}
            found = tuned_for_hits(
                fit, one, float(steps), float(size), target, **looked, factors=factors, searched=searched, progress=show
            )  # fmt: skip
        hits.append(found)
        if show:
            show(1, 1)
    return Arrivals(expected, tuple(hits))


def _tamed(tuned: Optimizer, family: Optimizer, steps: float) -> Optimizer:
    """The tuned optimizer with momenta that average no more gradients than there are steps.

    On a quadratic a momentum of 0.99999 is best for a target that is reached in a few steps; a training that goes on with it swings.
    """
    free = {name for name in free_parameters(family) if parameters(tuned)[name].path[-1] == "momentum"}
    most = 1 - 1 / max(steps, 2.0)
    return fill(tuned, {name: most for name in free if float(parameters(tuned)[name].value) > most})


def quadratic_at(fit: Fit, target: float) -> tuple[Quadratic, float] | str:
    """The quadratic with its noise as at the target, and its loss there; or a sentence that says why there is none."""
    if fit.bend is None and fit.negative.told:
        return f"{fit.negative.sentence(0.0).partition(',')[0]}, along which a quadratic has no minimum; fit with a descent"
    goal = target if fit.bend is None else fit.bend.inverse(target)
    if goal is not None and goal > fit.offset:
        return problem_at(fit, target, goal), goal - fit.offset
    if goal is None and fit.descent is not None:
        ended = f"the descent that was measured, which ended at {fit.descent.loss[-1]:.4g}"
        return f"{target:g} lies beyond {ended}; fit with a longer descent, or fit again at a later checkpoint"
    least = f"{fit.offset:.4g}, the minimum of the quadratic at this checkpoint"
    return f"{target:g} lies below {least}; fit again at a later checkpoint"


def problem_at(fit: Fit, target: float, goal: float, spectrum: Spectrum | None = None) -> Quadratic:
    """The quadratic of the fit, or of another spectrum of its network, with its noise as at the target.

    The noise lies along the curvatures at the target, kappa h, whose edge of stability limits learning rates too; the signal along
    those at the checkpoint, because phi has been measured with them.
    """
    given = fit.spectrum if spectrum is None else spectrum
    if fit.bend is None:
        return Quadratic(given)
    scale = float(fit.bend.loudness(target)) / max(fit.bend.slope_at(goal), LEAST_SLOPE)
    quiet, loud = given.s > 0, given.c > 0
    h = np.concatenate([given.h[quiet], float(fit.bend.sharpening(target)) * given.h[loud]])
    c = np.concatenate([np.zeros(quiet.sum()), given.c[loud] * scale])
    return Quadratic(Spectrum(h, c, np.concatenate([given.s[quiet], np.zeros(loud.sum())])))


def _expected(
    fit: Fit, family: Optimizer, batch_sizes: Sequence[float], target: float, progress: Progress | None
) -> Sweep:
    """Tuned steps until the expected loss arrives."""
    if in_metric(family):
        return _adaptive_sweep(fit, family, batch_sizes, target, progress)
    found = quadratic_at(fit, target)
    if isinstance(found, str):
        raise Wrong(found, argument="target")
    problem, goal = found
    swept = sweep(problem, family, list(batch_sizes), target=goal, progress=progress)
    return _kept_near(fit, problem, swept) if isinstance(family, Averaging) and fit.bend is not None else swept


def _kept_near(fit: Fit, problem: Quadratic, swept: Sweep) -> Sweep:
    """The sweep of an average with learning rates at which the weights that it averages stay near the checkpoint.

    On a quadratic an average removes any noise, so that the best rate is the largest stable one, however far noise then carries
    the weights. A network is another one there.
    """
    name, changed = _rate_name(swept.family), list[Sweep]()
    for i, (tuned, steps) in enumerate(zip(swept.optimizers, swept.steps, strict=True)):
        size, one = float(swept.batch_sizes[i]), swept.family
        if tuned is not None and name in free_parameters(one) and not _near(fit, tuned, size, int(steps)):
            rate = _largest_near(fit, tuned, name, size, int(steps))
            one = fill(one, {name: rate})
            changed.append(sweep(problem, one, [size], swept.target, most_added=0))
    if not changed:
        return swept
    columns = {k: np.array(getattr(swept, k), float) for k in ("steps", "examples", "lr", "effective_lr")}
    chosen, messages = list(swept.optimizers), list(swept.messages)
    for one in changed:
        i = int(np.flatnonzero(swept.batch_sizes == one.batch_sizes[0])[0])
        for k, column in columns.items():
            column[i] = getattr(one, k)[0]
        chosen[i], messages[i] = one.optimizers[0], one.messages[0]
    return replace(swept, **columns, optimizers=tuple(chosen), messages=tuple(messages), added=(), found_bend=None)


def _near(fit: Fit, average: Optimizer, size: float, steps: int) -> bool:
    """Whether the expected loss of the weights that are averaged stays below `FARTHEST_LOSS` of the checkpoint's."""
    assert isinstance(average, Averaging)
    assert fit.bend is not None
    times = np.unique(np.geomspace(1, max(steps, 1), NEAR_POINTS).astype(int))
    signal, noise, _ = followed(fit.bend, fit.spectrum, average.inner, size, times)
    return bool(np.max(signal + noise / size) <= FARTHEST_LOSS * fit.loss)


def _largest_near(fit: Fit, tuned: Optimizer, name: str, size: float, steps: int) -> float:
    """The largest learning rate below the tuned one that keeps the weights near, to a few percent."""
    high = float(_rate(tuned))
    low = high
    while low > high / LOWEST_RATE and not _near(fit, fill(tuned, {name: low}), size, int(steps * high / low)):
        low /= 2
    above = 2 * low
    for _ in range(RATE_HALVINGS):
        middle = math.sqrt(low * above)
        near = _near(fit, fill(tuned, {name: middle}), size, int(steps * high / middle))
        low, above = (middle, above) if near else (low, middle)
    return float(f"{low:.4g}")


def _adaptive_sweep(
    fit: Fit, family: Optimizer, batch_sizes: Sequence[float], target: float, progress: Progress | None
) -> Sweep:
    """The sweep of Adam or AdamW, whose learning rate alone is tuned; the search at a batch size starts from the last one's."""
    assert fit.metric is not None
    sizes, name = np.array(batch_sizes, float), _rate_name(family)
    tunable = name in free_parameters(family)
    if others := [other for other in free_parameters(family) if other != name]:
        raise Wrong(f"only the learning rate of {family} is tuned; set {', '.join(others)}", argument="optimizer")
    usual = _usual_rate(fit) if tunable else float(_rate(family))
    steps, chosen, rate = list[float](), list[Optimizer | None](), usual
    for size in sizes:
        found, rate_here = _best_rate(fit, family, name, float(size), target, rate, usual if tunable else None)
        steps.append(found)
        chosen.append(fill(family, {name: rate_here}) if math.isfinite(found) else None)
        rate = rate_here if math.isfinite(found) else rate
        if progress:
            progress(len(steps), len(sizes))
    T = np.array(steps)
    rates = np.array([math.nan if one is None else float(_rate(one)) for one in chosen])
    ends = [1 / FARTHEST_RATE * RATE_RATIOS[-1], FARTHEST_RATE / RATE_RATIOS[-1]]
    bounds = tuple(("lr",) if tunable and not ends[0] <= one / usual <= ends[1] else () for one in rates)
    messages = tuple("" if math.isfinite(one) else LATE for one in T)
    return Sweep(
        family=family, target=target, batch_sizes=sizes, steps=T, examples=T * sizes, optimizers=tuple(chosen), lr=rates,
        effective_lr=rates, at_bound=bounds, messages=messages, smallest_steps=math.nan,
        spectrum=None, method="mean field",
    )  # fmt: skip


def _best_rate(
    fit: Fit, family: Optimizer, name: str, size: float, target: float, start: float, usual: float | None
) -> tuple[float, float]:
    """The fewest steps until the expected loss arrives, NaN if it does not, and the learning rate; no search if ``usual`` is None."""

    def arrival(rate: float, most: float) -> float:
        run = run_in_metric(fit, fill(family, {name: rate}), size)
        while run.t < most:
            run.step()
            loss = run.loss
            if loss <= target:
                return float(run.t)
            if not loss < math.inf or run.over > KNOWN_EXCESS:
                break
        return math.inf

    best, rate = arrival(start, MAX_SAMPLED_STEPS), start
    for factor in OTHER_STARTS if usual is not None else ():  # a start that does not arrive shows no direction
        if math.isfinite(best) or usual is None:
            break
        best, rate = arrival(factor * usual, MAX_SAMPLED_STEPS), factor * usual
    for ratio in RATE_RATIOS if usual is not None else ():
        for factor in (ratio, 1 / ratio):
            while usual is not None and 1 / FARTHEST_RATE <= rate * factor / usual <= FARTHEST_RATE:
                found = arrival(rate * factor, min(best - 1, MAX_SAMPLED_STEPS))
                if not found < best:
                    break
                best, rate = found, rate * factor
    return (best if math.isfinite(best) else math.nan), float(f"{rate:.4g}")


def decayed_steps(fit: Fit, tuned: Optimizer | None, expected: float, size: float, target: float) -> float | None:
    """The fewest steps after which Adam's expected loss arrives if the learning rate decays to zero on a straight line.

    ``tuned`` is the setting whose expected loss arrives after ``expected`` steps at a constant rate. A few multiples of its rate
    are tried. None if no run of at most ``expected`` steps arrives.
    """
    if tuned is None:
        return None
    name, rate = _rate_name(tuned), float(_rate(tuned))
    tried = [fill(tuned, {name: factor * rate}) for factor in DECAYED_FACTORS]

    def arrives(steps: int) -> bool:
        last = np.array([steps])
        return any(run_in_metric(fit, one, size, linear(steps)).course(last).loss[0] <= target for one in tried)

    low, high = 0, int(expected)
    if not arrives(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if arrives(middle) else (middle, high)
    return float(high)


def _usual_rate(fit: Fit) -> float:
    """The learning rate from which the search starts: that of the fit's optimizer, or one at a quarter of the edge of stability."""
    assert fit.metric is not None
    held = fit.metric.optimizer.lr
    return USUAL_RATE / float(fit.spectrum.h.max()) if held is free else float(held)


def _rate_name(optimizer: Optimizer) -> str:
    return next(name for name, p in parameters(optimizer).items() if p.path[-1] == "lr")


def _rate(optimizer: Optimizer) -> float | Array:
    return parameters(optimizer)[_rate_name(optimizer)].value
