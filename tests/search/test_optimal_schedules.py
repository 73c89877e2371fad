"""Optimal schedules: exact gradients, the reference figures, batch sizes in closed form."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    Adam,
    HeavyBall,
    Lookahead,
    Nesterov,
    Preconditioned,
    Quadratic,
    Schedule,
    Spectrum,
    optimal_schedule,
    tune,
)
from nqm.engine.basis import Basis
from nqm.engine.kernels import loops
from nqm.optimizers.base import Optimizer, fill, free_parameters, parameters
from nqm.search.chain import Chain, split
from nqm.search.limits import Limit
from nqm.search.peaks import peaks
from nqm.search.rates import levels
from nqm.search.schedules import Scheduled, share_batches
from nqm.types import Wrong

FAMILIES = [SGD(), HeavyBall(), EMA(HeavyBall()), Preconditioned(Nesterov(), 0.5), EMA(Preconditioned(SGD()))]


@pytest.fixture(scope="module")
def paper() -> Quadratic:
    return Quadratic(Spectrum.power_law(10_000))


@pytest.fixture(scope="module")
def small() -> Quadratic:
    return Quadratic(Spectrum.power_law(40, noise_exponent=1.3))


def chain_of(
    problem: Quadratic, optimizer: SGD, lengths: list[int], inside: tuple[int, ...] = ()
) -> tuple[Chain, np.ndarray]:
    shared = [p for p in free_parameters(optimizer).values() if p.path[-1] != "lr"]
    u = np.array([0.3 if p.kind.high == 1.0 else 3.0 for p in shared])
    return Chain(problem, optimizer, shared, np.array(lengths), inside), u


INSIDE = (1, 3, 8, 20)  # steps of a piece after which its loss is read, beside its end


@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_gradient_is_the_derivative(small: Quadratic, optimizer: SGD) -> None:
    chain, u = chain_of(small, optimizer, [40, 40, 39], INSIDE)
    rates, weights = np.array([0.9, 0.3, 0.1]), np.random.default_rng(0).normal(size=(3, 5))

    def weigh(losses: np.ndarray) -> tuple[float, np.ndarray]:
        return float((weights * np.log(losses)).sum()), weights / losses

    def value(z: np.ndarray) -> float:
        return weigh(chain.losses(np.exp(z[:3]), z[3:], 64.0))[0]

    z = np.append(np.log(rates), u)
    found, slope = chain.gradient(rates, u, 64.0, weigh)
    assert found == pytest.approx(value(z), rel=1e-13)
    for i, exact in enumerate(slope):
        # Richardson's extrapolation of central differences: error O(step^4), about 1e-9 here.
        d = [(value(z + e * np.eye(len(z))[i]) - value(z - e * np.eye(len(z))[i])) / (2 * e) for e in (2e-3, 1e-3)]
        assert (4 * d[1] - d[0]) / 3 == pytest.approx(exact, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("optimizer", FAMILIES, ids=str)
def test_chain_is_the_scheduled_run(small: Quadratic, optimizer: SGD) -> None:
    chain, u = chain_of(small, optimizer, [40, 40, 39])
    values = {p.name: float(p.kind.value(x)) for p, x in zip(chain.shared, u, strict=True)}
    signal, shares = chain.noise_shares(np.array([0.9, 0.3, 0.1]), u)
    run = small.run(
        fill(optimizer, {**values, "lr": 0.9}), 64, [119], Schedule([40, 40, 39], np.array([0.9, 0.3, 0.1]) / 0.9)
    )
    np.testing.assert_allclose([run.signal[0], run.noise[0]], [signal, shares.sum()], rtol=1e-12)
    read, _ = chain_of(small, optimizer, [40, 40, 39], INSIDE)
    times = [t + inside for t, end in ((0, 40), (40, 40), (80, 39)) for inside in (*INSIDE, end)]
    run = small.run(
        fill(optimizer, {**values, "lr": 0.9}), 64, times, Schedule([40, 40, 39], np.array([0.9, 0.3, 0.1]) / 0.9)
    )
    np.testing.assert_allclose(read.losses(np.array([0.9, 0.3, 0.1]), u, 64.0).ravel(), run.loss, rtol=1e-12)


def exact_losses(spectrum: Spectrum, momentum: float, rates: np.ndarray, steps: int) -> list[float]:
    """Signal and noise of heavy ball after pieces of ``steps`` steps, in 50 digits."""
    total = [mp.mpf(0), mp.mpf(0)]
    with mp.workdps(50):
        for h, ws, wn in zip(spectrum.h, spectrum.signal_mass, spectrum.noise_mass, strict=True):
            x, N, m = mp.matrix([1, 0]), mp.zeros(2), mp.mpf(momentum)
            for lr in map(mp.mpf, rates.tolist()):
                A, b = mp.matrix([[1 - lr * h, -lr * m], [h, m]]), mp.matrix([-lr, 1])
                Q = b * b.T
                for bit in bin(steps)[:1:-1]:  # The lowest bit comes first.
                    if bit == "1":
                        x, N = A * x, A * N * A.T + Q
                    A, Q = A * A, A * Q * A.T + Q
            total = [total[0] + ws * x[0] ** 2, total[1] + wn * N[0, 0]]
    return [float(part) for part in total]


class Unsheared(Basis):
    """The planted bug: slots that are scaled and not sheared."""

    def __init__(self, G: np.ndarray) -> None:
        super().__init__(G)
        self.tilted, self.scale = False, loops().balance(np.ascontiguousarray(G))


def test_pieces_at_the_far_edge_of_stability(monkeypatch: pytest.MonkeyPatch) -> None:
    """lr h comes to 2 (1 + momentum): both eigenvalues of A come to -1, and powers in plain slots cancel."""
    problem, momentum, steps = Quadratic(Spectrum([1.0, 0.1], c=[1.0, 1.0])), 0.999, 5000
    rates = 2 * (1 + momentum) * np.array([1 - 1e-6, 0.9999])
    exact = exact_losses(problem.spectrum, momentum, rates, steps)
    run = problem.run(HeavyBall(rates[0], momentum), 64, [2 * steps], Schedule([steps, steps], rates / rates[0]))
    np.testing.assert_allclose([run.signal[0], run.noise[0]], exact, rtol=1e-9)
    chain = Chain(problem, HeavyBall(momentum=momentum), [], np.array([steps, steps]))
    signal, shares = chain.noise_shares(rates, np.zeros(0))
    np.testing.assert_allclose([signal, shares.sum()], exact, rtol=1e-9)
    monkeypatch.setattr("nqm.search.chain.Basis", Unsheared)
    assert abs(chain.noise_shares(rates, np.zeros(0))[1].sum() / exact[1] - 1) > 1e-7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch_size", "pieces", "reference"),
    [
        (64, 1, 95955),
        (64, 2, 28182),
        (64, 10, 17217),
        (64, 50, 16365),
        (1024, 2, 9140),
        (1024, 10, 7683),
        (1024, 50, 7325),
    ],
)
def test_never_above_the_reference_figures(paper: Quadratic, batch_size: int, pieces: int, reference: int) -> None:
    best = optimal_schedule(paper, SGD(), batch_size, 0.01, pieces=pieces)
    assert best.steps <= 1.001 * reference
    run = paper.run(best.optimizer, batch_size, [best.steps], best.schedule)
    assert run.loss[0] == pytest.approx(best.loss, rel=1e-9)
    assert best.loss <= 0.01


@pytest.mark.slow
def test_momentum_is_tuned_along(paper: Quadratic) -> None:
    fixed = optimal_schedule(paper, HeavyBall(momentum=0.5), 4096, steps=300, pieces=4)
    tuned = optimal_schedule(paper, HeavyBall(), 4096, steps=300, pieces=4)
    constant = tune(paper, HeavyBall(), 4096, steps=300)
    assert tuned.loss < fixed.loss
    assert tuned.loss < constant.loss


def test_one_piece_is_the_tuned_constant(small: Quadratic) -> None:
    assert optimal_schedule(small, SGD(), 64, steps=500, pieces=1).loss == pytest.approx(
        tune(small, SGD(), 64, steps=500).loss, rel=1e-5
    )


def test_more_pieces_are_never_worse(small: Quadratic) -> None:
    losses = [optimal_schedule(small, SGD(), 16, steps=600, pieces=n).loss for n in (1, 2, 4, 8)]
    assert np.all(np.diff(losses) < 0)


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "batch_size"), [(300, 2**10), (1000, 2**14)])
def test_divided_schedules_are_never_later_than_the_constant_one(dim: int, batch_size: int) -> None:
    problem = Quadratic(Spectrum.power_law(dim))
    constant = tune(problem, SGD(), batch_size, 0.01).steps or 0
    steps = [optimal_schedule(problem, SGD(), batch_size, 0.01, pieces=n).steps for n in (1, 2, 10)]
    assert constant >= steps[0] >= steps[1] >= steps[2]


@pytest.mark.slow
def test_momentum_is_never_a_hindrance(paper: Quadratic) -> None:
    """SGD is heavy ball without momentum; 10 pieces of heavy ball took 310,901 steps where SGD takes 209,464."""
    plain, heavy = (optimal_schedule(paper, o, 4, 0.01, pieces=10).steps for o in (SGD(), HeavyBall()))
    assert heavy <= 1.001 * plain


def test_a_descent_is_not_lost_where_slopes_overflow(paper: Quadratic) -> None:
    # Beyond the edge L-BFGS ends where a slope overflows, after it has met a good schedule; the last point gave a loss of 1.8.
    losses = [optimal_schedule(paper, SGD(), 1024, steps=2000, pieces=n, max_rate=math.inf).loss for n in (10, 50)]
    assert losses[1] < losses[0]


def test_long_pieces_do_not_collapse(paper: Quadratic) -> None:
    """Two pieces once took 20,708 steps where a constant rate takes 10,354: rates near the edge broke the bound, and fell to 0."""
    steps = [optimal_schedule(paper, SGD(), 1024, 0.01, pieces=n).steps for n in (1, 2, 4)]
    assert steps[0] == tune(paper, SGD(), 1024, 0.01).steps
    assert 9130 < steps[1] < 9150
    assert 8300 < steps[2] < 8400


def test_levels_divide_each_other() -> None:
    assert [levels(n) for n in (1, 7, 8, 50)] == [[1], [1, 7], [1, 2, 4, 8], [1, 5, 25, 50]]


def test_shared_batches_solve_the_budget_problem() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(3)
    shares, lengths, budget = rng.lognormal(sigma=3, size=6), np.array([5, 5, 5, 4, 4, 4]), 200.0
    best = share_batches(shares, lengths, budget)
    assert (best >= 1).all()
    assert lengths @ best == pytest.approx(budget)
    other = minimize(
        lambda b: (shares / b).sum(), np.full(6, budget / lengths.sum()), method="SLSQP", bounds=[(1, None)] * 6,
        constraints={"type": "eq", "fun": lambda b: lengths @ b - budget}, options={"maxiter": 500, "ftol": 1e-14},
    )  # fmt: skip
    assert (shares / best).sum() <= other.fun * (1 + 1e-6)


def test_batch_size_schedule_keeps_its_budget_and_its_promise(paper: Quadratic) -> None:
    best = optimal_schedule(paper, SGD(), 64, examples=2e6, pieces=10, on="batch_size")
    sizes = best.schedule.multipliers("batch_size", best.steps) * 64
    assert sizes.sum() == pytest.approx(2e6, rel=1e-9)
    assert sizes.min() >= 1 - 1e-12
    assert np.all(np.diff(sizes) >= 0)  # noise late in a run is what stays
    assert paper.run(best.optimizer, 64, [best.steps], best.schedule).loss[0] == pytest.approx(best.loss, rel=1e-9)
    assert best.loss < min(tune(paper, SGD(), B, examples=2e6).loss for B in (1, 8, 64, 256))


def test_split_is_even() -> None:
    assert split(11, 4).tolist() == [3, 3, 3, 2]


@pytest.mark.parametrize(
    ("keywords", "word"),
    [
        ({"target": 0.1, "pieces": 0}, "pieces"),
        ({"target": 0.1, "pieces": 2.5}, "pieces"),
        ({}, "exactly one"),
        ({"target": 0.1, "on": "momentum"}, "on"),
        ({"target": 0.1, "on": "batch_size"}, "budget"),
        ({"target": math.inf}, "target"),
    ],
)
def test_wrong_calls_are_refused_by_name(small: Quadratic, keywords: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        optimal_schedule(small, SGD(), 16, **keywords)  # type: ignore[arg-type]


def test_steps_that_are_not_alike_are_refused(small: Quadratic) -> None:
    with pytest.raises(ValueError, match="alike"):
        optimal_schedule(small, Lookahead(SGD(), 0.5, 5), 16, 0.1)


def test_a_target_that_the_start_has_already_is_refused(small: Quadratic) -> None:
    with pytest.raises(Wrong, match="target 10 is not below the initial loss"):
        optimal_schedule(small, SGD(), 16, 10.0)


# What the loss does on the way.


def walked(problem: Quadratic, found: Scheduled) -> np.ndarray:
    """The loss at the start and after every step, by plain steps of the dense covariance of each mode."""
    h, batch_size = problem.spectrum.h, found.batch_size
    k = len(found.optimizer.initial())
    x = np.array(found.optimizer.initial(), dtype=float)[:, None] * np.sqrt(problem.spectrum.s)
    M, losses = x[:, None] * x[None], []
    for t in range(found.steps + 1):
        r = np.array([float(e) for e in found.optimizer.readout(t)])  # type: ignore[arg-type]
        losses.append(float(0.5 * (problem.spectrum.count * h) @ np.einsum("i,ijx,j->x", r, M, r)))
        lr, momentum, batches = found.schedule.at(t)
        G, b = found.optimizer.scaled(lr, momentum).system(h, t)
        A = np.array([[np.broadcast_to(e, h.shape) for e in row] for row in G]) + np.eye(k)[..., None]
        b = np.array([np.broadcast_to(e, h.shape) for e in b])
        M = np.einsum("ilx,lmx,jmx->ijx", A, M, A) + b[:, None] * b[None] * problem.spectrum.c / (batch_size * batches)
    return np.array(losses)


def over_bound(losses: np.ndarray, pieces: int) -> np.ndarray:
    """The loss after every step, over 1.05 times the lowest loss at the end of an earlier piece."""
    ends = np.cumsum(split(len(losses) - 1, pieces))
    piece = np.searchsorted(ends, np.arange(1, len(losses)))
    lowest = np.minimum.accumulate(losses[[0, *ends]])
    return losses[1:] / (1.05 * lowest[piece])


BOUNDED = [
    (SGD(), 64, {"target": 0.05}, 5),
    (SGD(), 2**18, {"steps": 60}, 6),
    (SGD(), 2**18, {"target": 0.05}, 7),
    (HeavyBall(), 4096, {"target": 0.02}, 4),
    (HeavyBall(momentum=0.9), 2**18, {"steps": 60}, 6),
    (Nesterov(momentum=0.8), 2**14, {"target": 0.02}, 3),
    (EMA(SGD()), 256, {"steps": 200}, 4),
    (Preconditioned(SGD(), 0.5), 2**20, {"target": 0.01}, 10),
    (Preconditioned(HeavyBall(momentum=0.5), 0.5), 2**12, {"steps": 40}, 3),
]


@pytest.mark.parametrize(("optimizer", "batch_size", "goal", "pieces"), BOUNDED, ids=str)
def test_no_step_is_above_the_bound(optimizer: Optimizer, batch_size: float, goal: dict[str, Any], pieces: int) -> None:
    problem = Quadratic(Spectrum.power_law(200))
    found = optimal_schedule(problem, optimizer, batch_size, pieces=pieces, **goal)
    losses = walked(problem, found)
    over = over_bound(losses, pieces)
    assert over.max() <= 1
    assert (found.cap == "loss") == bool(over.max() > 0.99)
    assert found.rise == pytest.approx(max(1.0, losses[1:].max() / losses[0]), rel=1e-3)
    assert losses[-1] == pytest.approx(found.loss, rel=1e-6)
    assert losses[-1] <= goal.get("target", math.inf)
    assert not found.warning


def test_a_batch_size_schedule_keeps_the_bound() -> None:
    problem = Quadratic(Spectrum.power_law(200))
    for examples in (300.0, 1e5):
        found = optimal_schedule(problem, SGD(), 1, examples=examples, pieces=4, on="batch_size")
        assert over_bound(walked(problem, found), 4).max() <= 1


def test_no_step_of_adam_is_above_the_bound() -> None:
    problem = Quadratic(Spectrum.power_law(200))
    asked: list[tuple[dict[str, Any], float | None]] = [
        ({"steps": 60}, None),
        ({"target": 0.2}, None),
        ({"steps": 60}, 0.02),
    ]
    for goal, rate in asked:
        found = optimal_schedule(problem, Adam(), 2**12, pieces=3, max_rate=rate, **goal)
        run = problem.run(found.optimizer, 2**12, list(range(found.steps + 1)), found.schedule)
        if rate is None:
            assert over_bound(run.loss, 3).max() <= 1 + 1e-6
        else:
            lr = float(parameters(found.optimizer)["lr"].value)
            assert lr * found.schedule.lr.max() <= rate * (1 + 1e-9)
            assert found.cap == "max_rate"


def test_without_readings_on_the_way_the_bound_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a bound that is kept at the ends of pieces alone."""
    from nqm.search.rates import RateSearch

    problem = Quadratic(Spectrum.power_law(200))
    monkeypatch.setattr(
        RateSearch, "_excess", lambda self, found: (np.full(len(found.rates), -1.0), np.zeros(len(found.rates), int))
    )
    search = RateSearch(problem, HeavyBall(momentum=0.9), 2**18, Limit())
    search.inside = set()
    found = search.least_loss(60, 6)
    assert search.peaks(found).over.max() > 1.2


