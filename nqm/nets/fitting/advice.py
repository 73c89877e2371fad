"""What to do next, on one page: tuned steps to a target over batch sizes, on a fitted network.

The bent model of `descent` is linearised at the target: ``loss <= target`` where
``signal + noise / B * target / L(0) <= phi^-1(target)``. That is a noisy quadratic again, with its noise scaled, so every
search of the exact engine applies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from .model import Fit
from .prediction import horizon_of

ADVISED_BATCH_SIZES = (4, 16, 64, 256, 1024, 4096, 16384)
DECAY_PIECES = 5  # pieces of the decaying learning rate that is compared with a constant one
CRITICAL_RANGE = 20.0  # batch sizes within this factor of the critical one decide it
CRITICAL_RESAMPLES = 40  # resamples of the noise vectors for its interval, each with a sweep of its own
SWEPT: tuple[Optimizer, ...] = (SGD(), HeavyBall())
"""Families that are tuned at every batch size."""
TUNED: tuple[Optimizer, ...] = (EMA(SGD()), Nesterov())
"""Families that are tuned at the one batch size asked for."""


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

    def _brief(self) -> str:
        reached = [t for t in self.tuned if t.steps]
        best = min(reached, key=lambda t: t.steps or math.inf, default=None)
        found = self.sentences[0] if best is None else f"{best.optimizer} soonest, in {best.steps:,} steps"
        return f"loss {self.target:g} at batch_size={self.batch_size:,.10g}: {found}"

    def _notes(self) -> tuple[str, ...]:
        return self.sentences

    def table(self) -> list[dict[str, object]]:
        """One row for each optimizer at the batch size asked for."""
        return [
            {"optimizer": str(t.optimizer), "steps": t.steps, "examples": (t.steps or math.nan) * self.batch_size}
            for t in self.tuned
        ]

    def to_dict(self) -> dict[str, object]:
        return {
            "target": self.target, "batch_size": number(self.batch_size), "reachable": self.reachable,
            "sentences": list(self.sentences), "tuned": [t.to_dict() for t in self.tuned],
            "sweeps": [s.to_dict() for s in self.sweeps], "decay_steps": number(self.decay_steps),
            "critical_batch_size": None if self.critical_batch_size is None else self.critical_batch_size.to_dict(),
        }  # fmt: skip


def advise(
    fit: Fit, target: float, batch_size: float, *, batch_sizes: Sequence[float] = ADVISED_BATCH_SIZES,
    progress: Progress | None = None,
) -> Advice:  # fmt: skip
    """How to reach a training loss soonest from the checkpoint of a fit: optimizer, learning rate, batch size, decay."""
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
    said = _sentences(fit, target, batch_size, tuned, sweeps[0], here, critical, steps)
    return Advice(target, batch_size, True, tuple(said), tuple(tuned), tuple(sweeps), critical, steps)


def quadratic_at(fit: Fit, target: float) -> tuple[Quadratic, float] | str:
    """The fit with its noise as it will be at the target, and the loss there that stands for it; or why there is none."""
    goal = target if fit.bend is None else fit.bend.inverse(target)
    if goal is not None and goal > fit.offset:
        return _problem(fit, target), goal - fit.offset
    if goal is None and fit.descent is not None:
        ended = f"the descent that was measured, which ended at {fit.descent.loss[-1]:.4g}"
        return f"{target:g} lies beyond {ended}; fit with a longer descent, or fit again further on"
    least = f"{fit.offset:.4g}, the least loss of the quadratic at this checkpoint"
    return f"{target:g} lies below {least}; fit again further on"


def _problem(fit: Fit, target: float, spectrum: Spectrum | None = None) -> Quadratic:
    """The fit, or another spectrum of its network, with its noise as it will be at the target."""
    given = fit.spectrum if spectrum is None else spectrum
    return Quadratic(given if fit.bend is None else Spectrum(given.h, given.c * target / fit.loss, given.s))


def _critical(fit: Fit, target: float, goal: float, found: Sweep) -> Estimate | None:
    """Where SGD's steps are twice perfect scaling, with an interval: noise vectors drawn anew, each time swept again."""
    value = found.critical_batch_size("2x")
    if not math.isfinite(value):
        return None
    sizes = found.batch_sizes
    near = np.unique([sizes[0], *sizes[(sizes > value / CRITICAL_RANGE) & (sizes < value * CRITICAL_RANGE)]])
    rows = np.arange(fit.noise.probes)[:, None] == fit.noise.probe

    def critical(noise: Array) -> float:
        problem = _problem(fit, target, fit.spectrum_with(noise))
        return sweep(problem, SGD(), near.tolist(), target=goal).critical_batch_size("2x")

    interval = bootstrap(rows * fit.noise.weight, critical, resamples=CRITICAL_RESAMPLES)
    return Estimate(value, min(interval.low, value), max(interval.high, value))


def _sentences(
    fit: Fit, target: float, batch_size: float, tuned: list[Tuned], plain: Sweep, here: int, critical: Estimate | None,
    decay: float | None,
) -> list[str]:  # fmt: skip
    said = []
    if critical is not None:
        said.append(
            f"at batch {batch_size:g} you are at {batch_size / critical.value:.2g} of the critical size {critical.value:.3g} "
            f"({critical.low:.3g} to {critical.high:.3g}) at which SGD needs twice the steps of perfect scaling"
        )
    reached = [t for t in tuned if t.steps]
    if not reached:
        return [*said, f"no optimizer reaches {target:g} at batch {batch_size:g}: {tuned[0].message}"]
    best = min(reached, key=lambda t: t.steps or math.inf)
    said.append(f"{best.optimizer} reaches {target:g} soonest, in {best.steps:,} steps")
    base = tuned[0].steps
    if base:
        for name, t in zip(("heavy ball", "an average", "Nesterov"), tuned[1:], strict=True):
            said.append(_against(name, t.steps, base))
        if decay is not None:
            said.append(_against(f"a decaying learning rate ({DECAY_PIECES} pieces)", decay, base))
        double = plain.steps[int(np.flatnonzero(plain.batch_sizes == 2 * batch_size)[0])]
        if np.isfinite(double) and np.isfinite(plain.steps[here]):
            said.append(f"doubling the batch saves {100 * (1 - double / plain.steps[here]):.0f}% of SGD's steps")
    rate, steps = float(best.optimizer.effective_lr), best.steps or 0
    return [*said, horizon_of(fit).sentence(rate * steps * float(fit.spectrum.h.max()))]


def _against(name: str, steps: float | None, base: float) -> str:
    if not steps:
        return f"{name} does not reach it"
    gain = 1 - steps / base
    if abs(gain) < 0.02:
        return f"{name} takes as many steps as tuned SGD ({base:,.0f})"
    return f"{name} {'saves' if gain > 0 else 'costs'} {100 * abs(gain):.0f}% of SGD's {base:,.0f} steps"
