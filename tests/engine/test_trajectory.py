"""Hard points in 50-digit arithmetic, and the ways of moving a state that must agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from catalogue import CYCLIC, ROWS, set_all
from reference import exact, relative_error

from nqm import EMA, SGD, HeavyBall, Lookahead, Nesterov, Optimizer, Quadratic, Schedule, ScheduleFree, Spectrum, cosine
from nqm.engine.moments import MomentMap
from nqm.engine.trajectory import Trajectory
from nqm.optimizers.base import fill, parameters

BAR = 1e-9
VANISHED = 1e-250  # below this a signal is on its way to underflow


def missed(row: Optimizer, h: float, t: int, vanished: float = VANISHED) -> tuple[float, float]:
    """How far signal and noise after t steps on one mode are from 50 digits."""
    run = Quadratic(Spectrum([h], [1.0])).run(row, 1.0, [t])
    signal, noise = (float(m) * h / 2 for m in exact(row, h, t))
    return relative_error(run.signal[0], signal, vanished * h / 2) if signal > vanished else 0.0, relative_error(
        run.noise[0], noise
    )


def conditioning(row: Optimizer, h: float, t: int) -> float:
    """How far the exact answer itself moves when every learning rate moves by one rounding."""
    rates = {n: math.nextafter(p.value, 0) for n, p in parameters(row).items() if p.path[-1] == "lr"}
    pairs = zip(exact(fill(row, rates), h, t), exact(row, h, t), strict=True)
    return max(float(abs(a - b) / b) for a, b in pairs if b > VANISHED)


def assert_exact(row: Optimizer, h: float, t: int, vanished: float = VANISHED) -> None:
    error = max(missed(row, h, t, vanished))
    # Two roots that meet at -1 are ill-conditioned: one rounding of lr h changes the answer by t^2 roundings.
    # No method that forms lr h in float64 does better, so there the bar is four such changes.
    assert error < BAR or error < 4 * conditioning(row, h, t), f"{row} at h = {h}, step {t}: {error:.1e}"


BETAS = [0.25, 0.5, 0.9, 0.99, 0.999, 1 - 1e-5]


@pytest.mark.parametrize("t", [1, 10, 1000, 10**6])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("side", [-1, 1])
def test_critical_damping(beta: float, side: int, t: int) -> None:
    """x = (1 -+ sqrt beta)^2: A has no eigenvectors to diagonalise it with."""
    assert_exact(HeavyBall((1 + side * math.sqrt(beta)) ** 2, beta), 1.0, t)
    if side < 0:
        assert_exact(Nesterov(1 - 4 * beta / (1 + beta) ** 2, beta), 1.0, t)  # its own critical point


@pytest.mark.parametrize("t", [1000, 10**6])
@pytest.mark.parametrize("beta", [0.0, *BETAS])
def test_close_to_the_stability_limit(beta: float, t: int) -> None:
    assert_exact(SGD(2 - 1e-6), 1.0, t)
    assert_exact(HeavyBall(2 * (1 + beta) - 1e-6, beta), 1.0, t)
    assert_exact(Nesterov(2 * (1 + beta) / (1 + 2 * beta) - 1e-6, beta), 1.0, t)


@pytest.mark.parametrize("t", [10**6, 10**9])
@pytest.mark.parametrize("beta", [0.0, *BETAS])
def test_a_hair_of_curvature(beta: float, t: int) -> None:
    for lr, h in ((1e-10, 1.0), (0.7, 1e-10)):
        assert max(missed(SGD(lr), h, t)) < BAR
        assert max(missed(HeavyBall(lr, beta), h, t)) < BAR
        assert max(missed(Nesterov(lr, beta), h, t)) < BAR


@pytest.mark.parametrize("x", [1e-9, 1e-4, 0.3, 1.0, 2.9])
@pytest.mark.parametrize("t", [1000, 10**6])
def test_long_memory(x: float, t: int) -> None:
    for decay in (0.9, 0.99999):
        assert_exact(HeavyBall(x, 1 - 1e-5), 1.0, t)
        assert_exact(EMA(SGD(min(x, 1.9)), decay), 1.0, t)
        assert_exact(EMA(HeavyBall(x, 1 - 1e-5), decay), 1.0, t)


hard_rows = pytest.mark.parametrize("name", ROWS)


@hard_rows
def test_every_row_with_long_memory(name: str) -> None:
    row = set_all(ROWS[name], momentum=1 - 1e-5, decay=0.99999)
    assert_exact(row, 0.5, 10**6 if name in CYCLIC else 300)


@hard_rows
def test_every_row_after_many_steps(name: str) -> None:
    # An average that cancels to nothing is good to the square of the rounding of what cancelled.
    assert_exact(
        ROWS[name], 0.01, 10**6 if name in CYCLIC else 300, vanished=1e-28 if ROWS[name].averages else VANISHED
    )


@hard_rows
def test_every_row_close_to_its_limit(name: str) -> None:
    limit = Quadratic(Spectrum([1.0])).stability_limit(ROWS[name])
    if name in CYCLIC and limit < 100:
        assert_exact(set_all(ROWS[name], lr=limit - 1e-6), 1.0, 10**6)


@hard_rows
def test_every_row_on_a_hair_of_curvature(name: str) -> None:
    syncs = "lookahead" in name
    # Lookahead mixes slow and fast weights at each sync with shares that add up to one but for a rounding, and t syncs
    # add t roundings: 1e-9 holds up to 10^7 steps, and below at 10^9.
    row, t = (set_all(ROWS[name], lr=1e-8), 10**7) if syncs else (set_all(ROWS[name], lr=1e-10), 10**9)
    assert max(missed(row, 1.0, t if name in CYCLIC else 300)) < BAR
    if syncs and name in CYCLIC:
        assert max(missed(set_all(row, lr=1e-10), 1.0, 10**9)) < 10**9 * 2.0**-53


def moved(dynamics: Trajectory, stops: list[int]) -> MomentMap:
    state, now = dynamics.start(), 0
    for t in stops:
        state, now = dynamics.move(state, now, t), t
    return state


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_stops_on_the_way_do_not_matter(row: Optimizer) -> None:
    h = np.array([0.9, 0.2, 1e-3])
    plans = [None, cosine(50), Schedule([7, 30, 9], [1.0, 0.5, 0.1], batch_size=[1, 2, 4])]
    for plan in plans:
        d = Trajectory(row.at_horizon(97), h, plan)
        once = d.read(moved(d, [97]), 97)
        often = d.read(moved(Trajectory(row.at_horizon(97), h, plan), [1, 2, 8, 9, 31, 60, 61, 97]), 97)
        assert relative_error(often, once, 1e-25) < 1e-12  # the same products in another order


@pytest.mark.parametrize("row", [SGD(0.5), HeavyBall(0.2, 0.9), ScheduleFree(0.5, 0.9), EMA(SGD(0.4), 0.8)], ids=str)
def test_a_scan_is_its_steps(row: Optimizer) -> None:
    h, plan = np.array([1.0, 0.03]), None if isinstance(row, ScheduleFree) else cosine(40)
    d = Trajectory(row, h, plan)
    affine = d.affine(0)
    assert affine is not None
    state, signal, noise = d.scan(affine, d.start(), 0, 40, np.ones(2), np.ones(2))
    walked = d.start()
    for t in range(40):
        walked = d.step(t) @ walked
        seen = d.read(walked, t + 1)
        assert relative_error([signal[t], noise[t]], [m.sum() for m in seen]) < 1e-12
    assert relative_error(state.A, walked.A, 1e-12) < 1e-12
    assert relative_error(state.Q, walked.Q) < 1e-12


def test_a_curved_family_is_not_scanned() -> None:
    """Lookahead's sync and a momentum schedule are no line in one scalar."""
    assert Trajectory(Lookahead(SGD(0.5), 0.5, 3), np.ones(1), cosine(9)).affine(0) is None
    assert Trajectory(HeavyBall(0.5, 0.5), np.ones(1), cosine(9).on("momentum")).affine(0) is None