def test_the_best_under_the_bound_is_that_of_an_independent_search() -> None:
    """SLSQP over the rates, with the bound at every step as a constraint, on a plain recursion."""
    from scipy.optimize import minimize

    problem, batch_size, pieces, steps = Quadratic(Spectrum.power_law(20)), 2.0**14, 3, 18
    h, c, n = problem.spectrum.h, problem.spectrum.c, steps // pieces

    def losses(logs: np.ndarray) -> np.ndarray:
        s, seen = problem.spectrum.s.copy(), [0.5 * float((h * problem.spectrum.s).sum())]
        for lr in np.repeat(np.exp(np.clip(logs, -20, 3)), n):
            s = (1 - lr * h) ** 2 * s + lr**2 * c / batch_size
            seen.append(0.5 * float((h * s).sum()))
        return np.array(seen)

    best, rng = math.inf, np.random.default_rng(1)
    room = {"type": "ineq", "fun": lambda z: -np.log(over_bound(losses(z), pieces))}
    for _ in range(25):
        start = np.log(rng.uniform(0.3, 2.0, pieces))
        end = minimize(
            lambda z: math.log(losses(z)[-1]), start, method="SLSQP", constraints=room, options={"maxiter": 300}
        )
        if over_bound(losses(end.x), pieces).max() <= 1 + 1e-6:
            best = min(best, losses(end.x)[-1])
    found = optimal_schedule(problem, SGD(), batch_size, steps=steps, pieces=pieces)
    assert found.cap == "loss"
    assert best <= found.loss * 1.001  # The independent search is no worse: else it proves nothing.
    assert found.loss <= 1.01 * best
    free = optimal_schedule(problem, SGD(), batch_size, steps=steps, pieces=pieces, max_rate=math.inf)
    assert free.loss < 0.9 * found.loss


