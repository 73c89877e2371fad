"""Least squares: the exact moments against dense recursions and against real minibatches, and what follows from them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS
from reference import relative_error, rule
from twin import second_moments

import nqm.problems.coupled
from nqm import (  # fmt: skip
    EMA,
    SGD,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Nesterov,
    Optimizer,
    Outcome,
    Polyak,
    Quadratic,
    Schedule,
    ScheduleFree,
    Spectrum,
    constant,
    cosine,
    warmup,
)
from nqm.engine.kernels import plain, plain_loops
from nqm.optimizers.base import fill, parameters
from nqm.sampling.laws import law
from nqm.sampling.replicas import Plan
from nqm.sampling.sources import Minibatch

H = np.array([1.0, 0.45, 0.2, 0.06])
MODES = Spectrum(H, s=[0.5, 1.0, 2.0, 0.3])
SIGMA2 = 0.6
TIMES = [1, 2, 5, 12, 30]
ROUNDING = 1e-11  # sums of a few hundred products in another order and basis
PAPER = LeastSquares(Spectrum.power_law(10_000))

rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


class Dense:
    """A power of H as a matrix that multiplies gradients, for the rule of a preconditioner in a rotated basis."""

    def __init__(self, R: Any, h: Any) -> None:
        self.R, self.h = R, h

    def __pow__(self, power: float) -> Dense:
        return Dense(self.R, self.h**power)

    def __mul__(self, g: Any) -> Any:
        return g @ (self.R * self.h) @ self.R.T


def dense_moments(row: Optimizer, B: float, t: int, R: Any, schedule: Schedule | None = None) -> Any:
    """E[theta theta'] of the reported weights in the eigenbasis, from the d x d second moments of everything remembered.

    The step, the response to a gradient and the point of the gradient come from moving unit vectors through the
    literature's update rule; the covariance of the gradient is (H S H + tr(H S) H + sigma^2 H) / B.
    """
    d, matrix = len(H), (R * H) @ R.T
    algorithm = rule(row, Dense(R, H), t)
    slots = len(algorithm.start(np.zeros(d)))
    unit = np.eye(slots * d).reshape(slots * d, slots, d)
    state = [unit[:, i] for i in range(slots)]
    first = np.concatenate(algorithm.start(R.T), axis=1)  # rows: what theta_0 along each eigenvector gives
    M = (first.T * MODES.s) @ first
    for j in range(t):
        lr, momentum, batch = schedule.at(j) if schedule else (1.0, 1.0, 1.0)
        points: list[Any] = []

        def gradient(y: Any, points: Any = points) -> Any:
            points.append(y)
            return y @ matrix

        A = np.concatenate(algorithm.step(state, gradient, j, lr, momentum), axis=1)
        still = [np.zeros((d, d))] * slots
        b = np.concatenate(algorithm.step(still, lambda y: np.eye(d), j, lr, momentum), axis=1)
        S = points[0].T @ M @ points[0]
        C = (matrix @ S @ matrix + np.trace(matrix @ S) * matrix + SIGMA2 * matrix) / (B * batch)
        M = A.T @ M @ A + b.T @ C @ b
    read = algorithm.weights(state, t)
    return R.T @ (read.T @ M @ read) @ R


def exact(row: Optimizer, B: float, times: Any = TIMES, schedule: Schedule | None = None) -> Any:
    """Second moments of the reported weights, (times, modes)."""
    signal, noise = LeastSquares(MODES, SIGMA2).moments(row, times, B, schedule)
    return signal + noise / B


def rotation(seed: int = 4) -> Any:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((len(H), len(H))))[0]


@rows
def test_moments_are_those_of_the_dense_recursion(row: Optimizer) -> None:
    for B in (3, 40):
        for t, found in zip(TIMES, exact(row, B), strict=True):
            expected = np.diag(dense_moments(row, B, t, rotation()))
            assert relative_error(found, expected) < ROUNDING, (B, t)


SCHEDULE = (
    warmup(6) + cosine(20) & constant(9, 0.5).on("momentum") & (constant(11) + constant(30, 4.0)).on("batch_size")
)


@pytest.mark.parametrize("name", ["sgd", "nesterov", "ema_heavy_ball", "lookahead_sgd", "schedule_free", "polyak_step"])
def test_moments_under_a_schedule(name: str) -> None:
    for t, found in zip(TIMES, exact(ROWS[name], 3, TIMES, SCHEDULE), strict=True):
        expected = np.diag(dense_moments(ROWS[name], 3, t, np.eye(len(H)), SCHEDULE))
        assert relative_error(found, expected) < ROUNDING


def recursion(lr: float, B: float, t: int, own: bool = True, coupling: bool = True) -> Any:
    """SGD's moments: s' = ((1-x)^2 + x^2/B) s + (lr^2 h/B) sum h s + lr^2 h sigma^2/B."""
    x, s = lr * H, MODES.s
    for _ in range(t):
        s = (
            ((1 - x) ** 2 + own * x**2 / B) * s
            + coupling * lr**2 * H / B * (H @ s)
            + lr**2 * H * SIGMA2 / B
        )  # fmt: skip
    return s


def test_sgd_is_the_recursion_of_the_textbook() -> None:
    for t, found in zip([1, 10, 500, 20_000], exact(SGD(0.4), 2, [1, 10, 500, 20_000]), strict=True):
        assert relative_error(found, recursion(0.4, 2, t)) < ROUNDING * math.sqrt(t)
    run = LeastSquares(MODES, SIGMA2).run(SGD(0.4), 2, [0, 5])
    assert run.loss[1] == pytest.approx(H @ recursion(0.4, 2, 5) / 2, rel=1e-12)
    assert run.loss == pytest.approx(run.signal + run.noise / 2)
    assert run.band_signal.sum(0) == pytest.approx(run.signal)
    assert run.signal == pytest.approx(Quadratic(MODES).run(SGD(0.4), 2, [0, 5]).signal)
    m = recursion(0.4, 2, 5)
    C = H * (H * m + H @ m + SIGMA2)
    assert run.noise_scale[1] == pytest.approx(C.sum() / (H**2 @ m))
    assert run.curvature_noise_scale[1] == pytest.approx((H @ C) / (H**3 @ m))


def test_multiplicity_stands_for_so_many_modes() -> None:
    some = LeastSquares(Spectrum([1.0, 0.3], count=[2, 3]), 0.5)
    each = LeastSquares(Spectrum([1.0, 1.0, 0.3, 0.3, 0.3]), 0.5)
    for row in (ROWS["heavy_ball"], ROWS["lookahead_nesterov"]):
        assert some.run(row, 6, 50).loss == pytest.approx(each.run(row, 6, 50).loss, rel=1e-12)
        assert some.floor(row, 60) == pytest.approx(each.floor(row, 60), rel=1e-12)


@pytest.mark.parametrize("row", [ROWS["sgd"], ROWS["heavy_ball"], ROWS["ema_heavy_ball"], ROWS["schedule_free"]])
@pytest.mark.parametrize("modes", [3, 300])
def test_the_compiled_loop_is_the_plain_one(row: Optimizer, modes: int) -> None:
    problem = LeastSquares(Spectrum.power_law(modes), SIGMA2)
    settings = fill(row, {"lr": np.array([[0.1], [0.2]])})

    def both() -> Any:
        coupled = problem.motion(settings, 5)
        state, signal, noise = coupled.walk(coupled.start(), 0, 40)
        return np.concatenate([signal, noise]), state.Q

    fast = both()
    with plain_loops():
        slow = both()
    for one, other in zip(fast, slow, strict=True):
        assert np.abs(one - other).max() <= 1e-12 * np.abs(other).max()


# Real minibatches.

MANY = Spectrum(np.geomspace(1.0, 0.02, 12), s=np.linspace(0.5, 2.0, 12))
LOUD = 8  # batch size: small enough for every term of the noise to count, large enough for tame fourth moments


def gentle(row: Optimizer) -> Optimizer:
    """At a third of its learning rate: the catalogue's are for noise that does not feed back."""
    lr = next(p for p in parameters(row).values() if p.path[-1] == "lr")
    return fill(row, {lr.name: lr.value / 3})


def scores(row: Optimizer, replicas: int = 4_000, seed: int = 2, rotated: bool = False, **laws: str) -> Any:
    """z-scores of second moments over real minibatches, (times, modes)."""
    R = np.linalg.qr(np.random.default_rng(0).standard_normal((len(MANY), len(MANY))))[0] if rotated else None
    source = Minibatch(
        MANY, SIGMA2, law(laws.get("features", "gaussian")), law(laws.get("labels", "gaussian")), "gaussian", R
    )
    mean, stderr = second_moments(Plan(source, row, LOUD, TIMES, None, replicas, seed))
    signal, noise = LeastSquares(MANY, SIGMA2).moments(row, TIMES, LOUD)
    return (mean - (signal + noise / LOUD)) / stderr


def rms(z: Any) -> float:
    return math.sqrt(float(np.mean(z**2)))


@pytest.mark.parametrize("name", ROWS)
def test_real_minibatches_have_the_exact_moments(name: str) -> None:
    z = scores(gentle(ROWS[name]), rotated=name > "n")
    assert 0.8 < rms(z) < 1.2
    assert np.abs(z).max() < 5


def test_the_law_of_the_labels_does_not_matter_that_of_the_features_does() -> None:
    z = scores(SGD(0.3), labels="student_t(5)")
    assert 0.8 < rms(z) < 1.2
    assert rms(scores(SGD(0.3), 20_000, features="rademacher")) > 2  # E z^4 = 1 and not 3: less noise


PLANTED = {"own": (lambda h, mass: 0 * h, None), "coupling": (lambda h, mass: h - mass, 1)}


LIVELY = [SGD(0.6), HeavyBall(0.3, 0.5), Nesterov(0.2, 0.8)]


@pytest.mark.parametrize(
    ("row", "dropped"), [*((row, name) for row in LIVELY for name in PLANTED), (EMA(SGD(0.6), 0.5), "coupling")]
)
def test_a_dropped_term_of_the_noise_shows(row: Optimizer, dropped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    curvature, alone = PLANTED[dropped]

    def scan(*args: Any) -> Any:
        *first, h, c, s, mass, label_noise, per_example, nodes = args
        parts = plain.scan_coupled(*first, curvature(h, mass), c, s, mass, label_noise, per_example, alone or nodes)
        return tuple(part.sum(0, keepdims=True) for part in parts)

    monkeypatch.setattr(nqm.problems.coupled, "loops", lambda: SimpleNamespace(scan_coupled=scan))
    assert rms(scores(row, 16_000 if dropped == "own" else 4_000)) > 2


def test_a_gradient_taken_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nesterov, "gradient_point", Optimizer.gradient_point)
    with pytest.raises(ValueError, match=r"Nesterov.*define gradient_point\(t\)"):
        LeastSquares(MODES).run(Nesterov(0.1, 0.9), 4, 10)


def test_sample_is_a_run_with_error_bars() -> None:
    problem, row = LeastSquares(Spectrum([1.0, 0.3, 0.1], count=[1, 2, 1]), 0.4), HeavyBall(0.1, 0.6)
    plain = problem.sample(row, 4, [0, 3, 20], replicas=4_000, seed=1)
    assert np.abs((plain.loss - problem.run(row, 4, [0, 3, 20]).loss) / plain.stderr).max() < 4
    assert plain.sampled
    assert set(plain.quantiles or ()) == {0.1, 0.5, 0.9}
    turned = problem.sample(row, 4, [0, 3, 20], replicas=4_000, seed=1, rotation="random", workers=1)
    assert np.abs(turned.loss / plain.loss - 1).max() < 1e-12
    silent = problem.sample(row, math.inf, [0, 20], replicas=50_000).loss
    assert silent == pytest.approx(problem.run(row, math.inf, [0, 20]).loss, rel=0.05)
    grown = problem.sample(SGD(0.2), 2, [30], replicas=4_000, schedule=(constant(9) + constant(9, 3)).on("batch_size"))
    known = problem.run(SGD(0.2), 2, [30], schedule=(constant(9) + constant(9, 3)).on("batch_size")).loss
    assert abs(grown.loss - known) < 4 * grown.stderr
    with pytest.raises(ValueError, match=r"batch_size must be a whole number at every step, got 2\.5"):
        problem.sample(row, 2.5, 10)
    with pytest.raises(ValueError, match="mode by mode"):
        LeastSquares(Spectrum.power_law(10**6)).sample(row, 2, 10)
    with pytest.raises(ValueError, match="start must be"):
        problem.sample(row, 2, 10, start="zero")  # type: ignore[arg-type]


# Stability and the steady state.


def whole_map(row: Optimizer, B: float, h: Any) -> Any:
    """One cycle as a dense matrix on all moments of all modes, built column by column: nothing of it is solved for."""
    systems = [row.system(h, t) for t in range(row.repeats_from, row.repeats_from + row.cycle)]
    k, d = len(systems[0][1]), len(h)

    def step(M: Any) -> Any:
        for t, (G, b) in enumerate(systems):
            A = np.eye(k)[..., None] + np.array([[e + 0 * h for e in g] for g in G])
            jolt, p = np.array([e + 0 * h for e in b]), np.array(row.gradient_point(t))
            m = np.einsum("i,ijx,j->x", p, M, p)
            M = np.einsum("ilx,lmx,jmx->ijx", A, M, A) + h * (h * m + h @ m) / B * jolt[:, None] * jolt
        return M

    units = np.eye(k * k * d).reshape(-1, k, k, d)
    return np.array([step(M).ravel() for M in units]).T


SETTLING = {n: r for n, r in ROWS.items() if r.at_horizon(9).cycle and not r.averages}


@pytest.mark.parametrize("name", SETTLING)
def test_stability_is_that_of_the_dense_map(name: str) -> None:
    row, problem = SETTLING[name], LeastSquares(MODES, SIGMA2)
    limit = problem.stability_limit(row, 3)
    lr = next(p for p in parameters(row).values() if p.path[-1] == "lr").name
    for factor, stable in ((1 - 1e-6, True), (1 + 1e-6, False)):
        radius = np.abs(np.linalg.eigvals(whole_map(fill(row, {lr: limit * factor}), 3, H))).max()
        assert (radius < 1) == stable, radius
        assert math.isfinite(problem.floor(fill(row, {lr: limit * factor}), 3)) == stable


@pytest.mark.parametrize("B", [1, 4, 100, 1e6])
def test_sgd_loses_stability_where_the_closed_form_says(B: float) -> None:
    for problem in (PAPER, LeastSquares(MODES), LeastSquares(Spectrum.power_law(300, 0.5))):
        h = problem.spectrum.h
        low, high = 0.0, 2 / (1 + 1 / B) / h.max()
        for _ in range(100):
            lr = (low + high) / 2
            x = lr * h
            low, high = (lr, high) if (x / (B * (2 - x * (1 + 1 / B)))).sum() < 1 else (low, lr)
        assert problem.stability_limit(SGD(), B) == pytest.approx(low, rel=1e-8)


def test_a_small_batch_caps_the_learning_rate() -> None:
    """About 2 B / (tr H + ...) at small batch; additive noise knows only 2 / h_max."""
    limits = [PAPER.stability_limit(SGD(), B) for B in (1, 4, 16, 64, 4096)]
    assert limits == sorted(limits)
    assert limits[0] == pytest.approx(2 / PAPER.spectrum.trace, rel=0.1)
    assert limits[-1] > 0.99 * PAPER.additive.stability_limit(SGD())
    assert PAPER.run(SGD(0.9), 4, 100).outcome is Outcome.diverged
    assert PAPER.additive.run(SGD(0.9), 4, 100).outcome is Outcome.finished
    assert "gain of" in PAPER.run(SGD(0.9), 4, 100).message
    assert "below 0.729214" in PAPER.run(SGD(0.9), 4, 100).message
    assert "spectral radius" in PAPER.run(SGD(2.5), 1e9, 100).message


@pytest.mark.parametrize("name", SETTLING)
def test_the_floor_is_where_a_long_run_ends(name: str) -> None:
    row, problem = gentle(SETTLING[name]), LeastSquares(MODES, SIGMA2)
    cycle = row.cycle
    assert problem.floor(row, 6) == pytest.approx(problem.curve(row, 6)(2**13 * cycle)[0], rel=1e-9)
    larger = (constant(5) + constant(5, 3.0)).on("batch_size")
    if cycle == 1:  # else the cycle that follows begins at another of its steps
        assert problem.floor(row, 6, larger) == pytest.approx(problem.floor(row, 18), rel=1e-12)


def test_the_floor_of_a_long_cycle() -> None:
    problem = LeastSquares(Spectrum.power_law(400), SIGMA2)
    for period, close in ((12, 1e-9), (30, 2e-5)):  # beyond 12 steps the estimate has a polynomial over the cycle
        row = Lookahead(SGD(0.3), 0.5, period)
        assert problem.floor(row, 50) == pytest.approx(problem.curve(row, 50)(2**13 * period)[0], rel=close)
    assert math.isnan(problem.floor(Lookahead(SGD(0.3), 0.5, 300), 50))
    assert problem.run(Lookahead(SGD(0.3), 0.5, 300), 50, 10).outcome is Outcome.finished
    with pytest.raises(ValueError, match="at most 256 steps"):
        problem.stability_limit(Lookahead(SGD(), 0.5, 300), 50)


def test_floors_that_are_not_numbers() -> None:
    problem = LeastSquares(MODES, SIGMA2)
    assert problem.floor(Polyak(SGD(0.3), 0), 4) == 0
    assert problem.floor(ScheduleFree(0.3, 0.9), 4) == 0
    assert math.isinf(problem.floor(Polyak(SGD(1.9), 0), 1))
    assert math.isnan(problem.floor(SGD(0.3), 4, constant(5) + constant(5, 0.0)))
    assert LeastSquares(MODES, 0.0).floor(SGD(0.3), 4) == 0  # without label noise nothing is left


def test_near_the_minimum_of_a_large_batch_it_is_the_quadratic() -> None:
    row, B = HeavyBall(0.05, 0.8), 10**6
    assert PAPER.floor(row, B) == pytest.approx(PAPER.additive.floor(row, B), rel=1e-5)
    assert PAPER.run(row, B, [500]).loss == pytest.approx(PAPER.additive.run(row, B, [500]).loss, rel=1e-4)
    assert PAPER.run(row, math.inf, [50]).loss == pytest.approx(PAPER.additive.run(row, math.inf, [50]).loss, rel=1e-12)
    assert PAPER.additive.spectrum.c == pytest.approx(PAPER.spectrum.h)


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="wrap arrays as Spectrum"):
        LeastSquares([1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"label_noise must be.*-1"):
        LeastSquares(MODES, -1)
    with pytest.raises(ValueError, match="set label_noise"):
        LeastSquares(Spectrum([1.0, 0.5], c=[1.0, 2.0]))
    assert LeastSquares(Spectrum([1.0, 0.5], c=[1.0, 2.0]), 0.3).label_noise == 0.3
    assert LeastSquares(Spectrum([1.0, 0.5], c=[2.0, 1.0])).label_noise == 2.0
    with pytest.raises(ValueError, match="lr of SGD"):
        LeastSquares(MODES).run(SGD(), 4, 10)
    with pytest.raises(ValueError, match="batch_size must be"):
        LeastSquares(MODES).stability_limit(SGD(), 0)
