"""What a forecast takes for granted of its logs: how rates become effective ones, and the batch size that noise refers to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..optimizers import Optimizer
from ..types import Wrong
from .law import RateMetric
from .log import Log

ADAPTIVE = (
    "adam", "adan", "lion", "adafactor", "lamb", "lars", "rmsprop", "adagrad", "shampoo", "soap", "muon", "sign", "normalis",
    "normaliz", "sophia", "prodigy",
)  # fmt: skip
"""Parts of the names of optimizers whose updates have a size of their own."""

NOT_ADAPTIVE = ("sgd", "heavyball", "heavy_ball", "heavy ball", "momentum", "nesterov", "gradient descent")
"""Parts of the names of optimizers whose updates are proportional to gradients."""

RISE = 0.02  # A loss that ends this share above its lowest has risen. Rates that rise again raise a loss by less.


def metric_of(logs: Sequence[Log]) -> tuple[RateMetric, tuple[str, ...]]:
    """How the learning rates of these logs become effective ones, with what had to be assumed."""
    kinds = {adaptive(log.optimizer) for log in logs if log.optimizer is not None}
    if len(kinds) > 1:
        raise Wrong(
            "the logs are of optimizers of two kinds, such as SGD and Adam; forecast each by itself", argument="logs"
        )
    if kinds == {False}:
        return RateMetric("plain"), unknown_names(logs)
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
    """A sentence on a log whose loss ends well above its lowest; medians of tenths of its points are compared."""
    parts = [
        (log.step[g[-1]], float(np.median(log.loss[g]))) for g in np.array_split(np.arange(log.step.size), 10) if g.size
    ]
    lowest, last = min(parts, key=lambda part: part[1]), parts[-1]
    if log.step.size < 2 * len(parts) or last[1] <= (1 + RISE) * lowest[1]:
        return None
    what = f"The loss of {log.name or 'a log'!r} rises from {lowest[1]:.4g} by step {lowest[0]:,} to {last[1]:.4g} at its end"
    return f"{what}: the law knows neither overfitting nor divergence. Omit this log, or cut it before the loss rises."


def adaptive(optimizer: Optimizer | str | None) -> bool:
    """Whether an optimizer's updates have a size of their own, by its name."""
    name = (optimizer if isinstance(optimizer, str) else type(optimizer).__name__).lower()
    return any(each in name for each in ADAPTIVE)


def unknown_names(logs: Sequence[Log]) -> tuple[str, ...]:
    """Sentences on optimizers that are known by a name alone, and whose name says nothing."""
    names = sorted({log.optimizer for log in logs if isinstance(log.optimizer, str)})
    return tuple(
        f"{name!r} is not an optimizer that is known here: its updates are taken as proportional to gradients, as those of SGD. "
        "If they have a size of their own, say AdamW instead."
        for name in names
        if not any(each in name.lower() for each in NOT_ADAPTIVE)
    )


def reference_of(logs: Sequence[Log]) -> tuple[float | None, tuple[str, ...]]:
    """The batch size to which the noise of the law refers: the geometric mean of those of the logs."""
    known = [float(np.exp(np.mean(np.log(log.batch_size)))) for log in logs if log.batch_size is not None]
    if known and len(known) < len(logs):
        return None, (
            f"{len(logs) - len(known)} of {len(logs)} logs have no batch size, so it is left out of account.",
        )
    return (float(np.exp(np.mean(np.log(known)))) if known else None), ()