def test_peaks_are_those_of_every_step() -> None:
    """Pieces that are longer than what is walked, at rates at which modes oscillate or change their sign at every step."""
    problem = Quadratic(Spectrum([1.0, 0.05, 3e-4], c=[1.0, 1.0, 0.01]))
    for optimizer in (SGD(1.999), HeavyBall(3.9, 0.99), Nesterov(1.2, 0.9)):
        lengths = np.array([3000, 3001, 2500])
        schedule = Schedule(lengths, [1.0, 0.3, 0.9])
        seen = peaks(problem, optimizer, 16, schedule, lengths)
        run = problem.run(optimizer, 16, list(range(lengths.sum() + 1)), schedule)
        for end, length, largest, step in zip(np.cumsum(lengths), lengths, seen.largest, seen.steps, strict=True):
            exact = run.loss[end - length + 1 : end + 1].max()
            assert exact * (1 - 1.1e-4) <= largest <= exact * (1 + 1e-9)
            assert run.loss[step] == pytest.approx(largest, rel=1e-7)


# The cap on rates that takes the place of the bound.

PAPER_CAPS = [
    (0.0, 2**8, 10, 9403),
    (0.0, 2**10, 10, 7678),
    (0.25, 2**12, 10, 839),
    (0.25, 2**20, 10, 726),
    (0.5, 2**20, 10, 82),
]
"""Power, batch size, pieces, and steps by an independent search with the paper's cap."""


