"""Noise that follows the loss: against the sum over steps that defines it, against the exact engine, and real training."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import EMA, SGD, HeavyBall, Lookahead, Nesterov, Polyak, Quadratic, Spectrum, linear
from nqm.engine.schedule import Schedule
from nqm.engine.trajectory import Trajectory
from nqm.nets.fitting.descent import Bend, Descent
from nqm.nets.fitting.following import MAX_FOLLOWED_STEPS, followed
from nqm.optimizers import Optimizer
from nqm.types import Array, Wrong

SPECTRUM = Spectrum([1.0, 0.5, 0.1, 0.01], [0.8, 0.3, 0.2, 0.1], [0.2, 0.4, 1.0, 3.0])
OFFSET = 0.05
OPTIMIZERS = (
    SGD(0.5),
    HeavyBall(0.1, 0.8),
    Nesterov(0.1, 0.8),
    EMA(HeavyBall(0.1, 0.8), 0.9),
    Lookahead(SGD(0.4), 0.5, 3),
)


def bend(noise: list[float] | None = None) -> Bend:
    """A network whose loss falls further than its quadratic, and whose noise falls and then rises again."""
    steps = np.array([0, 10, 20, 40, 80, 160])
    problem = Quadratic(SPECTRUM)
    q = problem.run(HeavyBall(1.0, 0.5), math.inf, steps.tolist()).signal + OFFSET
    given = [1.0, 0.8, 0.5, math.nan, 0.7, 0.2] if noise is None else noise
    return Bend(Descent(1.0, 0.5, steps, q[0] * (q / q[0]) ** 1.5, np.array(given)), problem, OFFSET)


def by_sum(
    phi: Bend, optimizer: Optimizer, batch_size: float, steps: int, schedule: Schedule | None, own: bool
) -> Array:
    """L(t) = phi(signal(t)) + sum_s K(t, s) f(L(s)) / B, with K(t, s) a run of its own for the noise of each step.

    ``own`` feeds back the reported loss in place of the loss at the gradient's point, which is a bug for averages.
    """
    path, mass = Trajectory(optimizer, SPECTRUM.h, schedule), SPECTRUM.h / 2
    slots, n = len(optimizer.initial()), len(SPECTRUM.h)
    x, injected, reported = path.start().A[:, 0], list[Array](), [phi(np.array(mass @ SPECTRUM.s + OFFSET))]
    for t in range(steps):
        G, b, batch = path.system(t)

        def loss_of(row: Array, x: Array, injected: list[Array]) -> float:
            signal = mass @ (SPECTRUM.s * (row * x).sum(0) ** 2) + OFFSET
            noise = sum(float(mass @ (row * column).sum(0) ** 2) for column in injected)
            return float(phi(np.array(signal))) + noise / batch_size

        here = loss_of(path.row(max(t, 1)) if own else path.gradient_point(t), x, injected)
        A = np.eye(slots)[..., None] + G
        injected = [np.einsum("ijx,jx->ix", A, column) for column in injected]
        scale = np.sqrt(phi.loudness(here) * SPECTRUM.c / batch)
        injected.append(b * scale.reshape(1, n))
        x = np.einsum("ijx,jx->ix", A, x)
        reported.append(np.array(loss_of(path.row(t + 1), x, injected)))
    return np.array([float(loss) for loss in reported])


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, Polyak(SGD(0.5), 3)], ids=str)
@pytest.mark.parametrize(
    "schedule", [None, linear(30) & Schedule([10, 20], batch_size=[1.0, 4.0])], ids=["", "scheduled"]
)
def test_it_is_the_sum_over_steps(optimizer: Optimizer, schedule: Schedule | None) -> None:
    phi, times = bend(), np.array([0, 1, 2, 9, 10, 11, 30])
    signal, noise = followed(phi, SPECTRUM, optimizer, 2.0, times, schedule)
    np.testing.assert_allclose(
        signal + noise / 2.0, by_sum(phi, optimizer, 2.0, 30, schedule, False)[times], rtol=1e-12
    )


def test_a_loss_fed_back_from_the_wrong_point_is_seen() -> None:
    """The planted bug: noise that follows the reported average in place of the weights whose gradient is taken."""
    optimizer, times = EMA(SGD(0.5), 0.9), np.arange(31)
    signal, noise = followed(bend(), SPECTRUM, optimizer, 2.0, times)
    wrong = by_sum(bend(), optimizer, 2.0, 30, None, True)
    assert np.abs((signal + noise / 2.0) / wrong - 1).max() > 1e-3


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_constant_noise_is_that_of_the_quadratic(optimizer: Optimizer) -> None:
    phi, times = bend([1.0] * 6), np.array([0, 3, 30, 300])
    phi.noise = phi.noise[0][-1:], np.ones(1)
    phi.noise[0][:] = 1e-9  # from this loss on the noise is constant
    run = Quadratic(SPECTRUM).run(optimizer, 8, times.tolist())
    signal, noise = followed(phi, SPECTRUM, optimizer, 8, times)
    np.testing.assert_allclose(noise, run.noise, rtol=1e-11)
    np.testing.assert_allclose(signal, phi(run.signal + OFFSET), rtol=1e-11)


def test_the_compiled_bend_is_that_of_scipy() -> None:
    from nqm.engine.kernels.following import bent

    phi = bend()
    q = np.linspace(phi.q[0] - 0.1, phi.q[-1] + 0.3, 41)
    np.testing.assert_allclose([bent(float(x), *phi.pieces) for x in q], phi(q), rtol=1e-12)


def test_noise_between_and_beyond_measured_losses() -> None:
    phi = bend()
    losses, values = phi.noise
    assert values.tolist() == [0.2, 0.7, 0.5, 0.8, 1.0]
    assert phi.loudness(float(np.sqrt(losses[1] * losses[2]))) == pytest.approx(math.sqrt(0.7 * 0.5))
    assert phi.loudness(10 * float(losses[-1])) == 1
    assert phi.loudness(float(losses[0]) / 2) == pytest.approx(0.1)
    assert phi.loudness(-1.0) == 0
    old = Bend(Descent(1.0, 0.5, np.array([0, 10]), np.array([1.0, 0.5])), Quadratic(SPECTRUM), OFFSET)
    assert old.loudness(0.25) == 0.25  # in a file of an earlier version noise was not measured


def test_the_compiled_noise_is_that_of_numpy() -> None:
    from nqm.engine.kernels.following import loudness

    phi = bend()
    losses = np.linspace(-0.1, 2.0, 40) * phi.loss[-1]
    np.testing.assert_allclose([loudness(float(x), *phi.noise) for x in losses], phi.loudness(losses), rtol=1e-12)


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(Wrong, match="takes too long; ask for at most 1,000,000 steps"):
        followed(bend(), SPECTRUM, SGD(0.1), 8, np.array([MAX_FOLLOWED_STEPS + 1]))
