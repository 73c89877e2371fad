"""How the loss and the noise of a real network depart from its quadratic, measured by one descent on full gradients.

Beyond learning rate x steps x curvature = 10 or so, the curvature and the noise of a network change with its loss, while a
fixed quadratic does not change. This departure depends mostly on how far the training has come, and hardly on the optimizer.
So it is measured once, along some hundred full gradients, for every optimizer, learning rate and batch size. With q(k)
the loss of the quadratic, L(k) that of the network and C(k) the covariance of its gradients after k steps of the descent,

    phi(q(k)) = L(k),        f(L(k)) = tr C(k) / tr C(0)        and        kappa(L(k)) = h_max(k) / h_max(0):

the corrected ("bent") loss of the quadratic, the gradient noise at a loss, and the largest curvature at a loss, which rises by a
factor of two and more on some networks and falls on others. `following` predicts with all three.

The descent is heavy ball with lr = 1 / largest curvature and momentum 1/2. It travels twice as far as gradient descent in the
same steps, and stays stable until the curvature is three times the measured one (gradient descent: twice). Where curvature grows
its learning rate falls (`brake`). A braked descent that has not come far enough in its steps takes more, with a larger momentum
(`carried`). Its rate rises in its first steps. So it measures how the loss departs while the largest
curvatures decay, which is where most of the loss of a fresh network goes, and it does not oscillate along them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...engine.kernels.given import BendPieces, ByLoss
from ...engine.schedule import Schedule
from ...optimizers import HeavyBall
from ...problems.base import report_steps
from ...types import Array, Progress

if TYPE_CHECKING:
    from scipy.interpolate import PchipInterpolator, PPoly
    from torch import Tensor

    from ...problems.quadratic import Quadratic
    from ..network import Network

DESCENT_POINTS = 40  # number of steps, evenly spaced in log, at which the loss of a descent is computed
DESCENT_MOMENTUM = 0.5
RISING_STEPS = 20  # number of first steps of a descent in which its learning rate rises by equal factors
FIRST_RATE = 1 / 30  # share of the learning rate of a descent with which it begins
SWINGING_STEPS = 10
"""A descent of an earlier version began at its full learning rate. The first point of its phi comes after this many steps, in which
oscillations along the largest curvatures decay to 3%, as momentum^(step / 2)."""
IDENTITY_SHARE = 0.3  # phi of such a descent is the identity for this share of the way to its first point
BRAKED = 1.5
"""Largest curvature, over that at the checkpoint, up to which a descent keeps its learning rate; from then on the rate falls as the
curvature rises. At three times it would be unstable, and between two measurements curvature may still grow by a factor of two."""
MOST_MOMENTUM = 0.9
"""Largest momentum in the steps that a descent takes because it was braked. They travel as far as unbraked ones until curvature has
grown by a factor of 7.5. In the first steps of a fresh ReLU network, whose curvature grows fourfold while the loss falls by half, so
much momentum made predictions 23% off after 300 steps, in the median, instead of 2.5%."""
LONGEST = 6
"""A descent whose rate was braked takes at most this many times the steps that it would take otherwise, so that it ends. On a Fashion
MLP whose curvature grows by factors of 6 to 12 it takes 1.6 to 1.9 times as many, and 4.1 times at momentum 1/2."""
PATIENCE_STEPS, PATIENCE_SHARE = 10, 0.25
"""A descent ends after this many steps without a new minimum of the loss, or this share of all steps if that is more."""
SLOWING = 0.6
"""Noise adds h x^2 / 2 to the loss, so it pulls weights back from where curvature is larger. Along the descent this part of the loss
grows as the trace of the curvature, and that as a power of the largest curvature: 0.66, 0.53, 0.5 and 0.76 on four networks, in the
mean 0.6."""
LEAST_KEPT = 0.25  # least share of its gradient that the signal keeps; networks descend even where noise would stop it
PULL = 0.1
"""Share of the way that curvature goes in a step to that of the present loss. All at once, the noise of a fresh ResNet8, whose
curvature grows by a factor of 48 while its loss falls by a quarter, made its predicted loss swing between 1.6 and 5."""
NOISELESS = 1e-5  # A noise scale below this is rounding: the gradients of all examples are equal.
NOISE_EVERY = 5
"""Gradient noise and the largest curvature are measured at one in so many of the points at which the loss is computed, and at each
point of the steps that a braked descent adds, because those travel up to five times as far."""
NOISE_EXAMPLES = (
    512  # number of examples whose gradients are squared for that, and whose largest curvature is measured there
)
SHARP_STEPS = 6  # Lanczos steps of a round that finds the largest curvature; few, because each keeps a vector in memory
FIRST_ROUNDS, NEXT_ROUNDS = 3, 2
"""Rounds of Lanczos, each from the vector that the round before found: at the checkpoint, where the first one starts from the
gradient, and at later points."""


@dataclass(frozen=True, eq=False)
class Descent:
    """The loss of a network along heavy ball on full gradients, at those steps where it has a new minimum."""

    lr: float
    momentum: float
    steps: Array
    loss: Array
    noise: Array | None = (
        None  # tr C over that at the checkpoint, NaN at steps where it was not measured; None if nowhere
    )
    rising: int = 0  # number of first steps in which the learning rate rose; 0 in files of earlier versions
    sharpness: Array | None = None  # largest curvature over that at the checkpoint, NaN or None like the noise
    hastened: int = 0  # step from which on the momentum is raised if the rate is braked; 0, for none, in earlier files

    @property
    def optimizer(self) -> HeavyBall:
        """The optimizer of the descent."""
        return HeavyBall(self.lr, self.momentum)

    @property
    def schedule(self) -> Schedule | None:
        """The multipliers of learning rate and momentum: the rate rises at first, and is braked where curvature has grown."""
        if not self.rising:
            return None
        last = max(int(self.steps[-1]), 1)
        brakes, momenta = np.ones(last), np.ones(last)
        for t, growth in zip(self.steps, [1.0] if self.sharpness is None else self.sharpness, strict=False):
            if growth > 0:
                brakes[int(t) :] = brake(float(growth))
                if self.hastened:
                    momenta[max(int(t), self.hastened) :] = carried(float(growth), self.momentum) / self.momentum
        return Schedule(np.ones(last, int), rising_rate(self.rising).multipliers("lr", last) * brakes, momenta)

    @property
    def reach(self) -> float:
        """Effective learning rate, summed over the steps."""
        full, schedule = int(self.steps[-1]), self.schedule
        if schedule is None:
            return float(self.optimizer.effective_lr * full)
        momenta = self.momentum * schedule.multipliers("momentum", full)
        return float(np.sum(self.lr * schedule.multipliers("lr", full) / (1 - momenta)))


def rising_rate(steps: int) -> Schedule:
    """A learning rate that rises from `FIRST_RATE` of itself by equal factors in the first steps.

    >>> rising_rate(2).multipliers("lr", 4).round(3).tolist()
    [0.033, 0.183, 1.0, 1.0]
    """
    return Schedule(np.ones(steps + 1, int), FIRST_RATE ** (1 - np.arange(steps + 1) / steps))


def steps_to(reach: float) -> int:
    """The number of steps in which a descent comes to this learning rate x steps x largest curvature; its rate rises in the first."""
    slow = RISING_STEPS - float(rising_rate(RISING_STEPS).multipliers("lr", RISING_STEPS).sum())
    return max(RISING_STEPS, math.ceil(reach * (1 - DESCENT_MOMENTUM) + slow))


def brake(growth: float) -> float:
    """What the learning rate of a descent is multiplied by, from the step on at which curvature is found to have grown so much.

    >>> brake(1.2), brake(3.0)
    (1.0, 0.5)
    """
    return min(1.0, BRAKED / growth)


def carried(growth: float, momentum: float) -> float:
    """The momentum with which a braked descent travels as far in a step as before, but at most `MOST_MOMENTUM`.

    >>> [round(carried(growth, 0.5), 6) for growth in (1.2, 3.0, 30.0)]
    [0.5, 0.75, 0.9]
    """
    return max(momentum, min(MOST_MOMENTUM, 1 - (1 - momentum) * brake(growth)))


def paced(lr: float, growth: float, hastened: bool) -> HeavyBall:
    """The optimizer of a descent where curvature has grown so much, and in the steps after its usual ones if ``hastened``."""
    return HeavyBall(lr * brake(growth), carried(growth, DESCENT_MOMENTUM) if hastened else DESCENT_MOMENTUM)


def descend(
    network: Network, lr: float, steps: int, progress: Progress | None = None, curvature: str | None = None,
    reach: float = 0.0, braked: bool = True, watch: Callable[[Tensor, float], object] | None = None,
) -> Descent:  # fmt: skip
    """Follow full gradients; the descent ends early if the loss stops falling, as in an unstable region, or on Ctrl-C.

    It takes so many ``steps``, and up to `LONGEST` times as many, with a larger momentum, if a rate that was braked has not come to
    this ``reach`` by then. If it is not to be ``braked``, the largest curvature is not measured either. ``watch`` is called with
    weights and loss at the points at which noise is measured, the checkpoint first.
    """
    from ...sampling.stepping import Stepper
    from ..training.loop import Unknown
    from .budget import give_back

    give_back()
    usual, noisy = HeavyBall(lr, DESCENT_MOMENTUM), total_noise(network)
    sharp = Sharpness(network, curvature) if braked else None
    stepper = Stepper(usual, usual.begin(network.theta, Unknown()), math.inf, rising_rate(RISING_STEPS))
    kept, losses, noise, sharpness, growth = [0], [network.full_loss()], [1.0], [1.0], 1.0
    watch = watch or (lambda theta, loss: None)
    watch(network.theta, losses[0])

    def found() -> Descent:
        columns = {"steps": kept, "loss": losses, "noise": noise} | ({"sharpness": sharpness} if braked else {})
        arrays = {k: np.array(v) for k, v in columns.items()}
        return Descent(lr, DESCENT_MOMENTUM, rising=RISING_STEPS, hastened=steps, **arrays)

    def gradient(theta: Tensor, _: float) -> Tensor:
        if progress:
            progress(min(stepper.t + 1, steps), steps)
        return network.gradient(theta)

    try:
        for t in _times(steps):
            if t > steps and found().reach >= reach:
                break
            stepper.to(t, gradient)
            theta = stepper.weights()
            loss = network.full_loss(theta)
            if loss < losses[-1]:
                kept.append(t)
                losses.append(loss)
                measured = len(kept) % NOISE_EVERY == 0 or (t >= steps and growth > BRAKED)
                noise.append(_over(total_noise(network, theta), noisy) if measured else math.nan)
                if measured:
                    watch(theta, loss)
                sharpness.append(sharp.growth(theta) if sharp and measured else math.nan)
                growth = sharpness[-1] if sharpness[-1] > 0 else growth
            elif not t - kept[-1] <= max(PATIENCE_STEPS, PATIENCE_SHARE * t) or not loss < math.inf:
                break
            stepper.switch(paced(lr, growth, hastened=t >= steps), stepper.state)
    except KeyboardInterrupt:
        pass
    return found()


def _times(steps: int) -> list[int]:
    """The steps at which the loss of a descent is computed; those past its end are for one whose rate was braked."""
    first = np.union1d(report_steps(steps, "log", DESCENT_POINTS), np.arange(1, min(RISING_STEPS, steps) + 1))
    beyond = np.arange(steps, LONGEST * steps + 1, max(1, steps // 10))[1:]
    return [*map(int, first), *map(int, beyond)]


def _spread(network: Network) -> Tensor:
    """The examples on which noise and the largest curvature are measured along a descent, spread evenly over the data."""
    import torch

    count = min(NOISE_EXAMPLES, network.examples)
    return torch.arange(count, device="cpu") * network.examples // count


class Sharpness:
    """The largest curvature along a descent, over that at the checkpoint, by Lanczos on some of the examples."""

    def __init__(self, network: Network, curvature: str | None) -> None:
        self.network, self.curvature = copy.copy(network), curvature
        index = _spread(network)
        self.network.data, self.network.examples = network.take(index), len(index)
        self.vector = self.network.gradient()
        self.usual = self._largest(network.theta, FIRST_ROUNDS)

    def growth(self, theta: Tensor) -> float:
        """h_max / h_max(0) at these weights; NaN where there is no positive curvature."""
        found = self._largest(theta, NEXT_ROUNDS)
        return found / self.usual if found > 0 and self.usual > 0 else math.nan

    def _largest(self, theta: Tensor, rounds: int) -> float:
        from ..curvature import curvature_of
        from ..krylov import lanczos

        if not bool(self.vector.any()) or not bool(self.vector.isfinite().all()):
            return math.nan
        operator, value = curvature_of(self.network.at(theta), self.curvature, vectors=1), math.nan
        for _ in range(rounds):
            values, vectors = lanczos(operator, self.vector, SHARP_STEPS, keep=True)[0].ritz(1)
            value, self.vector = float(values[0]), vectors[0]
        return value


def total_noise(network: Network, theta: Tensor | None = None) -> float:
    """tr C, the variance of single-example gradients summed over all weights, on examples spread evenly over the data."""
    import torch

    from .budget import in_small_pieces

    index = _spread(network)
    count, squares, mean = len(index), 0.0, torch.zeros_like(network.theta)
    for rows in in_small_pieces(network).example_gradients(theta, index):
        squares += float(torch.linalg.vector_norm(rows, dtype=torch.float64) ** 2)
        mean += rows.sum(0) / count
    total = float(torch.linalg.vector_norm(mean, dtype=torch.float64) ** 2)
    found = max(squares / count - total, 0.0) * count / max(count - 1, 1)
    return found if found > NOISELESS * total else 0.0


def _over(noise: float, first: float) -> float:
    """Noise over that at the checkpoint; 1 where there is none to begin with."""
    return noise / first if first > 0 else 1.0


def _law(descent: Descent, measured: Array | None) -> ByLoss:
    """A column of a descent where it was measured, as a law of the loss; 1 at the checkpoint's loss if it was measured nowhere."""
    if measured is None:
        return ByLoss(descent.loss[:1].copy(), np.ones(1))
    known = np.flatnonzero(measured > 0)[::-1]
    return ByLoss(descent.loss[known], measured[known])


