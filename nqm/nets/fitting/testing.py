"""The test that a fit makes of itself: a few short real trainings, and how far its predictions were from them.

Two learning rates and two batch sizes of SGD, or of K-FAC in its metric, are trained for a few dozen steps and predicted. The error
in log loss of a prediction has two sources, and each grows with how far it has moved the training:

    s(t) = |log(signal(t) / L(0))| k(t),        d(t) = (max n + sum n |change of log signal|) k(t),        k = 1 + |log kappa(L(t))|,

where n is the share of noise in the loss at each step until t, and kappa the growth of the largest curvature (`descent`). The sum
is how far the loss has come under that noise. The standard deviation of the error is taken as

    sqrt((A s)^2 + (N d)^2 + FLOOR^2),

and the 90% interval of a prediction is ``L(t) exp(+- WIDTH sqrt(...))``. A and N belong to the network. They start from what
networks have in general (`USUAL`) and are corrected by the test: a normal likelihood of its errors, in which three steps of one
training count as one observation, times log-normal priors; A and N are the geometric means of the posterior. docs/nets.md has the
coverage on each of the networks on which this was chosen or checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...engine.run import numbers
from ...optimizers import SGD
from ...optimizers.base import Optimizer
from ...types import Array, Progress, part_of
from .kfac_metric import KFACMetric

if TYPE_CHECKING:
    from ..network import Network
    from .model import Fit
    from .prediction import Prediction

TEST_RATES = (0.15, 0.6)  # learning rates of the test, as multiples of 1 / largest curvature
TEST_BATCH_SIZES = (16, 256)  # batch sizes of the test; at most a quarter of the examples
TEST_STEPS = (3, 12, 48)  # steps at which predictions and trainings are compared
TEST_SEEDS = (6, 2)  # trainings with each batch size; small batches are cheap, and their losses scatter more
TEST_SEED = 10**6  # added to the seed of a fit, so that checks with the same seed see other batches


class Spread(NamedTuple):
    """A and N: the error in log loss per unit of s, how far the signal has come, and of d, how far noise has disturbed it."""

    signal: float
    noise: float


USUAL = Spread(0.01, 0.25)
"""Medians of A and N before the test. The real losses of seventeen fits, up to 1,000 steps, have A up to 0.025 and N of 0.05 to
0.26."""
DOUBT = Spread(1.0, 0.5)  # standard deviations of their logarithms before the test
UNTESTED = Spread(0.1, 0.75)  # A and N of a fit without a test: larger than those of any of the seventeen fits
LIMITLESS = Spread(1e6, 1e6)
"""A and N where all trainings of the test diverged: once a training has moved, any loss is possible."""
FLOOR = 1e-3  # standard deviation of the error in log loss of a prediction that has not moved
WIDTH = 2.2
"""Half the width of a 90% interval in standard deviations. It is more than 1.64 because the errors of one network have heavier tails
than a normal distribution, and because A and N are uncertain."""
METRIC_WIDTH = 1.4
"""What the width of intervals of Adam and AdamW is multiplied by, because the test trains SGD in their metric and does not see v
drift. Chosen on the 192 real losses of four workloads in docs/checks/adamw.csv, of which intervals then hold 91%. For K-FAC it is the
same: of the 441 real losses of five networks in docs/checks/kfac.csv intervals then hold 95%, and 92% without it; on the worst
network they hold 74% and 67%."""
PAST_WIDTH = 0.25
"""What half the width of an interval gains, in log loss, where a prediction goes e times as far as the descent. Chosen on the 144
real losses past the end of a descent at rates below 0.74 of the edge in docs/checks/prediction.csv, of which they then hold 91%."""
GRID = 121  # values of A, and of N, on which the posterior is summed
GRID_REACH = 8.0
"""The grid covers this many standard deviations of the priors on both sides, so that a test that failed badly can say so: A goes
from 3e-6 to 30, and N from 0.005 to 14."""


@dataclass(frozen=True, eq=False)
class Tested:
    """What the test found: one entry for each setting and step."""

    reach: Array  # learning rate x steps x largest curvature
    signal: Array  # s, how far the signal has come
    noise: Array  # d, how far noise has disturbed it
    predicted: Array
    trained: Array
    stderr: Array  # standard error of the trained loss

    @property
    def errors(self) -> Array:
        """Predicted / real loss - 1."""
        return self.predicted / self.trained - 1

    @property
    def rates(self) -> Array:
        """The learning rates over the largest stable one of SGD."""
        return self.reach / np.resize(TEST_STEPS, len(self.reach)) / 2

    @property
    def spread(self) -> Spread:
        """A and N after the test, from the learning rates at which no training diverged; the others are refused."""
        fine = self.rates < self.diverged * (1 - 1e-9)
        if not fine.any():
            return LIMITLESS
        error, chance = np.log(self.predicted[fine] / self.trained[fine]), self.stderr[fine] / self.trained[fine]
        steps = np.linspace(-GRID_REACH, GRID_REACH, GRID)
        A, N = (usual * np.exp(doubt * steps) for usual, doubt in zip(USUAL, DOUBT, strict=True))
        moved = (A[:, None, None] * self.signal[fine]) ** 2 + (N[:, None] * self.noise[fine]) ** 2
        variance = moved + FLOOR**2 + chance**2
        likelihood = -0.5 * (np.log(variance) + error**2 / variance).sum(-1) / len(TEST_STEPS)
        score = likelihood - 0.5 * (steps[:, None] ** 2 + steps**2)
        weight = np.exp(score - score.max())
        weight /= weight.sum()
        return Spread(*(float(np.exp(w @ np.log(x))) for w, x in ((weight.sum(1), A), (weight.sum(0), N))))

    @property
    def diverged(self) -> float:
        """The smallest learning rate of SGD over its largest stable one at which the test diverged; infinite if it did not."""
        return float(np.min(self.rates, where=~np.isfinite(self.trained), initial=math.inf))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tested:
        """The test in the note of a file, where a number that is not finite is null.

        Files of earlier versions have one ``motion`` in place of s and d, which is taken as s, and no standard errors.
        """
        nothing = [0.0] * len(data["trained"])
        given = {"signal": data.get("motion"), "noise": nothing, "stderr": nothing, **data}
        names = (field.name for field in fields(cls))
        return cls(*(np.array([np.inf if x is None else x for x in given[name]], float) for name in names))

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as in files and ``--json``."""
        return {name: numbers(column) for name, column in vars(self).items()}


