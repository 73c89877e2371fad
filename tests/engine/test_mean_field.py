"""Mean fields against a plain recursion, against exact moments and against sampling, with planted bugs that must show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from nqm import (
    EMA,
    SGD,
    Adam,
    HeavyBall,
    Lion,
    Optimizer,
    Polyak,
    Quadratic,
    Sign,
    Spectrum,
    cosine,
    linear,
    step,
)
from nqm.engine.kernels import plain_loops
from nqm.engine.mean_field import (
    FINE_DETAIL,
    Detail,
    Linearised,
    MeanField,
    Seen,
    Start,
    half_normal_rule,
    sign_of,
    start_rule,
)
from nqm.optimizers.adam import preconditioner
from nqm.optimizers.base import Entry
from nqm.types import Array

MODES = Spectrum([1.0, 0.5, 0.11, 0.02], c=[1.0, 0.3, 0.2, 0.1], s=[1.0, 2.0, 0.5, 1.0])
SINGLE = Detail(part=0.0, starts=8)
"""Every step is taken by itself."""
TIMES = (1, 2, 3, 10, 40, 150)


def plain_adam(adam: Adam, modes: Spectrum, batch_size: float, steps: int) -> Array:
    """E theta^2 of each mode by a loop over second moments, for starts of fixed size; M, K, V are E theta^2, E theta m, E m^2."""
    lr, beta1, beta2, eps, h, q = adam.lr, adam.beta1, adam.beta2, adam.eps, modes.h, modes.c / batch_size
    M, K, V, v = modes.s + 0.0, 0.0 * h, 0.0 * h, 0.0 * h
    for t in range(1, steps + 1):
        g2 = h * h * M + q
        v = beta2 * v + (1 - beta2) * g2
        P = lr / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps)
        V = beta1**2 * V + 2 * beta1 * (1 - beta1) * h * K + (1 - beta1) ** 2 * g2
        K = beta1 * K + (1 - beta1) * h * M
        M = M - 2 * P * K + P * P * V
        K = K - P * V
    return M


def squares(
    optimizer: Optimizer, steps: int, batch_size: float = 16.0, detail: Detail = SINGLE, start: Start = "fixed"
) -> Array:
    """E theta^2 of each mode by the mean field."""
    field = MeanField(optimizer, MODES, batch_size, start=start, detail=detail)
    signal, noise = field.end(steps)
    return signal * MODES.s + noise * MODES.c / batch_size


@dataclass(frozen=True)
class WithoutCorrection(Adam):
    """A planted bug: neither average is corrected for its bias."""

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        P, gain = self.lr * preconditioner(averages[0], 1e9, self.beta1, self.beta2, self.eps), 1 - self.beta1
        return Linearised([[-P * gain * seen.h, -P * self.beta1], [gain * seen.h, -gain]], [-P * gain, gain])


@dataclass(frozen=True)
class Swapped(Adam):
    """A planted bug: v averages E m^2 and not E g^2."""

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        return [(self.beta2, seen.square([(1 - self.beta1) * seen.h, self.beta1], 1 - self.beta1))]


ADAMS = (Adam(0.05), Adam(0.02, 0.5, 0.9, 1e-3), Adam(0.3, 0.0, 0.99))


@pytest.mark.parametrize("adam", ADAMS, ids=str)
@pytest.mark.parametrize("batch_size", [4.0, 2.0**20])
def test_single_steps_are_the_plain_recursion(adam: Adam, batch_size: float) -> None:
    for t in TIMES:
        expected = plain_adam(adam, MODES, batch_size, t)
        assert np.abs(squares(adam, t, batch_size) / expected - 1).max() < 1e-12 * max(t, 10)  # rounding of t steps


@pytest.mark.parametrize("bug", [WithoutCorrection, Swapped])
def test_planted_bugs_leave_the_plain_recursion(bug: type[Adam]) -> None:
    assert abs(squares(bug(0.05), 40) / plain_adam(Adam(0.05), MODES, 16.0, 40) - 1).max() > 0.01


def test_normal_starts_are_a_mixture_of_fixed_ones() -> None:
    z, w = start_rule(SINGLE.starts)
    sizes = [Spectrum(MODES.h, c=MODES.c, s=MODES.s * x**2) for x in z]
    expected = sum(p * plain_adam(Adam(0.05), modes, 16.0, 40) for p, modes in zip(w, sizes, strict=True))
    assert np.abs(squares(Adam(0.05), 40, start="gaussian") / expected - 1).max() < 1e-12 * 40
    assert np.abs(squares(Adam(0.05), 40) / expected - 1).max() > 0.01, "the start matters"


LINEAR = (SGD(0.7), HeavyBall(0.3, 0.9), EMA(HeavyBall(0.15, 0.9), 0.8), Polyak(SGD(0.4), 10))


@pytest.mark.parametrize("optimizer", LINEAR, ids=str)
@pytest.mark.parametrize("detail", [SINGLE, FINE_DETAIL], ids=["single", "blocks"])
def test_the_mean_field_of_a_linear_optimizer_is_exact(optimizer: Optimizer, detail: Detail) -> None:
    problem = Quadratic(MODES)
    for t in (1, 2, 11, 40, 150, 1000):
        found = MeanField(optimizer, MODES, 16.0, detail=detail).end(t)
        for mine, unit, exact in zip(found, problem.units, problem.moments(optimizer, t, 16.0), strict=True):
            assert np.abs(mine * unit - exact).max() < 1e-9 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("adam", "batch_size", "steps"), [(Adam(0.01), 16.0, 600), (Adam(0.003, 0.5, 0.99), 4.0, 2000)], ids=str
)
def test_the_error_of_blocks_is_of_second_order(adam: Adam, batch_size: float, steps: int) -> None:
    exact = MODES.h @ squares(adam, steps, batch_size, Detail(0.0, 8), "gaussian")
    found = [MODES.h @ squares(adam, steps, batch_size, Detail(1 / n, 8), "gaussian") for n in (16, 32, 64)]
    errors = [abs(loss / exact - 1) for loss in found]
    assert 2.5 < errors[0] / errors[1] < 6.5
    assert 2.5 < errors[1] / errors[2] < 6.5


@pytest.mark.parametrize("nodes", [2, 6, 24])
def test_half_normal_rule_has_the_moments_of_its_law(nodes: int) -> None:
    z, w = half_normal_rule(nodes)
    assert len(z) == nodes
    assert min(w) > 0
    for k in range(2 * nodes):
        expected = 2 ** (k / 2) * math.gamma((k + 1) / 2) / math.sqrt(math.pi)
        assert abs(w @ z**k / expected - 1) < 1e-9


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (0.3, 0.5), (-2.0, 1.0), (1.0, 0.1)])
def test_sign_of_a_normal_number_has_its_moments(mean: float, sd: float) -> None:
    def expected(f: Callable[[float], float]) -> float:
        parts = ((mean - 12 * sd, 0.0, -1.0), (0.0, mean + 12 * sd, 1.0))
        return sum(
            s * quad(lambda y: f(y) * norm.pdf(y, mean, sd), a, b, points=[mean] if a < mean < b else None, limit=200)[0]
            for a, b, s in parts if b > a
        )  # fmt: skip

    gain, shift, own = (float(a) for a in sign_of(np.array(mean), np.array(sd**2)))
    average, covariance = expected(lambda y: 1.0), expected(lambda y: y - mean)
    assert abs(gain * mean + shift - average) < 1e-9
    assert abs(gain * sd**2 - covariance) < 1e-9
    assert abs(gain**2 * sd**2 + own**2 - (1 - average**2)) < 1e-9


def test_sign_of_a_number_without_variance_is_its_sign() -> None:
    gain, shift, own = sign_of(np.array([-2.0, 0.0, 3.0]), np.zeros(3))
    assert gain.tolist() == [0, 0, 0]
    assert shift.tolist() == [-1, 0, 1]
    assert own.tolist()[::2] == [0, 0]


MANY = Quadratic(Spectrum.power_law(60))
SCHEDULES = {
    "lr": cosine(300),
    "momentum": linear(300, end=0.5).on("momentum"),
    "batch_size": step(300, 8.0, at=[100, 200]).on("batch_size"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_a_linear_optimizer_are_exact(name: str) -> None:
    problem = Quadratic(MODES)
    for t in (50, 150, 300):
        found = MeanField(HeavyBall(0.1, 0.9), MODES, 16.0, SCHEDULES[name], detail=SINGLE).end(t)
        exact = problem.moments(HeavyBall(0.1, 0.9), t, 16.0, SCHEDULES[name])
        for mine, unit, other in zip(found, problem.units, exact, strict=True):
            assert np.abs(mine * unit - other).max() < 1e-9 * np.abs(other).max()


@pytest.mark.parametrize("optimizer", [Adam(0.01), Sign(0.005), Lion(0.003)], ids=str)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_agree_with_sampling(optimizer: Optimizer, name: str) -> None:
    times = np.array([100, 200, 300])
    sampled = MANY.sample(optimizer, 8, times, SCHEDULES[name], replicas=300, start="fixed", workers=1)
    assert sampled.stderr is not None
    followed, without = (MANY.run(optimizer, 8, times, s, start="fixed").loss for s in (SCHEDULES[name], None))
    assert (np.abs(followed - sampled.loss) < 4 * sampled.stderr).all()
    if name != "momentum" or optimizer != Sign(0.005):  # Plain sign descent has no momentum.
        assert np.abs(without - sampled.loss)[-1] > 10 * sampled.stderr[-1], "the schedule matters"


def test_the_compiled_loop_of_two_slots_gives_what_maps_give() -> None:
    problem, times = Quadratic(Spectrum.power_law(300)), np.array([1, 5, 40, 700])
    fast = problem.run(Adam(0.01), 64, times).loss
    with plain_loops():
        slow = problem.run(Adam(0.01), 64, times).loss
    np.testing.assert_allclose(fast, slow, rtol=1e-9)
