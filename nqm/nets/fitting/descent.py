"""How the loss of a real network departs from its quadratic as it falls: one descent on full gradients.

Past a reach (learning rate x steps x curvature) of ten or so, curvature and noise of a network shrink with its loss, and
a fixed quadratic does not. Most of that depends on how far the descent has come and hardly on how it got there. So it is
measured once, along some hundred full gradients, and serves every optimizer, learning rate and batch size: with q(k) the
quadratic's loss and L(k) the network's after k steps of the descent,

    phi(q(k)) = L(k)        and a prediction is        loss(t) = phi(signal(t) + noise(t) / B  phi(signal(t)) / L(0)):

the quadratic's loss, bent, with gradient noise in proportion to the loss.

The descent is heavy ball with lr = 1 / largest curvature and momentum 1/2. It comes as far as plain gradients in half the
steps, and is stable until the curvature has grown to three times what was measured, where plain ones bear twice. In its first
steps it swings through the largest curvatures, as few other settings do, so phi takes its first point after ten of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...optimizers import HeavyBall
from ...problems.base import report_steps
from ...types import Array, Progress

if TYPE_CHECKING:
    from scipy.interpolate import PchipInterpolator

    from ...problems.quadratic import Quadratic
    from ..network import Network

DESCENT_POINTS = 40  # steps of a descent, evenly in log, after which the loss is taken
DESCENT_MOMENTUM = 0.5
SWINGING_STEPS = 10
"""Steps in which the start dies away along the largest curvatures, as momentum^(step / 2), to 3%: phi has its first point
after them. Chosen, as the next one, on the checks in docs/checks: both move errors up to step 100, and later ones hardly."""
IDENTITY_SHARE = 0.3  # phi is the identity for this share of the way to its first point
PATIENCE_STEPS, PATIENCE_SHARE = 10, 0.25
"""A descent ends when its loss had no new minimum for so many steps, or for this share of the steps made if that is more."""


@dataclass(frozen=True, eq=False)
class Descent:
    """Loss of the network after so many steps of heavy ball on full gradients, where it is lower than ever before."""

    lr: float
    momentum: float
    steps: Array
    loss: Array

    @property
    def optimizer(self) -> HeavyBall:
        return HeavyBall(self.lr, self.momentum)

    @property
    def reach(self) -> float:
        """Effective learning rate x steps."""
        return float(self.optimizer.effective_lr * self.steps[-1])


def descend(network: Network, lr: float, steps: int, progress: Progress | None = None) -> Descent:
    """Follow full gradients; the descent ends early where the loss falls no more, as past the edge of stability, or on Ctrl-C."""
    from ..training.loop import Batches, walk

    times, optimizer = report_steps(steps, "log", DESCENT_POINTS), HeavyBall(lr, DESCENT_MOMENTUM)
    kept, losses, batches = [0], [network.full_loss()], Batches(network.examples, (0,))
    try:
        for i, theta in walk(network, optimizer, math.inf, times, batches=batches, progress=progress):
            loss, t = network.full_loss(theta), int(times[i])
            if loss < losses[-1]:
                kept.append(t)
                losses.append(loss)
            elif not t - kept[-1] <= max(PATIENCE_STEPS, PATIENCE_SHARE * t) or not loss < math.inf:
                break
    except KeyboardInterrupt:
        pass
    return Descent(lr, DESCENT_MOMENTUM, np.array(kept), np.array(losses))


class Bend:
    """The function phi from the quadratic's loss to the network's, increasing; identity from the checkpoint's loss up."""

    def __init__(self, descent: Descent, problem: Quadratic, offset: float) -> None:
        kept = (descent.steps == 0) | (descent.steps >= min(SWINGING_STEPS, descent.steps[-1]))
        run = problem.run(descent.optimizer, math.inf, descent.steps[kept].tolist())
        q, loss = run.signal + offset, descent.loss[kept]
        before = np.minimum.accumulate(q)
        falling = np.concatenate([[True], q[1:] < before[:-1] - 1e-12 * abs(q[0])])
        q, loss = q[falling], loss[falling]
        if len(q) > 1:  # next to the checkpoint the quadratic is right, so phi leaves it with slope 1
            near = IDENTITY_SHARE * (q[0] - q[1])
            if loss[0] - near > loss[1]:
                q, loss = np.insert(q, 1, q[0] - near), np.insert(loss, 1, loss[0] - near)
        self.q, self.loss = q[::-1], loss[::-1]

    @cached_property
    def _inside(self) -> PchipInterpolator:
        from scipy.interpolate import PchipInterpolator

        return PchipInterpolator(self.q, self.loss)

    @cached_property
    def slope(self) -> float:
        """Of phi at the end of the descent, with which it goes on from there."""
        return float((self.loss[1] - self.loss[0]) / (self.q[1] - self.q[0]))

    def __call__(self, q: Array) -> Array:
        """The network's loss where the quadratic's is q."""
        if len(self.q) < 2:
            return q
        inside = self._inside(np.clip(q, self.q[0], self.q[-1]))
        below = self.loss[0] * np.exp(np.minimum(self.slope / self.loss[0] * (q - self.q[0]), 0))  # stays positive
        return np.where(q > self.q[-1], self.loss[-1] + q - self.q[-1], np.where(q < self.q[0], below, inside))

    def inverse(self, loss: float) -> float | None:
        """The quadratic's loss at which the network's is this; None where the descent did not come so far."""
        if len(self.q) < 2 or loss >= self.loss[-1]:
            return loss
        if loss < self.loss[0]:
            return None
        from scipy.optimize import brentq

        return float(brentq(lambda q: float(self._inside(q)) - loss, self.q[0], self.q[-1], xtol=1e-12))  # type: ignore[arg-type]