def motion(fit: Fit, prediction: Prediction) -> tuple[Array, Array]:
    """s and d: how far each predicted loss is from the checkpoint by its signal, and how far noise has disturbed it."""
    run = prediction.run
    signal = np.abs(np.log(np.maximum(run.signal, 1e-300) / fit.loss))
    growth = np.ones(1) if fit.bend is None else fit.bend.sharpening(np.maximum(run.loss, 1e-300))
    changed = 1 + np.abs(np.log(growth))
    return signal * changed, prediction.disturbance * changed


def half_width(fit: Fit, prediction: Prediction) -> Array:
    """Half the width of the 90% interval of the logarithm of each predicted loss."""
    if not fit.loss > 0:  # an interval is a factor of a positive loss
        return np.full(len(prediction.loss), np.nan)
    A, N = UNTESTED if fit.tested is None else fit.tested.spread
    signal, noise = motion(fit, prediction)
    width = WIDTH if fit.metric is None else METRIC_WIDTH * WIDTH
    return width * np.sqrt((A * signal) ** 2 + (N * noise) ** 2 + FLOOR**2)


def disturbance(signal: Array, noise: Array) -> Array:
    """d without its kappa, from the loss without noise and what noise adds to it at steps 0, 1, ... of one training.

    >>> disturbance(np.array([2.0, 1.0, 0.5]), np.array([0.0, 1.0, 0.5])).round(3).tolist()
    [0.0, 0.5, 0.847]
    """
    clean = np.maximum(signal, 1e-300)
    share = np.maximum(noise, 0) / np.maximum(signal + noise, 1e-300)
    came = np.cumsum(share[:-1] * np.abs(np.diff(np.log(clean))))
    return np.maximum.accumulate(share) + np.append(0.0, came)


def past_descent(fit: Fit, prediction: Prediction) -> Array:
    """How many times as far as the descent of the fit each predicted loss goes, in learning rate x steps; 1 within the descent."""
    end = 0.0 if fit.descent is None else fit.descent.reach * float(fit.spectrum.h.max())
    return np.maximum(prediction.reach / end, 1.0) if end > 0 else np.ones_like(prediction.reach)


def interval(fit: Fit, prediction: Prediction, factor: float | Array = 1.0) -> tuple[Array, Array]:
    """The ends of the 90% interval of each predicted loss, which allows for an error by ``factor`` besides.

    An end that is larger than any number is infinite.
    """
    half = np.hypot(half_width(fit, prediction), np.log(factor) + PAST_WIDTH * np.log(past_descent(fit, prediction)))
    with np.errstate(over="ignore"):
        return prediction.loss * np.exp(-half), prediction.loss * np.exp(half)


def _tested(fit: Fit, lr: float) -> Optimizer:
    """The optimizer that the test trains at this rate."""
    return replace(fit.metric.optimizer, lr=lr) if isinstance(fit.metric, KFACMetric) else SGD(lr)


def with_test(network: Network, fit: Fit, *, seed: int = 0, progress: Progress | None = None) -> Fit:
    """The fit with the result of its test."""
    from ..training.loop import train

    top, most = float(fit.spectrum.h.max()), max(network.examples // 4, 1)
    sizes = [(min(size, most), seeds) for size, seeds in zip(TEST_BATCH_SIZES, TEST_SEEDS, strict=True)]
    settings = [(_tested(fit, rate / top), *size) for rate in TEST_RATES for size in sizes]
    rows, steps = [], list(TEST_STEPS)
    for i, (optimizer, size, seeds) in enumerate(settings):
        show = part_of(progress, i, len(settings))
        real = train(network, optimizer, size, steps, seeds=seeds, seed=TEST_SEED + seed, progress=show)
        ahead = replace(fit, tested=None).predict(optimizer, size, steps)
        chance = np.zeros(len(steps)) if real.stderr is None else real.stderr
        if len(ahead.loss) == len(steps):  # a refused prediction has one loss
            rows.append((ahead.reach, *motion(fit, ahead), ahead.loss, real.loss, chance))
    if not rows:
        return fit
    return replace(fit, tested=Tested(*(np.concatenate(column) for column in zip(*rows, strict=True))))
