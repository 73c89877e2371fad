"""What a forecast takes for granted of its logs: how rates become effective ones, and the batch size that noise refers to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..types import Wrong
from .columns import of_validation
from .kinds import OTHER, adaptive
from .law import RateMetric
from .log import Log
from .noise import noise_of

RISE_DEVIATIONS = 4.0  # A rise that noise gives is smaller: of 1,000 sound logs with noise, none rises by so much.
MEDIAN_DEVIATION = 1.2533  # The standard deviation of a median of n normal numbers, times sqrt(n).
EQUAL_LOSSES = 1e-9  # Losses of a log that differ by this share of the largest or less are equal.
RISE = 0.02  # A loss that ends this share above its lowest has risen. Rates that rise again raise a loss by less.


def mixed_losses(logs: Sequence[Log]) -> tuple[str, ...]:
    """A sentence on logs of which some have training losses and some validation losses."""
    named = [log for log in logs if log.column]
    validation = [log for log in named if of_validation(log.column)]
    if len(validation) in (0, len(named)):
        return ()
    training = next(log for log in named if not of_validation(log.column))
    first = validation[0]
    return (
        f"{first.name!r} has validation losses ({first.column!r}) and {training.name!r} training losses ({training.column!r}), "
        f"which the law takes for one loss: read the same column of all logs.",
    )


def without_copies(logs: Sequence[Log]) -> tuple[tuple[Log, ...], tuple[str, ...]]:
    """The logs, each once, and a sentence on each copy: two runs never have equal losses at all of their steps.

    A log whose losses are all equal is refused.
    """
    kept: list[Log] = []
    said = []
    for log in logs:
        if log.step.size > 1 and np.ptp(log.loss) <= EQUAL_LOSSES * np.abs(log.loss).max():
            equal = f"log {log.name!r} has {log.step.size:,} equal losses of {log.loss[0]:g}"
            raise Wrong(f"{equal}: they decide nothing; omit it", argument="logs")
        same = [k for k in kept if np.array_equal(k.step, log.step) and np.array_equal(k.loss, log.loss)]
        if not same:
            kept.append(log)
            continue
        first, points = same[0], f"all {log.step.size:,} losses of {log.name!r} are those of {same[0].name!r}"
        settings = {"learning rates": lambda one: one.rates, "batch sizes": lambda one: one.batch_size}
        for what, setting in settings.items():
            if not np.array_equal(setting(first), setting(log)):
                raise Wrong(f"{points}, but their {what} differ: omit the one that is a copy", argument="logs")
        said.append(f"{points[0].upper()}{points[1:]}: it is a copy, and counts once.")
    return tuple(kept), tuple(said)


def metric_of(logs: Sequence[Log]) -> tuple[RateMetric, tuple[str, ...]]:
    """How the learning rates of these logs become effective ones, with what had to be assumed."""
    kinds = {adaptive(log.optimizer) for log in logs if log.optimizer is not None}
    if len(kinds) > 1:
        raise Wrong(
            "the logs are of optimizers of two kinds, such as SGD and Adam; forecast each by itself", argument="logs"
        )
    if kinds == {False}:
        return RateMetric("plain"), other_names(logs)
    decays = {log.weight_decay for log in logs}
    if len(decays) > 1:
        known = ", ".join(sorted("unknown" if d is None else f"{d:g}" for d in decays))
        raise Wrong(f"the logs have different weight decays ({known}); forecast each by itself", argument="logs")
    decay = decays.pop()
    said = () if kinds else ("No optimizer is known: AdamW is assumed. Say optimizer= if it is another.",)
    if decay is None:
        held = "the weight norm is taken at its steady state, an effective rate of lr / sqrt(peak)"
        advice = (
            "Say weight_decay= (--weight-decay) if you know it: published runs were then forecast with half the error"
        )
        return RateMetric("half"), (*said, f"No weight decay is known: {held}. {advice}, and intervals are narrower.")
    return RateMetric("norm", float(decay)), said


def rising(log: Log) -> str | None:
    """A sentence on a log whose loss ends well above its lowest; medians of tenths of its points are compared.

    A rise that the noise of single batches makes is none: of ten medians the lowest lies below the others by chance.
    """
    parts = [g for g in np.array_split(np.arange(log.step.size), 10) if g.size]
    medians = [float(np.median(log.loss[g])) for g in parts]
    lowest = int(np.argmin(medians))
    noise = noise_of(np.log(log.loss)) if log.loss.min() > 0 else 0.0
    chance = RISE_DEVIATIONS * MEDIAN_DEVIATION * noise * math.sqrt(1 / parts[lowest].size + 1 / parts[-1].size)
    if log.step.size < 2 * len(parts) or medians[-1] <= (1 + max(RISE, chance)) * medians[lowest]:
        return None
    step = log.step[parts[lowest][-1]]
    what = f"The loss of {log.name or 'a log'!r} rises from {medians[lowest]:.4g} by step {step:,} to {medians[-1]:.4g} at its end"
    return f"{what}: the law knows neither overfitting nor divergence. Omit this log, or cut it before the loss rises."


def other_names(logs: Sequence[Log]) -> tuple[str, ...]:
    """The sentence on an optimizer that the caller calls ``other``."""
    if all(not isinstance(log.optimizer, str) or log.optimizer.strip().lower() != OTHER for log in logs):
        return ()
    return (
        "The optimizer is another one: its updates are taken as proportional to gradients, as those of SGD. If they have a size of "
        "their own, say AdamW instead.",
    )


def reference_of(logs: Sequence[Log]) -> tuple[float | None, tuple[str, ...]]:
    """The batch size to which the noise of the law refers: the geometric mean of those of the logs."""
    known = [float(np.exp(np.mean(np.log(log.batch_size)))) for log in logs if log.batch_size is not None]
    if known and len(known) < len(logs):
        return None, (
            f"{len(logs) - len(known)} of {len(logs)} logs have no batch size, so it is left out of account.",
        )
    return (float(np.exp(np.mean(np.log(known)))) if known else None), ()
