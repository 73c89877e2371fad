"""Every row of the catalogue against its update rule, its invariances, its closed forms; and planted bugs that must show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from catalogue import LIMITED, ROWS, set_all
from reference import impulses, loop, losses, relative_error

import nqm
from nqm import (
    EMA,
    SGD,
    HeavyBall,
    Lookahead,
    Nesterov,
    Optimizer,
    Polyak,
    Preconditioned,
    Quadratic,
    ScheduleFree,
    Spectrum,
    free,
)
from nqm.optimizers.base import Wrapper, fill, parameters

FEW = Spectrum([1.0, 0.5, 0.11, 0.003], c=[1.0, 0.3, 0.2, 2.0], s=[1.0, 2.0, 0.5, 1.0], count=[1, 1, 3, 10])
TIMES = [0, 1, 2, 3, 5, 10, 17, 60, 151]
EXACT = 1e-9  # the project's bar; the rows reach 1e-13
ROUNDING = 1e-12  # the same sums in another order: some hundred roundings of 1e-16, amplified by momentum

rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
limited = pytest.mark.parametrize("row", LIMITED.values(), ids=LIMITED.keys())


def loop_error(row: Optimizer, spectrum: Spectrum = FEW, times: list[int] = TIMES) -> float:
    """How far a run is from the dense loop of the update rule."""
    run = Quadratic(spectrum).run(row, 1.0, times)
    signal, noise = losses(spectrum, loop(row, spectrum.h, times))
    return max(relative_error(run.signal, signal), relative_error(run.noise, noise))


def impulse_error(row: Optimizer, spectrum: Spectrum = FEW, times: list[int] = TIMES) -> float:
    """How far a run is from the response to unit impulses."""
    run = Quadratic(spectrum).run(row, 1.0, times)
    expected = [losses(spectrum, impulses(row, spectrum.h, t)) for t in times]
    signal, noise = np.transpose(expected)
    return max(relative_error(run.signal, signal), relative_error(run.noise, noise))


@rows
def test_run_is_the_plain_loop(row: Optimizer) -> None:
    assert loop_error(row) < EXACT


@rows
def test_run_is_the_impulse_response(row: Optimizer) -> None:
    assert impulse_error(row) < EXACT


@rows
@pytest.mark.parametrize("h", [1e-7, 0.02, 0.9])
def test_one_mode_is_the_plain_loop(row: Optimizer, h: float) -> None:
    # A single mode may pass close to zero, where rounding is relative to what cancelled: 1e-12 of the start.
    run = Quadratic(Spectrum([h])).run(row, 1.0, [1, 7, 40])
    signal, noise = losses(run_spectrum := Spectrum([h]), loop(row, [h], [1, 7, 40]))
    assert relative_error(run.signal, signal, 1e-12 * run_spectrum.initial_loss) < EXACT
    assert relative_error(run.noise, noise) < EXACT


@rows
def test_modes_add(row: Optimizer) -> None:
    together = Quadratic(FEW).run(row, 16.0, TIMES).loss
    alone = 0.0
    for h, c, s, n in zip(FEW.h, FEW.c, FEW.s, FEW.count, strict=True):
        alone = alone + Quadratic(Spectrum([h], [c], [s], [n])).run(row, 16.0, TIMES).loss
    assert relative_error(together, alone) < ROUNDING


@rows
def test_signal_and_noise_separate(row: Optimizer) -> None:
    run = Quadratic(FEW).run(row, 7.0, TIMES)
    assert relative_error(run.loss, run.signal + run.noise / 7.0) < 1e-15
    assert Quadratic(FEW).run(row, math.inf, TIMES).loss.tolist() == run.signal.tolist()
    louder = Quadratic(Spectrum(FEW.h, 3 * FEW.c, FEW.s, FEW.count)).run(row, 7.0, TIMES)
    assert louder.signal.tolist() == run.signal.tolist()
    assert relative_error(louder.noise, 3 * run.noise) < 1e-15
    nearer = Quadratic(Spectrum(FEW.h, FEW.c, FEW.s / 4, FEW.count)).run(row, 7.0, TIMES)
    assert nearer.noise.tolist() == run.noise.tolist()
    assert relative_error(nearer.signal, run.signal / 4) < 1e-15


@rows
def test_units_of_curvature_do_not_matter(row: Optimizer) -> None:
    # h -> k h with lr h^(1-p) held: the same x on every mode; c -> k c and s -> s / k keep the loss.
    k, share, inner = 8.0, 1.0, row
    while isinstance(inner, Wrapper):
        share *= 1 - getattr(inner, "power", 0.0)
        inner = inner.inner
    lr = next(p.value for p in parameters(row).values() if p.path[-1] == "lr")
    moved = Quadratic(Spectrum(k * FEW.h, k * FEW.c, FEW.s / k, FEW.count)).run(
        set_all(row, lr=lr * k**-share), 5.0, TIMES
    )
    assert relative_error(moved.loss, Quadratic(FEW).run(row, 5.0, TIMES).loss) < ROUNDING


@rows
def test_settings_at_once_are_settings_one_by_one(row: Optimizer) -> None:
    rates = np.array([0.05, 0.11, 0.3])
    name = next(n for n, p in parameters(row).items() if p.path[-1] == "lr")
    signal, noise = Quadratic(FEW).losses(fill(row, {name: rates[:, None]}), 33, 1)
    for i, lr in enumerate(rates):
        one = Quadratic(FEW).losses(fill(row, {name: float(lr)}), 33, 1)
        assert relative_error([signal[i], noise[i]], one) < ROUNDING


@rows
def test_reported_steps_do_not_change_the_run(row: Optimizer) -> None:
    every = Quadratic(FEW).run(row, 9.0, list(range(41))).loss
    for t in (0, 1, 13, 40):
        assert relative_error(Quadratic(FEW).run(row, 9.0, [t]).loss, every[t]) < ROUNDING


@rows
def test_name_is_the_constructor(row: Optimizer) -> None:
    assert eval(str(row), {name: getattr(nqm, name) for name in nqm.__all__}) == row


@pytest.mark.parametrize("memory", [1e4, 3e5, 1e8])
def test_a_name_tells_long_memories_apart(memory: float) -> None:
    again = eval(str(EMA(HeavyBall(0.1, 1 - 1 / memory), 1 - 0.5 / memory)), {n: getattr(nqm, n) for n in nqm.__all__})
    assert 1 / (1 - again.inner.momentum) == pytest.approx(memory, rel=1e-3)
    assert 0.5 / (1 - again.decay) == pytest.approx(memory, rel=1e-3)


@rows
def test_free_parameters_are_refused_by_name(row: Optimizer) -> None:
    for name in parameters(row):
        family = fill(row, {name: free})
        for verb in (
            lambda o: Quadratic(FEW).run(o, 4, 10),
            lambda o: Quadratic(FEW).floor(o, 4),
            lambda o: nqm.steps_to_target(Quadratic(FEW), o, 4, 0.1),
        ):
            with pytest.raises(ValueError, match=rf"\b{name}\b.*free"):
                verb(family)


@limited
def test_floor_is_the_long_run(row: Optimizer) -> None:
    t = 10**7 // row.cycle * row.cycle  # 30 thousand time constants of the slowest mode, a whole number of cycles
    problem = Quadratic(FEW)
    run = problem.run(row, 3.0, [t])
    assert run.floor == problem.floor(row, 3.0)
    assert relative_error(run.loss, run.floor) < EXACT


def two_step_floor(T: float, D: float, a: float, q: float) -> float:
    return a**2 * q * (1 + D) / ((1 - D) * (1 + D - T) * (1 + D + T))


H, C, B = 0.6, 1.7, 8.0  # one mode; the closed forms are for its second moment
CLOSED: dict[str, tuple[Optimizer, float]] = {}


def _closed_forms() -> None:
    lr, beta, gamma, alpha, k = 0.8, 0.75, 0.9, 0.4, 5
    q, x = C / B, lr * H
    rho = 1 - x
    sgd = lr * q / (H * (2 - x))
    CLOSED["sgd"] = SGD(lr), sgd
    CLOSED["heavy_ball"] = HeavyBall(lr, beta), (1 + beta) * lr * q / (H * (2 + 2 * beta - x) * (1 - beta))
    CLOSED["nesterov"] = Nesterov(lr, beta), two_step_floor(rho * (1 + beta), rho * beta, lr, q)
    CLOSED["ema"] = EMA(SGD(lr), gamma), sgd * (1 - gamma) * (1 + rho * gamma) / ((1 + gamma) * (1 - rho * gamma))
    T, D = 1 + beta - x, beta
    shrink = (
        (1 - gamma) / (1 + gamma) * (1 + T * gamma * (1 - D) / (1 + D) - D * gamma**2) / (1 - T * gamma + D * gamma**2)
    )
    CLOSED["ema_heavy_ball"] = EMA(HeavyBall(lr, beta), gamma), two_step_floor(T, D, lr, q) * shrink
    up = alpha**2 * (1 - rho ** (2 * k))
    CLOSED["lookahead"] = Lookahead(SGD(lr), alpha, k), sgd * up / (up + 2 * alpha * (1 - alpha) * (1 - rho**k))
    p = 0.5
    a, y = lr * H**-p, lr * H ** (1 - p)
    CLOSED["preconditioned"] = Preconditioned(SGD(lr), p), a * q / (H * (2 - y))


_closed_forms()


@pytest.mark.parametrize(("optimizer", "moment"), CLOSED.values(), ids=CLOSED.keys())
def test_floor_is_its_closed_form(optimizer: Optimizer, moment: float) -> None:
    # 1e-12: both sides are a dozen roundings.
    assert Quadratic(Spectrum([H], [C])).floor(optimizer, B) == pytest.approx(H * moment / 2, rel=1e-12)


@pytest.mark.parametrize("t", [1, 2, 9, 40])
def test_second_order_recursion(t: int) -> None:
    """E theta_t^2 of theta' = T theta - D theta_prev - a eps, from its roots."""
    for lr, beta, nesterov in ((0.8, 0.75, False), (0.1, 0.3, False), (0.5, 0.6, True), (1.5, 0.2, True)):
        x = lr * H
        T, D = ((1 - x) * (1 + beta), (1 - x) * beta) if nesterov else (1 + beta - x, beta)
        root = np.sqrt(complex(T**2 - 4 * D))
        r1, r2 = (T + root) / 2, (T - root) / 2
        u, v = (((r1 ** (n + 1) - r2 ** (n + 1)) / (r1 - r2)).real for n in (t, t - 1))
        signal = (u - D * v) ** 2
        noise = two_step_floor(T, D, lr, C) * (1 - u**2 - D**2 * v**2 + 2 * D * T / (1 + D) * u * v)
        run = Quadratic(Spectrum([H], [C])).run((Nesterov if nesterov else HeavyBall)(lr, beta), B, [t])
        # 1e-10: the bracket cancels to a thousandth for small t.
        assert run.signal[0] == pytest.approx(H * signal / 2, rel=1e-10)
        assert run.noise[0] == pytest.approx(H * noise / 2, rel=1e-10)


