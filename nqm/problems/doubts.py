"""Where a mean field may be wrong: rules that it can check on its own moments, each with the error that was measured.

The numbers are from docs/mean-field.md, which compares mean fields with sampled runs. Where nothing is said, errors were within 3%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..engine.mean_field import FieldState, MeanField
from ..optimizers.base import nested, parameters
from ..types import Array

if TYPE_CHECKING:
    from .base import Problem

RATIO = 1.1  # Steps at which a course is watched follow each other in this ratio.
AFFECTED = 0.005  # What averages neglect matters from this part of noise in the loss on.
SHORT_AVERAGES = ((4.0, 0.81, 0.0), (20.0, 0.15, AFFECTED), (70.0, 0.05, AFFECTED))
"""Rows of a number of gradients, the largest error of steady losses if averages hold at most that many, and the part of noise in the
loss from which it is said."""
PHASE = 0.7
"""With beta2 of 0.97 or more losses were off by at most this number times their slope (`WatchedCourse.slope`) over the gradients in
their averages; on a flatter spectrum, where all modes pass through zero together, one was off by three times as much."""
TOLD = 0.02  # An estimated error is said from this size on.
SCATTER = 0.2  # A norm is uncertain if its square scatters by this part of its mean.
NOISY = 0.03  # Remembered signs matter from this part of noise in the loss on.


@dataclass(frozen=True)
class WatchedCourse:
    """How a mean field runs, at a few steps."""

    steps: Array
    loss: Array
    noise: Array
    """The part of the loss that is due to noise."""
    norm: Array
    """The root mean square of the norm of a gradient."""
    scatter: Array
    """Standard deviation over mean of the squared norm of a gradient."""

    @property
    def slope(self) -> Array:
        """By how many times the log of time the log of the loss changes, in size."""
        with np.errstate(all="ignore"):
            return np.abs(np.gradient(np.log(self.loss), np.log(self.steps))) if len(self.steps) > 1 else np.zeros(1)


def watched(problem: Problem, field: MeanField, last: int) -> WatchedCourse:
    """The course of the mean field of one setting up to a last step."""
    steps = np.unique(np.append(np.geomspace(1, last, 2 + int(math.log(last) / math.log(RATIO))).astype(int), last))
    state, now, found = field.start(), 0, []
    with np.errstate(all="ignore"):
        for t in map(int, steps):
            state, now = field.move(state, now, t), t
            signal, _ = problem.summed(field.read(state, t))
            loss = field.losses(state, t)
            found.append((loss, 1 - signal / loss, *norm_of_gradient(field, state)))
    return WatchedCourse(steps, *np.array(found).T)


def norm_of_gradient(field: MeanField, state: FieldState) -> tuple[float, float]:
    """The root mean square of the norm of a gradient, and the standard deviation of its square over its mean.

    On a mode, given its start, a gradient g is normal with mean mu and variance w: E g^2 = mu^2 + w and
    E g^4 = mu^4 + 6 mu^2 w + 3 w^2. Both are averaged over starts.
    """
    mu, w = field.h * state.x[0], field.h**2 * state.N[0, 0] + field.c / field.batch_size
    starts, count = field.starts, field.modes.count
    moments = mu**2 + w, mu**4 + 6 * mu**2 * w + 3 * w**2
    second, fourth = (starts @ moment.reshape(len(starts), -1) for moment in moments)
    mean, variance = count @ second, count @ np.maximum(fourth - second**2, 0.0)
    return math.sqrt(mean), math.sqrt(variance) / mean


def averaged_gradients(field: MeanField, t: Array | float) -> Array:
    """The number of gradients in the shortest average after t steps, for equal weights; infinity without averages.

    Weights w = decay^k for k below t have ``(sum w)^2 / sum w^2 = (1 + decay) / (1 - decay) (1 - decay^t) / (1 + decay^t)``.
    """
    found = np.full(np.shape(t), math.inf)
    for decay in map(float, field.decays()):
        with np.errstate(under="ignore"):
            kept = np.power(decay, t)
        found = np.minimum(found, (1 + decay) / (1 - decay) * (1 - kept) / (1 + kept))
    return found


def short_averages(field: MeanField, course: WatchedCourse, inside: Array) -> str:
    """An average over few gradients is not close to its mean."""
    gradients = float(averaged_gradients(field, math.inf))
    for most, error, affected in SHORT_AVERAGES:
        if gradients <= most and (course.noise[inside] >= affected).any():
            return f"averages over {gradients:.0f} gradients are short: steady losses were up to {error:.0%} off with such averages"
    return ""


def fast_losses(field: MeanField, course: WatchedCourse, inside: Array) -> str:
    """While the loss moves fast, an error in the speed of the weights is a large error in the loss."""
    error = PHASE * course.slope / averaged_gradients(field, course.steps)
    fast = inside & (error > TOLD) & (course.noise > AFFECTED)
    if not fast.any():
        return ""
    most = min(error[fast].max(), 1.0)
    return f"{_when(course.steps[fast])} the loss moves fast while averages hold few gradients, and may be about {most:.0%} off"


def scattered_norms(field: MeanField, course: WatchedCourse, inside: Array) -> str:
    """The norm of a gradient is not close to its mean if few modes carry it; averages remember it."""
    if field.optimizer.elementwise:
        return ""
    inside = course.steps <= course.steps[inside].max() if field.decays() else inside
    known = parameters(field.optimizer)
    clipped = course.norm * (1 + course.scatter) > (known["norm"].value if "norm" in known else 0.0)
    uncertain = inside & clipped & (course.scatter > SCATTER)
    if not uncertain.any():
        return ""
    most = course.scatter[uncertain].max()
    return (
        f"{_when(course.steps[uncertain])} few modes carry the norm of the gradient, whose square scatters by {most:.0%}: "
        "such losses were up to 50% off"
    )


def remembered_signs(field: MeanField, course: WatchedCourse, inside: Array) -> str:
    """Signs of an average over steps resemble each other from step to step, which a mean field neglects."""
    known = parameters(field.optimizer)
    memory = max((float(known[name].value) for name in ("momentum", "beta1") if name in known), default=0.0)
    signs = any(each.assumes_normal for each in nested(field.optimizer))
    if not signs or not memory or not (course.noise[inside] > NOISY).any():
        return ""
    return "signs of averages are taken as independent: steady losses were up to 7% low, and more while the loss falls fast"


def doubts(problem: Problem, field: MeanField, first: int, last: int) -> list[str]:
    """Sentences on where the mean field may be wrong from a first to a last step."""
    course = watched(problem, field, max(last, 1))
    inside = (course.steps >= first / RATIO) & (course.steps <= last * RATIO)
    rules = (short_averages, fast_losses, scattered_norms, remembered_signs)
    return [sentence for rule in rules if (sentence := rule(field, course, inside))]


def _when(steps: Array) -> str:
    if steps[0] == steps[-1]:
        return f"at step {steps[0]:,}"
    return f"between steps {steps[0]:,} and {steps[-1]:,}"
