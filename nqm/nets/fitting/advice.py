"""Advise what to do next with a fitted network: tuned steps to a target, over optimizers and batch sizes.

The model of `following` reaches the target where ``phi(signal) + noise / B <= target``. With the noise that it has at the
target, f(target), and with phi as a straight line near ``goal = phi^-1(target)``, this is

    signal + noise f(target) / phi'(goal) / B <= goal:

again a noisy quadratic, with its noise scaled, so every search of the exact engine applies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import number
from ...engine.spectrum import Spectrum
from ...optimizers import EMA, SGD, HeavyBall, Nesterov
from ...optimizers.base import Optimizer
from ...problems.base import check_batch_size, check_target
from ...problems.quadratic import Quadratic
from ...search import Tuned, optimal_schedule, tune
from ...search.sweeps import Sweep, sweep
from ...types import Array, Progress, Wrong
from ..estimates import Estimate, bootstrap
from .edge import excess
from .hits import FirstHits, tuned_for_hits
from .model import Fit
from .prediction import horizon_of

ADVISED_BATCH_SIZES = (4, 16, 64, 256, 1024, 4096, 16384)
DECAY_PIECES = 5  # number of pieces of the decaying learning rate that is compared with a constant one
CRITICAL_RANGE = 20.0  # the critical batch size is resampled on batch sizes within this factor of it
CRITICAL_RESAMPLES = 40  # number of resamples of the noise vectors for its interval, each with its own sweep
LEAST_SLOPE = 0.1  # smallest slope of phi by which noise is divided; a descent that has nearly stopped has none
SWEPT: tuple[Optimizer, ...] = (SGD(), HeavyBall())
"""Families that are tuned at every batch size."""
TUNED: tuple[Optimizer, ...] = (EMA(SGD()), Nesterov())
"""Families that are tuned only at the batch size asked for."""


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Tabular):
    """Tuned steps to a target at one batch size and over several, and the sentences that follow from them."""

    target: float
    batch_size: float
    reachable: bool
    sentences: tuple[str, ...]
    tuned: tuple[Tuned, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    critical_batch_size: Estimate | None = None
    decay_steps: float | None = None
    hits: tuple[FirstHits | None, ...] = ()

    @property
    def best(self) -> FirstHits | None:
        """First hits of the optimizer whose trainings arrive soonest in the median, or None if none reaches the target."""
        reached = (hit for hit in self.hits if hit is not None and math.isfinite(hit.steps))
        return min(reached, key=lambda hit: hit.steps, default=None)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer to train with, or None if none reaches the target."""
        return self.best and self.best.optimizer

    @property
    def steps(self) -> float | None:
        """The median of its first hits; ``low`` and ``high`` are the ends of the 80% band."""
        return self.best and self.best.steps

    @property
    def low(self) -> float | None:
        return self.best and self.best.low

    @property
    def high(self) -> float | None:
        return self.best and self.best.high

    def _brief(self) -> str:
        best = self.best
        found = self.sentences[0] if best is None else f"{best.optimizer} soonest, in {best.steps:,.0f} steps"
        return f"loss {self.target:g} at batch_size={self.batch_size:,.10g}: {found}"

    def _notes(self) -> tuple[str, ...]:
        return self.sentences

    def table(self) -> list[dict[str, object]]:
        """One row for each optimizer at the batch size asked for: its settings, the median first hit and the 80% band.

        ``expected_steps`` is when the expected loss arrives, at the settings that are best for that.
        """
        rows = []
        for t, hit in zip(self.tuned, self.hits, strict=True):
            steps = hit.steps if hit is not None else math.nan
            rows.append({
                "optimizer": str(t.optimizer if hit is None else hit.optimizer), "steps": steps,
                "low": math.nan if hit is None else hit.low, "high": math.nan if hit is None else hit.high,
                "examples": steps * self.batch_size, "expected_steps": t.steps,
            })  # fmt: skip
        return rows

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as ``--json`` prints them."""
        return {
            "target": self.target, "batch_size": number(self.batch_size), "reachable": self.reachable,
            "sentences": list(self.sentences), "tuned": [t.to_dict() for t in self.tuned],
            "sweeps": [s.to_dict() for s in self.sweeps], "decay_steps": number(self.decay_steps),
            "optimizer": None if self.optimizer is None else str(self.optimizer), "steps": number(self.steps),
            "low": number(self.low), "high": number(self.high),
            "hits": [None if hit is None else hit.to_dict() for hit in self.hits],
            "critical_batch_size": None if self.critical_batch_size is None else self.critical_batch_size.to_dict(),
        }  # fmt: skip


def advise(
    fit: Fit, target: float, batch_size: float, *, batch_sizes: Sequence[float] = ADVISED_BATCH_SIZES,
    progress: Progress | None = None,
) -> Advice:  # fmt: skip
    """Advise how to reach a training loss soonest from a fit's checkpoint: optimizer, learning rate, batch size, decay."""
    target, batch_size = check_target(target), check_batch_size(batch_size)
    if target >= fit.loss:
        raise Wrong(f"target {target:g} is not below the loss at the checkpoint, {fit.loss:.4g}", argument="target")
    found = quadratic_at(fit, target)
    if isinstance(found, str):
        return Advice(target, batch_size, False, (found,))
    problem, goal = found
    sizes = sorted({*batch_sizes, batch_size, 2 * batch_size})
    sweeps, tuned, here = [], [], sizes.index(batch_size)
    for kind in (*SWEPT, *TUNED):
        start = kind
        if kind in SWEPT:
            sweeps.append(sweep(problem, kind, sizes, target=goal))
            start = sweeps[-1].optimizers[here] or kind
        tuned.append(tune(problem, start, batch_size, goal))
        if progress:
            progress(len(tuned), len(SWEPT) + len(TUNED) + 1)
    decay = optimal_schedule(problem, SGD(), batch_size, goal, pieces=DECAY_PIECES) if tuned[0].steps else None
    critical = _critical(fit, target, goal, sweeps[0])
    steps = None if decay is None else float(decay.steps)
    hits = tuple(tuned_for_hits(fit, t.optimizer, t.steps, batch_size, target) if t.steps else None for t in tuned)
    advice = Advice(target, batch_size, True, (), tuple(tuned), tuple(sweeps), critical, steps, hits)
    return replace(advice, sentences=tuple(_sentences(fit, advice)))