@pytest.mark.slow
@pytest.mark.parametrize(("power", "batch_size", "pieces", "known"), [*PAPER_CAPS, (0.0, 4096, 50, 6905)])
def test_steps_with_the_papers_cap(paper: Quadratic, power: float, batch_size: int, pieces: int, known: int) -> None:
    optimizer = Preconditioned(SGD(), power)
    found = optimal_schedule(paper, optimizer, batch_size, 0.01, pieces=pieces, max_rate="paper")
    assert known * 0.998 <= found.steps <= known * 1.0005
    h = paper.spectrum.h ** (1 - power)
    lr = float(parameters(found.optimizer)["lr"].value)
    assert lr * found.schedule.lr.max() == pytest.approx(2 / (h.max() + h.min()), rel=1e-9)
    assert found.cap == "paper"
    assert "the paper's cap" in found.message
    bounded = optimal_schedule(paper, optimizer, batch_size, 0.01, pieces=pieces)
    assert bounded.steps <= known * 1.002


@pytest.mark.slow
def test_schedules_gain_nothing_at_large_batch(paper: Quadratic) -> None:
    constant = tune(paper, Preconditioned(SGD(), 0.25), 2**20, 0.01).steps or 0
    found = optimal_schedule(paper, Preconditioned(SGD(), 0.25), 2**20, 0.01, max_rate="paper")
    assert 1 <= constant / found.steps < 1.005


