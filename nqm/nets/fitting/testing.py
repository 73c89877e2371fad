"""The test that a fit makes of itself: a few short real trainings, and how far its predictions were from them.

Two learning rates and two batch sizes of SGD are trained for a few dozen steps and predicted. How far a prediction may be off
grows with how far it is from the checkpoint: with m(t) = |log(signal(t) / L(0))| + noise(t) / (B L(t)) + |log kappa(L(t))|, where
kappa is the growth of the largest curvature (`descent`), the errors of all points give one number, the ``spread``

    sigma^2 = mean of (log predicted - log real)^2 / (m + M0)^2

and the 90% interval of any prediction is ``L(t) exp(+- WIDTH sqrt(sigma^2 + LEAST^2) (m(t) + M0))``. WIDTH and LEAST were
chosen on five networks, and hold on others: docs/nets.md has the coverage of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.run import numbers
from ...optimizers import SGD
from ...types import Array, Progress, part_of

if TYPE_CHECKING:
    from ..network import Network
    from .model import Fit
    from .prediction import Prediction

TEST_RATES = (0.15, 0.6)  # learning rates of the test, as multiples of 1 / largest curvature
TEST_BATCH_SIZES = (16, 256)  # batch sizes of the test; at most a quarter of the examples
TEST_STEPS = (3, 12, 48)  # steps at which predictions and trainings are compared
TEST_SEEDS = (6, 2)  # trainings with each batch size; small batches are cheap, and their losses scatter more
TEST_SEED = 10**6  # added to the seed of a fit, so that checks with the same seed see other batches
REST = 0.05  # M0: what is added to the motion m, because predictions near the checkpoint are not exact either
WIDTH = 1.2  # half the width of a 90% interval in units of the spread
LEAST_SPREAD = 0.03  # added to the spread of a test in squares, because twelve points may agree by luck
METRIC_WIDTH = 1.75
"""What the width of intervals of Adam and AdamW is multiplied by, because the test trains SGD in their metric and does not see v
drift. Chosen on digits and both Fashion networks, where intervals then hold 90% of 144 real losses; docs/nets.md has a fourth."""
PAST_WIDTH = 0.6
"""What half the width of an interval gains, in log loss, where a prediction goes e times as far as the descent. Chosen on the 144
real losses past the end of a descent in docs/checks/prediction.csv, of which intervals then hold 93%; without it they held half."""
UNTESTED_SPREAD = 0.3  # spread of a fit without a test; the largest of six tested networks had 0.48, the median 0.1


@dataclass(frozen=True, eq=False)
class Tested:
    """What the test found: one entry for each setting and step."""

    reach: Array  # learning rate x steps x largest curvature
    motion: Array  # m, how far the prediction is from the checkpoint
    predicted: Array
    trained: Array

    @property
    def errors(self) -> Array:
        """Predicted / real loss - 1."""
        return self.predicted / self.trained - 1

    @property
    def spread(self) -> float:
        """sigma: root mean square of the errors in log loss, per unit of motion, where no training diverged; infinite if all did."""
        fine = np.isfinite(self.trained)
        if not fine.any():
            return math.inf
        off = np.log(self.predicted[fine] / self.trained[fine]) / (self.motion[fine] + REST)
        return float(np.sqrt(np.mean(off**2)))

    @property
    def diverged(self) -> float:
        """The smallest learning rate of SGD over its largest stable one at which the test diverged; infinite if it did not."""
        rates = self.reach / np.resize(TEST_STEPS, len(self.reach))
        return float(np.min(rates, where=~np.isfinite(self.trained), initial=math.inf)) / 2

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tested:
        """The test in the note of a file, where a number that is not finite is null."""
        names = ("reach", "motion", "predicted", "trained")
        return cls(*(np.array([np.inf if x is None else x for x in data[name]], float) for name in names))

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as in files and ``--json``."""
        return {name: numbers(column) for name, column in vars(self).items()}


def motion(fit: Fit, prediction: Prediction) -> Array:
    """m: how far each predicted loss is from the checkpoint, by its signal, by its noise and by its largest curvature."""
    run = prediction.run
    loss = np.maximum(run.loss, 1e-300)
    share = np.maximum(run.noise / run.batch_size / loss, 0.0)
    sharper = 1.0 if fit.bend is None else fit.bend.sharpening(loss)
    return np.abs(np.log(np.maximum(run.signal, 1e-300) / fit.loss)) + share + np.abs(np.log(sharper))


def half_width(fit: Fit, prediction: Prediction) -> Array:
    """Half the width of the 90% interval of the logarithm of each predicted loss."""
    spread = UNTESTED_SPREAD if fit.tested is None else fit.tested.spread
    width = WIDTH if fit.metric is None else METRIC_WIDTH * WIDTH
    return width * math.hypot(spread, LEAST_SPREAD) * (motion(fit, prediction) + REST)


def past_descent(fit: Fit, prediction: Prediction) -> Array:
    """How many times as far as the descent of the fit each predicted loss goes, in learning rate x steps; 1 within the descent."""
    end = 0.0 if fit.descent is None else fit.descent.reach * float(fit.spectrum.h.max())
    return np.maximum(prediction.reach / end, 1.0) if end > 0 else np.ones_like(prediction.reach)


def interval(fit: Fit, prediction: Prediction, factor: float = 1.0) -> tuple[Array, Array]:
    """The ends of the 90% interval of each predicted loss, which allows for an error by ``factor`` besides.

    An end that is larger than any number is infinite.
    """
    half = np.hypot(half_width(fit, prediction), math.log(factor) + PAST_WIDTH * np.log(past_descent(fit, prediction)))
    with np.errstate(over="ignore"):
        return prediction.loss * np.exp(-half), prediction.loss * np.exp(half)


def with_test(network: Network, fit: Fit, *, seed: int = 0, progress: Progress | None = None) -> Fit:
    """The fit with the result of its test."""
    from ..training.loop import train

    top, most = float(fit.spectrum.h.max()), max(network.examples // 4, 1)
    sizes = [(min(size, most), seeds) for size, seeds in zip(TEST_BATCH_SIZES, TEST_SEEDS, strict=True)]
    settings = [(SGD(rate / top), *size) for rate in TEST_RATES for size in sizes]
    rows, steps = [], list(TEST_STEPS)
    for i, (optimizer, size, seeds) in enumerate(settings):
        show = part_of(progress, i, len(settings))
        real = train(network, optimizer, size, steps, seeds=seeds, seed=TEST_SEED + seed, progress=show)
        ahead = fit.predict(optimizer, size, steps)
        rows.append((ahead.reach, motion(fit, ahead), ahead.loss, real.loss))
    return replace(fit, tested=Tested(*(np.concatenate(column) for column in zip(*rows, strict=True))))