def test_floor_is_infinite_on_unstable_modes_only() -> None:
    d = Trajectory(SGD(1.0), np.array([0.5, 2.5]))
    assert np.isfinite(d.floor()).tolist() == [True, False]
    assert not d.stable()
    assert Trajectory(SGD(1.0), np.array([0.5, 1.5])).stable()


def test_slow_modes_count_as_stable() -> None:
    assert Trajectory(HeavyBall(1.0, 0.999), np.array([1e-30, 1e-17, 1e-3])).stable()
    assert math.isfinite(Quadratic(Spectrum([1e-30, 1.0])).floor(EMA(Nesterov(0.1, 0.99), 0.999), 1))


@dataclass(frozen=True)
class Listed(HeavyBall):
    """Heavy ball whose entries are plain lists, as a user's own optimizer may write them."""

    def system(self, h: Any, t: int) -> Any:
        G, b = super().system(h, t)
        return [[np.ravel(e).tolist() if np.ndim(e) else e for e in row] for row in G], b


def test_entries_of_a_step_may_be_lists() -> None:
    h = np.geomspace(1, 0.01, 7)
    for listed, plain in zip(
        Trajectory(Listed(0.1, 0.9), h).end(50), Trajectory(HeavyBall(0.1, 0.9), h).end(50), strict=True
    ):
        np.testing.assert_array_equal(listed, plain)