@pytest.mark.parametrize(("s", "N"), [(0, 1), (0, 30), (12, 1), (12, 50)])
def test_tail_average(s: int, N: int) -> None:
    lr = 0.3
    rho, q = 1 - lr * H, C / B
    G = rho * (1 - rho**N) / (N * (1 - rho))
    start = rho ** (2 * s) + lr * q * (1 - rho ** (2 * s)) / (H * (2 - lr * H))
    bracket = N - 2 * rho * (1 - rho**N) / (1 - rho) + rho**2 * (1 - rho ** (2 * N)) / (1 - rho**2)
    moment = G**2 * start + q / (N**2 * H**2) * bracket
    run = Quadratic(Spectrum([H], [C])).run(Polyak(SGD(lr), s), B, [s + N])
    assert run.loss[0] == pytest.approx(H * moment / 2, rel=1e-11)  # the bracket cancels to a hundredth at N = 1
    if s:
        fraction = Quadratic(Spectrum([H], [C])).run(Polyak(SGD(lr), s / (s + N) + 1e-9), B, [s + N])
        assert fraction.loss[0] == pytest.approx(run.loss[0], rel=1e-13)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9, 0.999, 1 - 1e-5])
def test_stability_limits(beta: float) -> None:
    problem = Quadratic(Spectrum([2.5, 0.7, 1e-6]))
    limits = {
        SGD(): 2.0,
        HeavyBall(momentum=beta): 2 * (1 + beta),
        Nesterov(momentum=beta): 2 * (1 + beta) / (1 + 2 * beta),
        EMA(HeavyBall(momentum=beta), 0.9): 2 * (1 + beta),
        Polyak(Nesterov(momentum=beta), 0.5): 2 * (1 + beta) / (1 + 2 * beta),
    }
    for optimizer, limit in limits.items():
        # Bisected to 1e-10; eigenvalues of a nearly defective matrix are good to 1e-8 only, which moves the limit less.
        assert problem.stability_limit(optimizer) * 2.5 == pytest.approx(limit, rel=2e-10 if beta < 0.99 else 1e-7)
    half = problem.stability_limit(Preconditioned(SGD(), 0.5))
    assert half * math.sqrt(2.5) == pytest.approx(2, rel=2e-10)


