"""Gradient noise that follows the loss, step by step.

The gradient noise of a network changes with its loss, so each step has the noise of the loss at which it takes its gradient.
With phi the bend and f the noise of `descent`, both measured along the same full gradients, the loss after t steps is

    L(t) = phi(signal(t)) + noise(t) / B,        noise(t) = sum over s < t of K(t, s) f(L(s))

where signal(t) is the loss of the quadratic without noise, and K(t, s) the loss of the quadratic at step t per unit of
gradient noise at step s. In K the curvatures h are those of the loss on the way, kappa(L(s)) h, with kappa from `descent` too:
noise along a curvature that comes close to the edge of stability grows, whatever phi says of the signal. Curvatures come to those
of a new loss over some ten steps (`PULL`), and stay below what the learning rate allows (`edge`).

Where curvature rises as the loss falls, noise slows the signal: with n the noise in the loss, the signal descends on L + n, and n
grows along the way. Its gradient is multiplied by

    1 - SLOWING gamma n / L,        gamma = -d ln kappa / d ln L > 0.

Noise is added to phi, because phi says how much further than its quadratic the network descends along small curvatures, while
noise is mostly along large ones. Above the loss at the checkpoint f is constant.

Signal and noise separate, as on a quadratic. Every step is a linear one, so schedules, averages and momenta need nothing
of their own. L(s) is the loss at the point at which step s takes its gradient, also if an average is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...engine.kernels.given import CurvatureByLoss, Modes, State
from ...engine.schedule import Schedule
from ...engine.spectrum import Spectrum
from ...engine.trajectory import Trajectory, fade
from ...optimizers.base import Optimizer
from ...problems.coupled import check_gradient_point
from ...types import Array, Wrong
from .descent import LEAST_KEPT, PULL, SLOWING
from .edge import capped, ceiling
from .testing import disturbance

if TYPE_CHECKING:
    from .descent import Bend

MAX_FOLLOWED_STEPS = 10**6  # longest prediction whose noise follows the loss, because its steps are taken one by one


class FollowedLoss(NamedTuple):
    """What is predicted at the reported steps: the loss is ``signal + noise / batch_size``.

    ``disturbance`` says how far noise has disturbed the training by then (`testing.disturbance`).
    """

    signal: Array
    noise: Array
    disturbance: Array


def followed(
    bend: Bend, spectrum: Spectrum, optimizer: Optimizer, batch_size: float, times: Array, schedule: Schedule | None = None
) -> FollowedLoss:  # fmt: skip
    """Signal, noise and disturbance at the reported steps.

    Past the edge of stability the curvatures of the spectrum are capped (`edge`).
    """
    if times[-1] > MAX_FOLLOWED_STEPS:
        ask = f"ask for at most {MAX_FOLLOWED_STEPS:,} steps, or for the plain quadratic (bent=False, --quadratic)"
        raise Wrong(f"a prediction of {times[-1]:,} steps takes too long; {ask}", argument="steps")
    check_gradient_point(optimizer)
    if optimizer.depends_on_horizon:  # a run of its own for each reported step
        ends = [(optimizer.at_horizon(int(t)), int(t)) for t in times]
        found = np.stack([_every_step(bend, spectrum, o, batch_size, t, schedule)[:, -1] for o, t in ends], axis=1)
    else:
        found = _every_step(bend, spectrum, optimizer, batch_size, int(times[-1]), schedule)[:, times]
    return FollowedLoss(bend(found[0]), found[1], found[2])


def _every_step(
    bend: Bend, spectrum: Spectrum, optimizer: Optimizer, batch_size: float, steps: int, schedule: Schedule | None
) -> Array:
    """Signal and noise of the quadratic, and disturbance, at steps 0, 1, ..., ``steps``, as the rows of an array."""
    from ...engine.kernels.following import follow

    spread, highest = capped(spectrum, optimizer, schedule), ceiling(spectrum, optimizer)
    path, found = Trajectory(optimizer, spread.h, schedule), np.zeros((3, steps + 1))
    clean, added = np.full(steps + 1, bend(np.array(spectrum.initial_loss + bend.offset))), np.zeros(steps + 1)
    begun, mass = path.start(), spread.count * spread.h / 2
    state = State(begun.A[:, 0].copy(), begun.Q.copy(), np.zeros_like(spread.h))
    modes = Modes(spread.h, mass * spread.s, mass * spread.c, bend.offset)
    found[0, 0] = modes.signal @ path.read(begun, 0)[0]
    for t, end, stretch in path.stretches(0, steps):
        most = _most(highest, schedule, t, end)
        curvature = CurvatureByLoss(bend.sharpness, spectrum.h, most, SLOWING, LEAST_KEPT, PULL)
        look, row = path.gradient_point(t), path.row(end)
        *parts, clean[t : end + 1], added[t : end + 1] = follow(
            stretch, modes, state, look, row, bend.pieces, bend.noise, curvature, 1 / batch_size
        )
        seen = fade(optimizer, np.arange(t + 1, end + 1), end)
        found[:2, t + 1 : end + 1] = np.stack(parts) * seen
    found[0] += bend.offset
    found[2] = disturbance(clean, added)
    return found


def _most(highest: float, schedule: Schedule | None, t: int, end: int) -> Array:
    """The largest curvature that the network keeps at each of the steps t .. end; ``highest`` at the unscheduled rate."""
    rate = np.ones(end - t) if schedule is None else schedule.multipliers("lr", end - t, t)
    return highest / np.maximum(rate, 1e-300)
