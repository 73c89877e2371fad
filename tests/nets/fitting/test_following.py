"""Noise that follows the loss: against the sum over steps that defines it, against the exact engine, and real training."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from nqm import EMA, SGD, HeavyBall, Lookahead, Nesterov, Polyak, Quadratic, Spectrum, linear
from nqm.engine.kernels.given import ByLoss
from nqm.engine.schedule import Schedule
from nqm.engine.trajectory import Trajectory
from nqm.nets.fitting.descent import LEAST_KEPT, PULL, SLOWING, Bend, Descent
from nqm.nets.fitting.edge import excess
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


RISING = [1.0, 1.5, math.nan, 0.9, 1.8, 1.7]  # a largest curvature that rises, falls and rises again


def bend(noise: list[float] | None = None, sharpness: list[float] | None = None) -> Bend:
    """A network whose loss falls further than its quadratic, and whose noise falls and then rises again."""
    steps = np.array([0, 10, 20, 40, 80, 160])
    problem = Quadratic(SPECTRUM)
    q = problem.run(HeavyBall(1.0, 0.5), math.inf, steps.tolist()).signal + OFFSET
    given = [1.0, 0.8, 0.5, math.nan, 0.7, 0.2] if noise is None else noise
    loss, sharp = q[0] * (q / q[0]) ** 1.5, None if sharpness is None else np.array(sharpness)
    return Bend(Descent(1.0, 0.5, steps, loss, np.array(given), sharpness=sharp), problem, OFFSET)


def by_systems(phi: Bend, optimizer: Optimizer, batch_size: float, steps: int, schedule: Schedule | None) -> Array:
    """Losses step by step, with the optimizer's own system at whatever curvature the modes have, for each source of noise alone.

    Noise sees the curvature kappa(L) h, up to 0.9 of that at the edge; the signal a gradient of which it keeps a share.
    """
    path, h, ends = Trajectory(optimizer, SPECTRUM.h, schedule), SPECTRUM.h, 0.9 / excess(SPECTRUM, optimizer, None)
    rates = np.ones(steps) if schedule is None else schedule.multipliers("lr", steps)

    def arrays(G: list[list[object]], b: list[object]) -> tuple[Array, Array]:
        full = np.array([[np.broadcast_to(e, h.shape) for e in row] for row in G], float)  # type: ignore[arg-type]
        return full + np.eye(len(G))[..., None], np.array([np.broadcast_to(e, h.shape) for e in b], float)  # type: ignore[arg-type]

    def at(slots: list[float], x: Array) -> Array:
        return (np.array([np.broadcast_to(e, h.shape) for e in slots], float) * x).sum(0)

    x = np.array([np.broadcast_to(e, h.shape) for e in optimizer.initial()], float)
    sources, curvature, reported = list[Array](), h.copy(), [float(phi(np.array(h @ SPECTRUM.s / 2 + OFFSET)))]

    def parts(slots: list[float]) -> tuple[float, float]:
        signal = float(phi(np.array(h @ (SPECTRUM.s * at(slots, x) ** 2) / 2 + OFFSET)))
        return signal, sum(float(curvature @ at(slots, one) ** 2) / 2 for one in sources) / batch_size

    for t in range(steps):
        held = path.held(t)
        signal, noise = parts(held.gradient_point(t))
        loss, batch = signal + noise, schedule.at(t)[2] if schedule else 1.0
        slopes = -np.diff(np.log(phi.sharpness[1])) / np.diff(np.log(phi.sharpness[0]))
        i = int(np.searchsorted(phi.sharpness[0], signal, side="right")) - 1
        gamma = max(float(slopes[i]), 0.0) if 0 <= i < len(slopes) else 0.0
        share = max(LEAST_KEPT, 1 - SLOWING * gamma * noise / loss)
        now = np.minimum(float(phi.sharpening(loss)) * h, np.maximum(ends / rates[t], h))
        curvature = (1 - PULL) * curvature + PULL * now
        A, b = arrays(*held.system(curvature, t))
        sources = [np.einsum("ijx,jx->ix", A, one) for one in sources]
        sources.append(b * np.sqrt(phi.loudness(loss) * SPECTRUM.c / batch))
        x = np.einsum("ijx,jx->ix", arrays(*held.system(share * h, t))[0], x)
        reported.append(sum(parts(optimizer.readout(t + 1))))
    return np.array(reported)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize(
    "schedule", [None, linear(30) & Schedule([10, 20], batch_size=[1.0, 4.0])], ids=["", "scheduled"]
)
def test_curvature_follows_the_loss(optimizer: Optimizer, schedule: Schedule | None) -> None:
    phi, times = bend(sharpness=RISING), np.array([0, 1, 2, 9, 10, 11, 30])
    signal, noise, _ = followed(phi, SPECTRUM, optimizer, 4.0, times, schedule)
    expected = by_systems(phi, optimizer, 4.0, 30, schedule)[times]
    np.testing.assert_allclose(signal + noise / 4.0, expected, rtol=1e-11)
    plain = sum(followed(bend(), SPECTRUM, optimizer, 4.0, times, schedule)[i] / (1, 4.0)[i] for i in (0, 1))
    assert np.abs(plain / expected - 1).max() > 1e-3


def test_signal_is_not_sped_up_where_curvature_falls() -> None:
    falling, rising = bend(sharpness=[1.0, 0.8, 0.6, 0.4, 0.3, 0.2]), bend(sharpness=[1.0, 1.2, 1.5, 2.0, 3.0, 5.0])
    at = float(np.sqrt(falling.loss[0] * falling.loss[-1]))
    assert falling.kept(at, 0.5 * at) == 1.0
    assert LEAST_KEPT <= rising.kept(at, 0.5 * at) < rising.kept(at, 0.1 * at) < 1.0
    assert rising.kept(2 * float(rising.loss[-1]), at) == rising.kept(at, 0.0) == 1.0


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
    signal, noise, _ = followed(phi, SPECTRUM, optimizer, 2.0, times, schedule)
    np.testing.assert_allclose(
        signal + noise / 2.0, by_sum(phi, optimizer, 2.0, 30, schedule, False)[times], rtol=1e-12
    )


def test_a_loss_fed_back_from_the_wrong_point_is_seen() -> None:
    """The planted bug: noise that follows the reported average in place of the weights whose gradient is taken."""
    optimizer, times = EMA(SGD(0.5), 0.9), np.arange(31)
    signal, noise, _ = followed(bend(), SPECTRUM, optimizer, 2.0, times)
    wrong = by_sum(bend(), optimizer, 2.0, 30, None, True)
    assert np.abs((signal + noise / 2.0) / wrong - 1).max() > 1e-3


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_constant_noise_is_that_of_the_quadratic(optimizer: Optimizer) -> None:
    phi, times = bend([1.0] * 6), np.array([0, 3, 30, 300])
    phi.noise = ByLoss(np.array([1e-9]), np.ones(1))  # from this loss on the noise is constant
    run = Quadratic(SPECTRUM).run(optimizer, 8, times.tolist())
    signal, noise, _ = followed(phi, SPECTRUM, optimizer, 8, times)
    np.testing.assert_allclose(noise, run.noise, rtol=1e-11)
    np.testing.assert_allclose(signal, phi(run.signal + OFFSET), rtol=1e-11)


def test_the_compiled_bend_is_that_of_scipy() -> None:
    from nqm.engine.kernels.following import bent

    phi = bend()
    q = np.linspace(phi.q[0] - 0.1, phi.q[-1] + 0.3, 41)
    np.testing.assert_allclose([bent(float(x), phi.pieces) for x in q], phi(q), rtol=1e-12)


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
    np.testing.assert_allclose([loudness(float(x), phi.noise) for x in losses], phi.loudness(losses), rtol=1e-12)


@pytest.mark.parametrize("optimizer", [HeavyBall(0.1, 0.8), EMA(HeavyBall(0.1, 0.8), 0.9)], ids=str)
def test_the_loop_without_numba_has_the_same_numbers(optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = bend(sharpness=RISING), SPECTRUM, optimizer, 4.0, np.arange(31), linear(30)
    compiled = followed(*given)
    monkeypatch.setattr("nqm.engine.kernels.compiling.numba", None)
    monkeypatch.delitem(sys.modules, "nqm.engine.kernels.following")  # imported again, by `followed`
    plain = followed(*given)
    assert not hasattr(sys.modules["nqm.engine.kernels.following"].follow, "py_func")
    np.testing.assert_allclose(plain, compiled, rtol=1e-12)


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(Wrong, match="takes too long; ask for at most 1,000,000 steps"):
        followed(bend(), SPECTRUM, SGD(0.1), 8, np.array([MAX_FOLLOWED_STEPS + 1]))


def test_the_slope_of_phi_is_its_derivative_everywhere() -> None:
    """Above the checkpoint, on the descent and past its end, by central differences."""
    phi, step = bend(), 1e-6
    for q in (phi.q[-1] + 0.1, 0.5 * (phi.q[1] + phi.q[2]), phi.q[0] - 0.01, phi.q[0] - 0.1):
        above, below = (float(phi(np.array(q + side * step))) for side in (1, -1))
        assert phi.slope_at(float(q)) == pytest.approx((above - below) / (2 * step), rel=1e-4)


def test_a_loss_that_is_not_a_number_has_no_place_in_a_law() -> None:
    from nqm.engine.kernels.following import interpolated

    law = ByLoss(np.array([0.1, 0.2, 0.4]), np.array([1.0, 2.0, 4.0]))
    assert math.isnan(interpolated(math.nan, law))
    assert interpolated(0.2, law) == pytest.approx(2.0)