@rows
def test_stability_limit_is_where_runs_blow_up(row: Optimizer) -> None:
    problem = Quadratic(Spectrum([1.0, 0.3]))
    limit = problem.stability_limit(row)
    if row.at_horizon(1).cycle == 0 or limit > 1e6:
        return
    for factor, stable in ((0.999, True), (1.001, False)):
        candidate = set_all(row, lr=limit * factor)
        assert math.isfinite(problem.floor(candidate, 1)) == stable
        grown = problem.run(candidate, math.inf, [200_000]).loss[0]
        assert (grown < 1) == stable


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: SGD(-1.0), "lr"),
        (lambda: SGD(0.0), "lr"),
        (lambda: SGD(math.nan), "lr"),
        (lambda: SGD(math.inf), "lr"),
        (lambda: SGD("0.1"), "lr"),
        (lambda: SGD(True), "lr"),
        (lambda: SGD(np.array([0.1, -1.0])), "lr"),
        (lambda: HeavyBall(0.1, 1.0), "momentum"),
        (lambda: HeavyBall(0.1, -0.1), "momentum"),
        (lambda: Nesterov(0.1, 2), "momentum"),
        (lambda: nqm.ScheduleFree(0.1, math.nan), "momentum"),
        (lambda: EMA(SGD(0.1), 1.0), "decay"),
        (lambda: Lookahead(SGD(0.1), 1.5, 5), "alpha"),
        (lambda: Lookahead(SGD(0.1), 0.5, 0), "period"),
        (lambda: Lookahead(SGD(0.1), 0.5, 2.5), "period"),
        (lambda: Polyak(SGD(0.1), -1), "start"),
        (lambda: Polyak(SGD(0.1), 1.5), "start"),
        (lambda: Preconditioned(SGD(0.1), 1.2), "power"),
    ],
)
def test_wrong_values_are_refused_by_name(make: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make()


def test_a_wrapper_needs_an_optimizer() -> None:
    with pytest.raises(ValueError, match="inner"):
        EMA(0.9, 0.9)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="optimizer"):
        Quadratic(FEW).run(0.1, 4, 10)  # type: ignore[arg-type]