def test_the_answer_says_which_cap_binds(small: Quadratic) -> None:
    def asked(max_rate: float | None, batch_size: float = 2**14) -> Scheduled:
        return optimal_schedule(small, SGD(), batch_size, steps=60, pieces=5, max_rate=max_rate)

    assert (asked(None).cap, asked(0.5).cap, asked(math.inf).cap, asked(1.9, 1).cap) == (
        "loss",
        "max_rate",
        "none",
        "none",
    )
    told = asked(0.5)
    assert told.schedule.lr.max() * parameters(told.optimizer)["lr"].value == pytest.approx(0.5, rel=1e-9)
    assert "the largest rate allowed, 0.5" in told.message
    assert {"max_rate": 0.5, "cap": "max_rate", "rise": 1.0, "warning": ""}.items() <= told.to_dict().items()
    free = asked(math.inf)
    assert free.rise > 2
    assert "--max-rate" in free.warning
    assert "neither rates nor losses" in free.message
    assert free.rise == pytest.approx(walked(small, free)[1:].max() / small.initial_loss, rel=1e-3)
    assert free.loss <= asked(None).loss


def test_runs_of_fewer_steps_than_pieces_have_pieces_of_one_step(small: Quadratic) -> None:
    found = optimal_schedule(small, SGD(), 2**20, steps=4, pieces=10)
    assert found.schedule.steps == 4
    assert "4 pieces of one step" in found.message
    assert over_bound(walked(small, found), 4).max() <= 1


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, "small", True, [1.0]])
def test_a_wrong_rate_is_refused(small: Quadratic, rate: Any) -> None:
    with pytest.raises(Wrong, match="max_rate must be a positive number") as error:
        optimal_schedule(small, SGD(), 64, steps=100, max_rate=rate)
    assert error.value.argument == "max_rate"


@pytest.mark.parametrize("optimizer", [HeavyBall(), Nesterov(), EMA(HeavyBall()), Adam()], ids=str)
def test_the_papers_cap_is_refused_where_it_means_nothing(small: Quadratic, optimizer: Optimizer) -> None:
    with pytest.raises(Wrong, match="cap on the rate of SGD") as error:
        optimal_schedule(small, optimizer, 64, steps=100, pieces=2, max_rate="paper")
    assert error.value.argument == "max_rate"
