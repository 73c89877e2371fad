"""The stepping loop: against a plain loop that asks the schedule at every step, and on torch tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import Adam, HeavyBall, Lookahead, Schedule, wsd
from nqm.optimizers.base import Optimizer
from nqm.sampling.bases import Geometry
from nqm.sampling.stepping import Stepper
from nqm.types import Array

H = np.array([1.0, 0.3, 0.01])
SCHEDULE = wsd(20, 4, 6) & Schedule([3, 9, 8], momentum=[0.5, 1.0, 0.8]) & Schedule([10, 10], batch_size=[1, 4])
OPTIMIZERS = [HeavyBall(0.4, 0.9), Adam(0.1, 0.9), Lookahead(HeavyBall(0.4, 0.5), 0.5, 3)]


def slope(w: Array, batch_size: float) -> Array:
    """A gradient that depends on the batch size."""
    return H * w + 1 / batch_size


def plain(optimizer: Optimizer, steps: int) -> Array:
    """Every step asks the schedule."""
    state = optimizer.begin(np.ones(3), Geometry(H))
    for t in range(steps):
        lr, momentum, factor = SCHEDULE.at(t)
        now = optimizer.scaled(lr, momentum)
        state = now.update(state, slope(now.point(state, t), 2.0 * factor), t)
    return optimizer.report(state, steps)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("stops", [[20], [0, 1, 3, 4, 11, 20], [25]], ids=str)
def test_it_steps_as_a_loop_that_asks_the_schedule_at_every_step(optimizer: Optimizer, stops: list[int]) -> None:
    stepper = Stepper(optimizer, optimizer.begin(np.ones(3), Geometry(H)), 2.0, SCHEDULE)
    for t in stops:
        stepper.to(t, slope)
        assert stepper.t == t
        np.testing.assert_array_equal(stepper.weights(), plain(optimizer, t))


def test_a_switch_takes_effect_at_once_and_keeps_the_schedule() -> None:
    one, other = HeavyBall(0.4, 0.9), HeavyBall(0.1, 0.9)
    stepper = Stepper(one, one.begin(np.ones(3), Geometry(H)), 2.0, SCHEDULE)
    stepper.to(7, slope)
    state = stepper.state
    stepper.switch(other, state)
    stepper.to(8, slope)
    lr, momentum, factor = SCHEDULE.at(7)
    expected = other.scaled(lr, momentum).update(state, slope(other.point(state, 7), 2.0 * factor), 7)
    np.testing.assert_array_equal(stepper.weights(), other.report(expected, 8))


def test_a_gradient_that_fails_leaves_the_steps_that_were_done() -> None:
    def fails(w: Array, batch_size: float) -> Array:
        if stepper.t == 3:
            raise KeyboardInterrupt
        return H * w

    stepper = Stepper(OPTIMIZERS[0], OPTIMIZERS[0].begin(np.ones(3), Geometry(H)))
    with pytest.raises(KeyboardInterrupt):
        stepper.to(10, fails)
    done = Stepper(OPTIMIZERS[0], OPTIMIZERS[0].begin(np.ones(3), Geometry(H)))
    done.to(3, lambda w, batch_size: H * w)
    assert stepper.t == 3
    assert math.isinf(stepper.batch_size)
    np.testing.assert_array_equal(stepper.weights(), done.weights())


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_tensors_step_as_arrays_do(optimizer: Optimizer) -> None:
    torch = pytest.importorskip("torch")
    h = torch.from_numpy(H)
    stepper = Stepper(optimizer, optimizer.begin(torch.ones(3, dtype=torch.float64), Geometry(H)), 2.0, SCHEDULE)
    stepper.to(20, lambda w, batch_size: h * w + 1 / batch_size)
    np.testing.assert_allclose(stepper.weights().numpy(), plain(optimizer, 20), rtol=1e-12)