def _interpolated(law: ByLoss, loss: Array | float) -> Array:
    """The value of a law at a loss: logarithms are interpolated, and it is constant outside of its losses."""
    losses, values = law
    if len(losses) < 2:
        return np.full_like(loss, values[0], dtype=float)
    inside = np.clip(loss, losses[0], losses[-1])
    return np.exp(np.interp(np.log(inside), np.log(losses), np.log(values)))


class Bend:
    """The increasing function phi from the quadratic's loss to the network's; the identity above the checkpoint's loss."""

    def __init__(self, descent: Descent, problem: Quadratic, offset: float) -> None:
        first = 0 if descent.rising else min(SWINGING_STEPS, descent.steps[-1])
        kept = (descent.steps == 0) | (descent.steps >= first)
        run = problem.run(descent.optimizer, math.inf, descent.steps[kept].tolist(), descent.schedule)
        q, loss = run.signal + offset, descent.loss[kept]
        before = np.minimum.accumulate(q)
        falling = np.concatenate([[True], q[1:] < before[:-1] - 1e-12 * abs(q[0])])
        q, loss = q[falling], loss[falling]
        if len(q) > 1 and not descent.rising:  # close to the checkpoint the quadratic is accurate: phi has slope 1
            near = IDENTITY_SHARE * (q[0] - q[1])
            if loss[0] - near > loss[1]:
                q, loss = np.insert(q, 1, q[0] - near), np.insert(loss, 1, loss[0] - near)
        self.q, self.loss, self.offset = q[::-1], loss[::-1], offset
        positive = bool(np.all(descent.loss > 0))  # losses of a model may be negative: its curvature counts as constant
        self.noise = _law(descent, descent.noise)
        self.sharpness = _law(descent, descent.sharpness if positive else None)

    @cached_property
    def _inside(self) -> PchipInterpolator:
        from scipy.interpolate import PchipInterpolator

        return PchipInterpolator(self.q, self.loss)

    @cached_property
    def _steepness(self) -> PPoly:
        return self._inside.derivative()

    @cached_property
    def slope(self) -> float:
        """The slope of phi at the end of the descent, by which it is extrapolated."""
        return float((self.loss[1] - self.loss[0]) / (self.q[1] - self.q[0]))

    @cached_property
    def pieces(self) -> BendPieces:
        """The function as compiled loops take it; without a knot it is the identity."""
        if len(self.q) < 2:
            return BendPieces(np.empty(0), np.empty((0, 4)), 1.0, 1.0)
        return BendPieces(self.q.copy(), np.ascontiguousarray(self._inside.c.T), self.slope, float(self.loss[0]))

    def __call__(self, q: Array) -> Array:
        """The loss of the network for a loss q of the quadratic."""
        if len(self.q) < 2:
            return q
        inside = self._inside(np.clip(q, self.q[0], self.q[-1]))
        below = self.loss[0] * np.exp(np.minimum(self.slope / self.loss[0] * (q - self.q[0]), 0))  # stays positive
        return np.where(q > self.q[-1], self.loss[-1] + q - self.q[-1], np.where(q < self.q[0], below, inside))

    def loudness(self, loss: Array | float) -> Array:
        """f: the variance of the gradient noise at a loss, over that at the checkpoint."""
        return _interpolated(self.noise, loss) * np.clip(loss / self.noise.losses[0], 0, 1)

    def sharpening(self, loss: Array | float) -> Array:
        """kappa: the largest curvature at a loss, over that at the checkpoint; constant outside of the descent."""
        return _interpolated(self.sharpness, loss)

    def kept(self, signal: float, noise: float) -> float:
        """The share of its gradient that the signal keeps if noise adds so much to the loss (`following`)."""
        from ...engine.kernels.following import kept

        return kept(signal, noise, self.sharpness, SLOWING, LEAST_KEPT)

    def slope_at(self, q: float) -> float:
        """The derivative of phi at a loss q of the quadratic."""
        if len(self.q) < 2 or q >= self.q[-1]:
            return 1.0
        if q < self.q[0]:
            return self.slope * float(np.exp(self.slope / self.loss[0] * (q - self.q[0])))
        return float(self._steepness(q))

    def inverse(self, loss: float) -> float | None:
        """The loss of the quadratic for a loss of the network; None if the descent did not reach that loss."""
        if len(self.q) < 2 or loss >= self.loss[-1]:
            return loss
        if loss < self.loss[0]:
            return None
        from scipy.optimize import brentq

        return float(brentq(lambda q: float(self._inside(q)) - loss, self.q[0], self.q[-1], xtol=1e-12))  # type: ignore[arg-type]
