"""How the loss of a real network departs from its quadratic as it falls: one descent on full gradients.

Past a reach (learning rate x steps x curvature) of ten or so, curvature and noise of a network shrink with its loss, and
a fixed quadratic does not. Most of that depends on how far the descent has come and hardly on how it got there. So it is
measured once, on a plain gradient descent of a few hundred full gradients at lr = 1 / largest curvature, and serves every
optimizer, learning rate and batch size: with q(k) the quadratic's loss and L(k) the network's after k such steps,

    phi(q(k)) = L(k)        and a prediction is        loss(t) = phi(signal(t) + noise(t) / B  phi(signal(t)) / L(0)):

the quadratic's loss, bent, with gradient noise in proportion to the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..moments import Array
from ..optimizers import SGD
from ..problem import report_steps

if TYPE_CHECKING:
    from ..problem import Quadratic
    from .krylov import Progress
    from .network import Network

POINTS = 40


@dataclass(frozen=True, eq=False)
class Descent:
    """Loss of the network after so many steps of full gradients at this learning rate."""

    lr: float
    steps: Array
    loss: Array

    def to_dict(self) -> dict[str, Any]:
        return {"lr": np.array([self.lr]), "steps": self.steps, "loss": self.loss}


def descend(network: Network, lr: float, steps: int, progress: Progress | None = None) -> Descent:
    """Follow full gradients; the descent ends early where the loss rises, as past the edge of stability, or on Ctrl-C."""
    times = report_steps(steps, "log", POINTS)
    theta, t, losses = network.theta, 0, [network.full_loss()]
    try:
        for last in times[1:].tolist():
            while t < last:
                theta, t = theta - lr * network.gradient(theta), t + 1
                if progress:
                    progress(t, steps)
            loss = network.full_loss(theta)
            if not loss < losses[-1]:
                break
            losses.append(loss)
    except KeyboardInterrupt:
        pass
    return Descent(lr, times[: len(losses)], np.array(losses))


class Bend:
    """The function phi from the quadratic's loss to the network's, increasing; identity from the checkpoint's loss up."""

    def __init__(self, descent: Descent, problem: Quadratic, offset: float) -> None:
        run = problem.run(SGD(descent.lr), float("inf"), descent.steps.tolist())
        q, loss = run.signal + offset, descent.loss
        falling = np.concatenate([[True], np.diff(q) < -1e-12 * abs(q[0])])
        self.q, self.loss = q[falling][::-1], loss[falling][::-1]

    @cached_property
    def _inside(self) -> Any:
        from scipy.interpolate import PchipInterpolator

        return PchipInterpolator(self.q, self.loss)

    @cached_property
    def slope(self) -> float:
        """Of phi at the end of the descent, with which it goes on from there."""
        return float((self.loss[1] - self.loss[0]) / (self.q[1] - self.q[0]))

    def __call__(self, q: Any) -> Any:
        q = np.asarray(q, float)
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