def test_effective_rates() -> None:
    assert HeavyBall(0.1, 0.9).effective_lr == pytest.approx(1.0)
    assert EMA(Nesterov(0.1, 0.5), 0.9).effective_lr == pytest.approx(0.2)
    assert SGD(0.3).effective_lr == 0.3


def _flip(G: Any, i: int, j: int) -> Any:
    return [[-e if (a, b) == (i, j) else e for b, e in enumerate(row)] for a, row in enumerate(G)]


PLANTED = {
    "sign of the coupling": lambda G, b: (_flip(G, 0, 1), b),
    "sign of the force": lambda G, b: (_flip(G, 1, 0), b),
    "coupling dropped": lambda G, b: ([[G[0][0], 0.0], G[1]], b),
    "momentum applied twice": lambda G, b: ([G[0], [G[1][0], 2 * G[1][1]]], b),
    "noise only on the weights": lambda G, b: (G, [b[0], 0.0]),
    "noise with the wrong sign": lambda G, b: (G, [-b[0], b[1]]),
}


@pytest.mark.parametrize("bug", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_bug_shows(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row, right = HeavyBall(0.3, 0.9), HeavyBall.system
    assert loop_error(row) < EXACT
    assert impulse_error(row) < EXACT
    monkeypatch.setattr(HeavyBall, "system", lambda self, h, t: bug(*right(self, h, t)))
    assert loop_error(row) > 1e-3
    assert impulse_error(row) > 1e-3


def test_a_wrong_readout_and_a_wrong_start_show(monkeypatch: pytest.MonkeyPatch) -> None:
    row, slow = EMA(SGD(0.6), 0.9), Lookahead(SGD(0.6), 0.5, 5)
    assert (
        max(loop_error(row), loop_error(slow)) < EXACT
    )  # This is their first use, at which a contradiction would raise.
    monkeypatch.setattr(EMA, "readout", lambda self, t: [1.0, 0.0])
    assert loop_error(row) > 1e-3
    monkeypatch.undo()
    monkeypatch.setattr(EMA, "initial", lambda self: [1.0, 0.0])
    assert loop_error(row) > 1e-3
    monkeypatch.undo()
    monkeypatch.setattr(Lookahead, "cycle", 4)
    assert loop_error(slow) > 1e-3


@dataclass(frozen=True)
class PassThrough(Wrapper):
    """A wrapper that changes nothing."""

    def system(self, h: Any, t: int) -> Any:
        return self.inner.system(h, t)

    def initial(self) -> Any:
        return self.inner.initial()

    def readout(self, t: int) -> Any:
        return self.inner.readout(t)


def test_a_wrapper_passes_on_what_it_does_not_change() -> None:
    inner = ScheduleFree(0.5, 0.9)
    passed, times = PassThrough(inner), np.arange(5)
    np.testing.assert_array_equal(passed.pace(times), inner.pace(times))
    for name in (
        "cycle",
        "repeats_from",
        "steady",
        "averages",
        "linear",
        "elementwise",
        "effective_lr",
        "depends_on_horizon",
    ):
        assert getattr(passed, name) == getattr(inner, name)
    problem = Quadratic(Spectrum.power_law(20))
    np.testing.assert_array_equal(problem.run(passed, 8.0, [5000]).loss, problem.run(inner, 8.0, [5000]).loss)


def test_a_run_of_a_fraction_depends_on_its_length() -> None:
    assert Polyak(SGD(0.1), 0.5).depends_on_horizon
    assert PassThrough(Polyak(SGD(0.1), 0.5)).depends_on_horizon
    assert not any(
        o.depends_on_horizon for o in (SGD(0.1), Polyak(SGD(0.1), 0.0), Polyak(SGD(0.1), 7), EMA(SGD(0.1), 0.5))
    )
    assert EMA(Polyak(SGD(0.1), 0.5), 0.5).endless == EMA(Polyak(SGD(0.1), 5 * 10**8), 0.5)
    for row in ROWS.values():
        assert row.depends_on_horizon == (row.at_horizon(1) != row.endless)
