"""Advise what to do next with a fitted network: tuned steps to a target, over optimizers and batch sizes, and how sure they are.

`arrivals` has the tuned steps of each family, by the expected loss and by first hits. The band of a recommendation holds the
scatter of trainings and the error of the fit: if the 90% interval of the prediction lets the expected loss arrive between the
steps a and b instead of at c, the 80% band of first hits, from l to u, becomes l a / c to u b / c. The setting to take is the one
whose band ends first, and not the one with the smallest median: among many settings the smallest median is one that noise, or an
error of the fit, has made too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import number
from ...optimizers import EMA, SGD, HeavyBall, Nesterov
from ...optimizers.base import Optimizer, Written
from ...problems.base import check_batch_size, check_target
from ...sampling.replicas import check_whole
from ...search import optimal_schedule
from ...search.sweeps import Sweep, sweep
from ...types import Array, Progress, Wrong, part_of
from ..estimates import Estimate, bootstrap
from ..natural import as_trained
from .arrivals import FARTHEST_RATE, Arrivals, arrivals_of, decayed_steps, problem_at, quadratic_at
from .hits import FirstHits, end_of_band, require_ahead, steps_or_more
from .prediction import predict
from .stepwise import check_metric, family_in_metric, in_metric

if TYPE_CHECKING:
    from .model import Fit

ADVISED_BATCH_SIZES = (4, 16, 64, 256, 1024, 4096, 16384)
ADVISED_FAMILIES: tuple[Optimizer, ...] = (SGD(), HeavyBall(), Nesterov(), EMA(SGD()))
"""Families that are compared if no optimizer is asked for; the first is the one that the others are compared with."""
DECAY_PIECES = 5  # number of pieces of the decaying learning rate that is compared with a constant one
CRITICAL_RANGE = 20.0  # the critical batch size is resampled on batch sizes within this factor of it
CRITICAL_RESAMPLES = 40  # number of resamples of the noise vectors for its interval, each with its own sweep
SAME_STEPS = 0.02  # a smaller difference in steps, as a fraction, is called none


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Tabular):
    """Tuned steps to a target for several families over batch sizes, and the sentences that follow from them.

    ``critical_batch_size`` is that of the first family by its expected loss, ``critical_by_hits`` that by its first hits.
    ``seconds_per_step`` has the seconds of a step by batch size, if they are known. ``decay_steps`` are the steps until the
    expected loss of the first family arrives with a decaying learning rate.
    """

    target: float
    batch_size: float
    reachable: bool
    sentences: tuple[str, ...]
    arrivals: tuple[Arrivals, ...] = ()
    critical_batch_size: Estimate | None = None
    critical_by_hits: Estimate | None = None
    decay_steps: float | None = None
    seconds_per_step: Mapping[float, float] = field(default_factory=dict)

    @property
    def hits(self) -> tuple[FirstHits | None, ...]:
        """First hits of each family at the batch size asked for."""
        return tuple(one.hits[self._here(one)] for one in self.arrivals)

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """When the expected loss of each family arrives, over batch sizes."""
        return tuple(one.expected for one in self.arrivals)

    @property
    def best(self) -> FirstHits | None:
        """First hits of the optimizer whose band ends first, or None if none reaches the target."""
        reached = (hit for hit in self.hits if hit is not None and math.isfinite(hit.steps))
        return min(reached, key=end_of_band, default=None)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer to train with, or None if none reaches the target."""
        return self.best and self.best.optimizer

    @property
    def steps(self) -> float | None:
        """The median of its first hits."""
        return self.best and self.best.steps

    @property
    def low(self) -> float | None:
        """The first end of the band in which four of five trainings arrive, with the error of the fit."""
        return self.best and self.best.early

    @property
    def high(self) -> float | None:
        """The last end of that band; infinite if the error of the fit is too large to tell."""
        return self.best and self.best.late

    def _here(self, one: Arrivals) -> int:
        return int(np.flatnonzero(one.expected.batch_sizes == self.batch_size)[0])

    def _brief(self) -> str:
        best = self.best
        found = self.sentences[0] if best is None else f"{best.optimizer} soonest, in {best.steps:,.0f} steps"
        return f"loss {self.target:g} at batch_size={self.batch_size:,.10g}: {found}"

    def _notes(self) -> tuple[str, ...]:
        return self.sentences

    def table(self) -> list[dict[str, object]]:
        """One row for each family and batch size: its settings, the median first hit, examples and seconds.

        ``low`` and ``high`` are the band in which four of five trainings arrive, with the error of the fit.

        ``expected_steps`` is when the expected loss arrives, at the settings that are best for that.
        """
        rows = [row for one in self.arrivals for row in one.table()]
        for row in rows if self.seconds_per_step else ():
            row["seconds"] = float(row["steps"]) * self.seconds_per_step.get(float(row["batch_size"]), math.nan)  # type: ignore[arg-type]
        return rows

    def alternatives(self) -> list[dict[str, object]]:
        """The rows of the table at the batch size asked for, one for each family."""
        return [row for row in self.table() if row["batch_size"] == self.batch_size]

    def soonest(self) -> list[dict[str, object]]:
        """The rows of the table whose band ends first, one for each batch size."""
        found: dict[object, dict[str, object]] = {}
        for row in self.table():
            known = found.get(row["batch_size"])
            if known is None or _order(row) < _order(known):
                found[row["batch_size"]] = row
        return list(found.values())

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as ``--json`` prints them."""
        plain = [{k: number(v) if isinstance(v, float) else v for k, v in row.items()} for row in self.table()]
        criticals = {"critical_batch_size": self.critical_batch_size, "critical_by_hits": self.critical_by_hits}
        return {
            "target": self.target, "batch_size": number(self.batch_size), "reachable": self.reachable,
            "sentences": list(self.sentences), "optimizer": None if self.optimizer is None else str(self.optimizer),
            "steps": number(self.steps), "low": number(self.low), "high": number(self.high), "table": plain,
            "decay_steps": number(self.decay_steps), **{k: v and v.to_dict() for k, v in criticals.items()},
        }  # fmt: skip


def advise(
    fit: Fit, batch_size: float, target: float, optimizer: Written | None = None, *,
    batch_sizes: Sequence[float] = ADVISED_BATCH_SIZES, cadence: int = 1,
    seconds_per_step: float | Mapping[float, float] | None = None, progress: Progress | None = None,
) -> Advice:  # fmt: skip
    """Advise how to reach a training loss soonest from a fit's checkpoint: optimizer, learning rate, batch size, decay.

    Parameters
    ----------
    optimizer : the family to tune, such as ``SGD()`` or ``HeavyBall(momentum=0.9)``. If omitted, SGD, heavy ball, Nesterov and
        an average of SGD are compared; on a fit in the metric of Adam or AdamW, the optimizer of the fit.
    batch_sizes : at which the steps are found, beside ``batch_size`` and twice that; those above the number of examples are omitted.
    cadence : a training's loss is looked at every so many steps.
    seconds_per_step : the seconds of a step at any batch size, or by batch size; between these, on straight lines.
    progress : called with (done, total) for every learning rate that is tried; only the ratio of the two means anything. Ctrl-C
        ends the search without an answer.
    """
    target, batch_size = check_target(target), check_batch_size(batch_size)
    check_whole("cadence", cadence, 1)
    require_ahead(fit, target)
    own = family_in_metric(fit) if optimizer is None else as_trained(optimizer)
    families = ADVISED_FAMILIES if own is None else (own,)
    for family in families:
        check_metric(fit, family)
    found = quadratic_at(fit, target)
    if isinstance(found, str):
        return Advice(target, batch_size, False, (found,))
    asked = (float(size) for size in batch_sizes if size <= fit.examples)
    sizes, arrivals = sorted({*asked, batch_size, 2 * batch_size}), list[Arrivals]()
    parts = [part_of(progress, i, len(families) + 2) for i in range(len(families) + 2)]
    for family, show in zip(families, parts, strict=False):
        arrivals.append(arrivals_of(fit, family, sizes, target, cadence=cadence, progress=show))
    advice = Advice(
        target, batch_size, True, (), tuple(arrivals), critical_by_hits=arrivals[0].critical_by_hits(),
        seconds_per_step=_seconds(seconds_per_step, sizes),
    )  # fmt: skip
    if fit.metric is None:
        problem, goal = found
        plain = arrivals[0].expected.steps[sizes.index(batch_size)]
        critical = _critical(fit, target, goal, arrivals[0].expected, parts[-2])
        decayed = isinstance(families[0], SGD) and math.isfinite(plain)
        decay = optimal_schedule(problem, SGD(), batch_size, goal, pieces=DECAY_PIECES) if decayed else None
        advice = replace(advice, critical_batch_size=critical, decay_steps=decay and float(decay.steps))
    else:
        value, tuned = arrivals[0].expected.critical_batch_size("2x"), arrivals[0].expected
        told = Estimate(value, math.nan, math.nan) if math.isfinite(value) else None
        here = sizes.index(batch_size)
        decay = decayed_steps(fit, tuned.optimizers[here], float(tuned.steps[here]), batch_size, target)
        advice = replace(advice, critical_batch_size=told, decay_steps=decay)
    if parts[-1]:
        parts[-1](1, 1)
    return replace(advice, sentences=tuple(_sentences(fit, advice)))


def _seconds(given: float | Mapping[float, float] | None, sizes: Sequence[float]) -> dict[float, float]:
    """The seconds of a step at each batch size."""
    if given is None:
        return {}
    known = dict(given) if isinstance(given, Mapping) else {1.0: given}
    if not known or not all(0 < value < math.inf for value in known.values()):
        raise Wrong(f"seconds_per_step must be positive numbers, got {given!r}", argument="seconds_per_step")
    at = sorted(known)
    if len(at) == 1:
        return dict.fromkeys(sizes, known[at[0]])
    found = np.interp(sizes, at, [known[size] for size in at])
    slope = (known[at[-1]] - known[at[-2]]) / (at[-1] - at[-2])
    beyond = known[at[-1]] + np.maximum(slope, 0.0) * (np.array(sizes) - at[-1])
    return dict(zip(sizes, np.where(np.array(sizes) > at[-1], beyond, found).tolist(), strict=True))


def _critical(fit: Fit, target: float, goal: float, found: Sweep, progress: Progress | None) -> Estimate | None:
    """The batch size at which a family needs twice the steps of perfect scaling; its interval is from resampled noise vectors."""
    value = found.critical_batch_size("2x")
    if not math.isfinite(value):
        return None
    # Where the sweep added batch sizes to find it, resampled ones are read as well as it is.
    sizes = np.unique([*found.batch_sizes, *(point.batch_size for point in found.added if point.steps is not None)])
    near = np.unique([sizes[0], *sizes[(sizes > value / CRITICAL_RANGE) & (sizes < value * CRITICAL_RANGE)]])
    rows, resample = np.arange(fit.noise.probes)[:, None] == fit.noise.probe, count()

    def critical(noise: Array) -> float:
        if progress:
            progress(next(resample), CRITICAL_RESAMPLES + 1)
        problem = problem_at(fit, target, goal + fit.offset, fit.spectrum_with(noise))
        return sweep(problem, found.family, near.tolist(), goal, most_added=0).critical_batch_size()

    interval = bootstrap(rows * fit.noise.weight, critical, resamples=CRITICAL_RESAMPLES)
    return Estimate(value, min(interval.low, value), max(interval.high, value))


def _sentences(fit: Fit, advice: Advice) -> Iterator[str]:
    """The advice in words, the recommendation first."""
    best, plain, B = advice.best, advice.arrivals[0], advice.batch_size
    if best is None:
        why = next((m for m in plain.expected.messages if m), "its trainings stay above it")
        yield f"no optimizer reaches {advice.target:g} at batch {B:g}: {why}"
        yield from _about_critical(advice)
        return
    yield f"{best.optimizer} reaches {advice.target:g} soonest: {best.message}"
    sooner = min((hit for hit in advice.hits if hit is not None), key=lambda hit: hit.steps)
    if sooner.steps < best.steps:
        risk = f"but one training in ten may take {steps_or_more(sooner.late, sooner.most)} or more"
        yield f"{sooner.optimizer} is promised after {sooner.steps:,.0f}, {risk}, and that is later"
    if advice.seconds_per_step:
        each = advice.seconds_per_step[B]
        quickest = min(advice.soonest(), key=lambda row: _known(row["seconds"]))
        yield (
            f"at {each:.3g} s per step this takes {best.steps * each:.3g} s; of these batch sizes the quickest is "
            f"{quickest['batch_size']:g}, with {_known(quickest['seconds']):.3g} s"
        )
    yield from _about_critical(advice)
    yield from _savings(advice)
    if sure := _how_sure(fit, advice, best):
        yield sure


def _order(row: Mapping[str, object]) -> tuple[float, float]:
    """What is smallest for the row to take: the end of its band, then its median; a row that does not arrive is last."""
    return _known(row["high"]), _known(row["steps"])


def _known(value: object) -> float:
    """A number, or infinity if it is not known."""
    return float(value) if isinstance(value, float) and math.isfinite(value) else math.inf


def _about_critical(advice: Advice) -> Iterator[str]:
    critical, family, B = advice.critical_batch_size, advice.arrivals[0].family, advice.batch_size
    name = type(family).__name__
    if critical is not None:
        yield (
            f"at batch {B:g} you are at {B / critical.value:.2g} of the critical size {critical.value:.3g}{_between(critical)}, at "
            f"which the expected loss of {name} needs twice the steps of perfect scaling"
        )
    if advice.critical_by_hits is not None:
        hits = advice.critical_by_hits
        yield f"by first hits the critical size is {hits.value:.3g}{_between(hits)}"


def _between(estimate: Estimate) -> str:
    return f" ({estimate.low:.3g} to {estimate.high:.3g})" if math.isfinite(estimate.low) else ""


def _savings(advice: Advice) -> Iterator[str]:
    """What other optimizers, decay and a larger batch would save of the steps of the first family."""
    (plain, *others), hits = advice.arrivals, advice.hits
    here, name, base = advice._here(plain), type(plain.family).__name__, hits[0]
    if base is None or not math.isfinite(base.steps):
        return
    names = {HeavyBall: "heavy ball", Nesterov: "Nesterov", EMA: "an average"}
    for one, hit in zip(others, hits[1:], strict=True):
        yield _against(names.get(type(one.family), str(one.family)), hit and hit.steps, base.steps, name)
    expected = float(plain.expected.steps[here])
    if advice.decay_steps is not None and math.isfinite(expected):
        course = f"{DECAY_PIECES} pieces" if not in_metric(plain.family) else "a straight line to zero"
        what = f"by expected loss, a decaying learning rate ({course})"
        yield _against(what, advice.decay_steps, expected, name)
    sizes, steps = plain.first.batch_sizes, plain.first.steps
    saved = 100 * (1 - float(steps[sizes == 2 * advice.batch_size][0]) / base.steps)
    if math.isfinite(saved):
        yield f"doubling the batch saves {saved:.0f}% of the steps of {name}"


def _against(name: str, steps: float | None, base: float, plain: str) -> str:
    """A sentence that compares steps with those of the tuned first family."""
    if not steps or not math.isfinite(steps):
        return f"{name} does not reach it"
    gain = 1 - steps / base
    if abs(gain) < SAME_STEPS:
        return f"{name} takes as many steps as tuned {plain} ({base:,.0f})"
    return f"{name} {'saves' if gain > 0 else 'costs'} {100 * abs(gain):.0f}% of the {base:,.0f} steps of {plain}"


def _how_sure(fit: Fit, advice: Advice, best: FirstHits) -> str:
    """What the interval of the steps rests on."""
    said = list(predict(fit, best.optimizer, best.batch_size, [0, math.ceil(best.steps)]).reasons)
    mine = next(one for one, hit in zip(advice.arrivals, advice.hits, strict=True) if hit is best)
    if fit.metric is not None and "lr" in mine.expected.at_bound[advice._here(mine)]:
        said.append(
            f"its learning rate is at the end of what is tried, {FARTHEST_RATE:g} times that of the fit or an {FARTHEST_RATE:g}th"
        )
    return "; ".join(said)