def quadratic_at(fit: Fit, target: float) -> tuple[Quadratic, float] | str:
    """The quadratic with its noise as at the target, and its loss there; or a sentence that says why there is none."""
    if fit.bend is None and fit.negative.told:
        return f"{fit.negative.sentence(0.0).partition(',')[0]}, along which a quadratic has no minimum; fit with a descent"
    goal = target if fit.bend is None else fit.bend.inverse(target)
    if goal is not None and goal > fit.offset:
        return _problem(fit, target, goal), goal - fit.offset
    if goal is None and fit.descent is not None:
        ended = f"the descent that was measured, which ended at {fit.descent.loss[-1]:.4g}"
        return f"{target:g} lies beyond {ended}; fit with a longer descent, or fit again at a later checkpoint"
    least = f"{fit.offset:.4g}, the minimum of the quadratic at this checkpoint"
    return f"{target:g} lies below {least}; fit again at a later checkpoint"


def _problem(fit: Fit, target: float, goal: float, spectrum: Spectrum | None = None) -> Quadratic:
    """The quadratic of the fit, or of another spectrum of its network, with its noise as at the target."""
    given = fit.spectrum if spectrum is None else spectrum
    if fit.bend is None:
        return Quadratic(given)
    scale = float(fit.bend.loudness(target)) / max(fit.bend.slope_at(goal), LEAST_SLOPE)
    return Quadratic(Spectrum(given.h, given.c * scale, given.s))


def _critical(fit: Fit, target: float, goal: float, found: Sweep) -> Estimate | None:
    """The batch size at which SGD needs twice the steps of perfect scaling; its interval is from resampled noise vectors."""
    value = found.critical_batch_size("2x")
    if not math.isfinite(value):
        return None
    sizes = found.batch_sizes
    near = np.unique([sizes[0], *sizes[(sizes > value / CRITICAL_RANGE) & (sizes < value * CRITICAL_RANGE)]])
    rows = np.arange(fit.noise.probes)[:, None] == fit.noise.probe

    def critical(noise: Array) -> float:
        problem = _problem(fit, target, goal + fit.offset, fit.spectrum_with(noise))
        return sweep(problem, SGD(), near.tolist(), target=goal).critical_batch_size("2x")

    interval = bootstrap(rows * fit.noise.weight, critical, resamples=CRITICAL_RESAMPLES)
    return Estimate(value, min(interval.low, value), max(interval.high, value))


def _sentences(fit: Fit, advice: Advice) -> list[str]:
    """The advice in words."""
    said, (plain, *others), batch_size, critical = [], advice.tuned, advice.batch_size, advice.critical_batch_size
    if critical is not None:
        said.append(
            f"at batch {batch_size:g} you are at {batch_size / critical.value:.2g} of the critical size {critical.value:.3g} "
            f"({critical.low:.3g} to {critical.high:.3g}) at which SGD needs twice the steps of perfect scaling"
        )
    best = advice.best
    if best is None:
        return [*said, f"no optimizer reaches {advice.target:g} at batch {batch_size:g}: {plain.message}"]
    said.append(f"{best.optimizer} reaches {advice.target:g} soonest: {best.message}")
    if plain.steps:
        for name, t in zip(("heavy ball", "an average", "Nesterov"), others, strict=True):
            said.append(_against(name, t.steps, plain.steps))
        if advice.decay_steps is not None:
            said.append(_against(f"a decaying learning rate ({DECAY_PIECES} pieces)", advice.decay_steps, plain.steps))
        swept = dict(zip(advice.sweeps[0].batch_sizes, advice.sweeps[0].steps, strict=True))
        saved = 100 * (1 - swept[2 * batch_size] / swept[batch_size])
        if np.isfinite(saved):
            said.append(f"doubling the batch saves {saved:.0f}% of SGD's steps")
    reach = float(best.optimizer.effective_lr) * best.steps * float(fit.spectrum.h.max())
    return [*said, "; ".join((horizon_of(fit).sentence(reach), *_edge(fit, best.optimizer)))]


def _edge(fit: Fit, optimizer: Optimizer) -> Iterator[str]:
    """A sentence if the learning rate is past the edge of stability."""
    over = excess(fit.spectrum, optimizer, None)
    if over > 1:
        yield f"its learning rate is {over:.3g} times the largest stable one on the measured curvature"


def _against(name: str, steps: float | None, base: float) -> str:
    """A sentence that compares steps with those of tuned SGD."""
    if not steps:
        return f"{name} does not reach it"
    gain = 1 - steps / base
    if abs(gain) < 0.02:
        return f"{name} takes as many steps as tuned SGD ({base:,.0f})"
    return f"{name} {'saves' if gain > 0 else 'costs'} {100 * abs(gain):.0f}% of SGD's {base:,.0f} steps"
