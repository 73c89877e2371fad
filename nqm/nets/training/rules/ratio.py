"""The ratio test of Levenberg and Marquardt: how well a quadratic model foresees what a step does to the loss.

For a step s from theta, on a batch with loss h and gradient g,

    M(s) = g's + 1/2 s'(F + damping I) s,        ratio = (h(theta + s) - h(theta)) / M(s),

where F is the exact Fisher matrix of the batch, J' L'' J with the Jacobian J of the outputs and the Hessian L'' of the loss in
them. A ratio near 1 means that the model can be trusted further away, hence with less damping:

    damping <- SHRINKAGE^steps damping  if ratio > 3/4,        damping <- SHRINKAGE^-steps damping  if ratio < 1/4,

``steps`` steps after the last test. If M(s) is not negative, the model itself expects no descent. The ratio then is minus
infinity, and the damping grows.

References
----------
Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature, section 6.5.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...trees import Tree, grad, pulled_back, pushed_forward
from ..stacks import Slopes
from .base import Column

TRUSTED, DISTRUSTED = 0.75, 0.25  # The damping shrinks above the first ratio and grows below the second.
SHRINKAGE = 19 / 20  # The damping changes by this factor for each step since the last test.
LEAST_DAMPING, MOST_DAMPING = 1e-10, 1e10  # The damping stays in this range, in which inverses are finite.


def reduction_ratio(slopes: Slopes, theta: Tensor, step: Tensor, index: Tensor, damping: Column) -> Tensor:
    """The ratio of each trial, in float64; theta and step are (trials, parameters), index selects the examples."""

    def measured(batch: Tree, row: Tensor, along: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        network = slopes.network
        out, pushed = pushed_forward(lambda at: network.output(at, batch), row, along)
        slope, bend = pulled_back(grad(lambda o: network.loss(o, batch[1])), out)
        change = network.batch_loss(row + along, batch) - network.loss(out, batch[1])
        return change, (slope * pushed).sum(), (bend(pushed) * pushed).sum()

    with torch.no_grad():
        found = slopes.accumulated(lambda piece: slopes.over(measured, piece, theta, step), index)
    change, slope, curvature = (one.double() for one in found)
    model = slope + (curvature + damping.values * (step.double() ** 2).sum(1)) / 2
    return torch.where(model < 0, change / model, torch.where(model >= 0, -torch.inf, torch.nan))


def followed(damping: Tensor, ratio: Tensor, steps: int) -> Tensor:
    """The damping of each trial after a test that comes ``steps`` steps after the last one; a ratio of NaN changes nothing."""
    turns = (ratio > TRUSTED).to(damping) - (ratio < DISTRUSTED).to(damping)
    return (SHRINKAGE ** (steps * turns) * damping).clamp(LEAST_DAMPING, MOST_DAMPING)
