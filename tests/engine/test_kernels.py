"""The compiled loops and the NumPy loops give the same numbers, alone and in whole runs."""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import relative_error

from nqm import (
    SGD,
    Axis,
    HeavyBall,
    Optimizer,
    Quadratic,
    ScheduleFree,
    Spectrum,
    cosine,
    phase_map,
    steps_to_target,
    tune,
)
from nqm.engine.basis import Basis
from nqm.engine.kernels import loops, plain, plain_loops, scan
from nqm.engine.moments import MomentMap

ROUNDING = 1e-12  # the same sums; the compiled ones fuse multiplications and sum in another order

compiled = loops()
needs_numba = pytest.mark.skipif(not compiled.compiled, reason="numba is not installed")


def random_map(rng: np.random.Generator, rows: int, columns: int, modes: int) -> tuple[Any, Any, Any]:
    A = rng.standard_normal((rows, columns, modes))
    m = min(rows, columns)
    R = rng.standard_normal((rows, rows, modes))
    return A, np.ascontiguousarray(np.einsum("iix->ix", A[:m, :m]) - 1), np.einsum("ikx,jkx->ijx", R, R)


@needs_numba
@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([1, 7, 513, 1200]),
)
def test_compose(seed: int, rows: int, inner: int, columns: int, modes: int) -> None:
    rng = np.random.default_rng(seed)
    second, first = random_map(rng, rows, inner, modes), random_map(rng, inner, columns, modes)
    for fast, slow in zip(compiled.compose(*second, *first), plain.compose(*second, *first), strict=True):
        assert np.abs(fast - slow).max() <= ROUNDING * max(1.0, np.abs(slow).max())


@needs_numba
@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1, 5, 257, 700]),
    st.integers(0, 99),
)
def test_move(seed: int, k: int, columns: int, modes: int, t: int) -> None:
    rng = np.random.default_rng(seed)
    A = 0.9 / k * rng.uniform(-1, 1, (k, k, modes))
    b, (_, _, N) = rng.standard_normal((k, modes)), random_map(rng, k, k, modes)
    step = A, np.ascontiguousarray(np.einsum("iix->ix", A) - 1), b[:, None] * b[None]
    X = rng.standard_normal((k, columns, modes))
    walked = X, N
    for _ in range(t):
        walked = np.einsum("ijx,jcx->icx", A, walked[0]), np.einsum("ijx,jkx,lkx->ilx", A, walked[1], A) + step[2]
    for move in (compiled.move, plain.move):
        for moved, slow in zip(move(*step, X.copy(), N.copy(), t), walked, strict=True):
            assert np.abs(moved - slow).max() <= ROUNDING * np.abs(slow).max(initial=1.0)


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([1, 5, 257, 700]), st.integers(0, 99))
def test_end(seed: int, k: int, modes: int, t: int) -> None:
    rng = np.random.default_rng(seed)
    A = 0.9 / k * rng.uniform(-1, 1, (k, k, modes))
    b, x, r = rng.standard_normal((3, k, modes))
    X, N = x, np.zeros((k, k, modes))
    for _ in range(t):
        X, N = np.einsum("ijx,jx->ix", A, X), np.einsum("ijx,jkx,lkx->ilx", A, N, A) + b[:, None] * b[None]
    walked = np.einsum("ix,ix->x", r, X) ** 2, np.einsum("ix,ijx,jx->x", r, N, r)
    assert compiled.end is not None
    for read, slow in zip(compiled.end(A - np.eye(k)[..., None], b, x, r, t), walked, strict=True):
        assert np.abs(read - slow).max() <= ROUNDING * max(1.0, np.abs(slow).max(initial=0.0))


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 257, 700]), st.integers(0, 99))
def test_hold(seed: int, modes: int, t: int) -> None:
    rng = np.random.default_rng(seed)
    A, (b, x), q = (
        0.45 * rng.uniform(-1, 1, (2, 2, modes)),
        rng.standard_normal((2, 2, modes)),
        rng.uniform(0, 2, modes),
    )
    _, _, N = random_map(rng, 2, 2, modes)
    X, M = x, N
    for _ in range(t):
        X, M = np.einsum("ijx,jx->ix", A, X), np.einsum("ijx,jkx,lkx->ilx", A, M, A) + q * b[:, None] * b[None]
    G = A - np.eye(2)[..., None]
    assert compiled.hold is not None
    for held, slow in zip(compiled.hold([*G[0], *G[1]], b, q, x, N, t), (X, M), strict=True):
        assert np.abs(held - slow).max() <= ROUNDING * np.abs(slow).max(initial=1.0)


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 300]), st.integers(0, 40), st.integers(0, 3), st.booleans())
def test_watch_is_end_summed_over_modes(seed: int, nodes: int, first: int, level: int, one: bool) -> None:
    rng, settings_, count = np.random.default_rng(seed), 3, 4
    modes = settings_ * nodes
    G = 0.45 * rng.uniform(-1, 1, (2, 2, modes)) - np.eye(2)[..., None]
    b, x, r = rng.standard_normal((3, 2, modes))
    if one:  # one start and read-out for all modes
        x, r = x[:, :1], r[:, :1]
    ws, wn = rng.uniform(0, 1, (2, nodes))
    assert compiled.watch is not None
    assert compiled.end is not None
    watched = compiled.watch(G, b, x, r, first, level, count, ws, wn)
    for i in range(count):
        for read, slow, weights in zip(watched, compiled.end(G, b, x, r, first + i * 2**level), (ws, wn), strict=True):
            exact = slow.reshape(settings_, nodes) @ weights
            assert np.abs(read[i] - exact).max() <= ROUNDING * max(1.0, np.abs(exact).max())


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([1, 5, 257, 700]), st.booleans())
def test_climb_is_end_after_powers_of_two(seed: int, k: int, modes: int, one: bool) -> None:
    rng = np.random.default_rng(seed)
    G = 0.9 / k * rng.uniform(-1, 1, (k, k, modes)) - np.eye(k)[..., None]
    b, x, r = rng.standard_normal((3, k, modes))
    if one:  # one start and read-out for all modes
        x, r = x[:, :1], r[:, :1]
    assert compiled.climb is not None
    assert compiled.end is not None
    for level, found in enumerate(zip(*compiled.climb(G, b, x, r, 5), strict=True)):
        for read, slow in zip(found, compiled.end(G, b, x, r, 2**level), strict=True):
            assert np.abs(read - slow).max() <= ROUNDING * max(1.0, np.abs(slow).max())


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 99), st.booleans())
def test_end_is_a_power_of_the_step_between_start_and_readout(seed: int, k: int, t: int, one: bool) -> None:
    """Loops that prepare slots themselves do it as `Basis` does, to the last digits: at the far edge other slots would show."""
    rng = np.random.default_rng(seed)
    modes = 50
    edge, m = rng.uniform(0.9999, 1.0, modes), rng.uniform(0.9, 1, modes)
    G, (b, x, r) = 0.1 * rng.standard_normal((k, k, modes)), rng.standard_normal((3, k, modes))
    if one:  # one start and read-out for all modes
        x, r = x[:, :1], r[:, :1]
    if k > 1:
        lr = 2 * (1 + m) * edge  # heavy ball near its far edge, where slots are sheared
        G[0, 0], G[0, 1], G[1, 0], G[1, 1] = -lr, -lr * m, 1.0, m - 1
        G[2:, :2] = G[:2, 2:] = 0.0
    basis = Basis(G)
    assert basis.tilted == (k > 1)
    start, readout = MomentMap.matrix(basis.column(x)[:, None]), basis.row(r)
    whole = MomentMap.step(*basis.system(G, b)) ** t @ start
    assert compiled.end is not None
    for read, slow in zip(compiled.end(G, b, x, r, t), whole.seen(readout), strict=True):
        np.testing.assert_allclose(read, slow, rtol=1e-11, atol=1e-13 * np.abs(slow).max())


def test_a_basis_takes_more_axes_than_that_of_the_modes() -> None:
    rng = np.random.default_rng(0)
    m = rng.uniform(0.9, 1, 20)
    G = np.stack([[-3.9 * np.ones(20), -3.9 * m], [np.ones(20), m - 1]])
    b, x = rng.standard_normal((2, 2, 20))
    basis, many = Basis(G), np.stack([G, 0.5 * G, 2 * G], axis=2)
    assert basis.tilted
    for i, factor in enumerate((1.0, 0.5, 2.0)):
        for one, wide in zip(basis.system(factor * G, b), basis.system(many, np.stack([b] * 3, axis=1)), strict=True):
            np.testing.assert_array_equal(wide[..., i, :], one)
    np.testing.assert_allclose((basis.row(x) * basis.column(b)).sum(0), (x * b).sum(0), rtol=1e-9)


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_tilts_and_shear(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    modes = 50
    lr, h, m = rng.uniform(2, 4, modes), np.ones(modes), rng.uniform(0.9, 1, modes)
    G = rng.standard_normal((k, k, modes))
    G[0, 0], G[0, 1], G[1, 0], G[1, 1] = -lr * h, -lr * m, h, m - 1  # heavy ball, some of it near its far edge
    tilt, slow_tilt, fast, slow = np.empty(modes), np.empty(modes), G.copy(), G.copy()
    assert compiled.tilts(G, tilt, modes) == plain.tilts(G, slow_tilt, modes) > 0
    np.testing.assert_array_equal(tilt, slow_tilt)
    compiled.shear(fast, tilt, modes)
    plain.shear(slow, tilt, modes)
    np.testing.assert_allclose(fast, slow, rtol=4e-16, atol=1e-300)
    for z in range(modes):
        S = [[Fraction(int(i == j)) for j in range(k)] for i in range(k)]
        S[1][0] = Fraction(tilt[z])
        back = [[-e if (i, j) == (1, 0) else e for j, e in enumerate(row)] for i, row in enumerate(S)]
        exact = product(product(S, [[Fraction(e) for e in row] for row in G[:, :, z]]), back)
        # Where large terms cancel, in the entry (1, 0), what is left must be right too.
        for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
            assert abs(fast[i, j, z] - float(exact[i][j])) <= 3e-16 * abs(float(exact[i][j])) + 1e-28


@needs_numba
def test_nothing_is_fused_in_exact_sums() -> None:
    from nqm.engine.kernels import pairs

    for function in (pairs.two_product, pairs.two_sum, pairs.tilts, pairs.shear):  # whoever calls them first
        assert function.targetoptions["fastmath"] is False  # type: ignore[attr-defined]


def product(a: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
    return [
        [sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in zip(*b, strict=True)]
        for row in a
    ]


@needs_numba
@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([1, 5, 300]), st.integers(0, 6))
def test_chain(seed: int, k: int, modes: int, pieces: int) -> None:
    rng = np.random.default_rng(seed)
    A, (_, _, N) = rng.standard_normal((pieces, k, k, modes)) / k, random_map(rng, k, k, modes)
    Q, x = np.stack([*([random_map(rng, k, k, modes)[2]] * pieces), N])[:pieces], rng.standard_normal((k, modes))
    kick = rng.standard_normal((pieces, k, modes))
    fast, slow = compiled.chain(A, Q, kick, x, N), plain.chain(A, Q, kick, x, N)
    assert len(fast[0]) == pieces + 1
    for a, b in zip(fast, slow, strict=True):
        assert np.abs(a - b).max() <= ROUNDING * np.abs(b).max()


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.booleans())
def test_balance(seed: int, k: int, holes: bool) -> None:
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((k, k, 50)) * 2.0 ** rng.integers(-400, 400, (k, k, 50))
    G *= rng.random(G.shape) > 0.3 if holes else 1.0
    scale = compiled.balance(G)
    np.testing.assert_array_equal(scale, plain.balance(G))
    assert np.all(np.frexp(scale)[0] == 0.5)  # powers of two round nothing
    if k == 2 and not holes:
        ratio = np.abs(G[1, 0] * scale[0] / scale[1]) / np.abs(G[0, 1] * scale[1] / scale[0])
        assert np.all((ratio > 0.2) & (ratio < 5.0))


@needs_numba
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 5, 256, 700]))
def test_scan(seed: int, k: int, columns: int, modes: int) -> None:
    rng = np.random.default_rng(seed)
    steps = 12
    G0, G1 = 0.2 * rng.standard_normal((2, k, k, modes))
    b0, b1 = rng.standard_normal((2, k, modes))
    pace, loud = rng.random(steps), rng.random(steps) + 0.5
    X, (_, _, N) = rng.standard_normal((k, columns, modes)), random_map(rng, k, k, modes)
    row, ws, wn = rng.standard_normal((k, modes)), rng.random((columns, modes)), rng.random(modes)
    states = []
    for context in (nullcontext, plain_loops):
        state = X.copy(), N.copy()
        with context():
            states.append((*scan(G0, G1, b0, b1, pace, loud, *state, row, ws, wn), *state))
    for fast, slow in zip(*states, strict=True):
        assert np.abs(fast - slow).max() <= ROUNDING * np.abs(slow).max()
    signal, noise = np.zeros((2, steps))
    for t in range(steps):
        A, b = np.eye(k)[..., None] + G0 + pace[t] * G1, b0 + pace[t] * b1
        X, N = np.einsum("ilx,ljx->ijx", A, X), np.einsum("ilx,lmx,jmx->ijx", A, N, A) + loud[t] * b[:, None] * b
        signal[t] = (ws * np.einsum("ix,ijx->jx", row, X) ** 2).sum()
        noise[t] = (wn * np.einsum("ix,ijx,jx->x", row, N, row)).sum()
    for fast, slow in zip(states[0], (signal, noise, X, N), strict=True):
        assert np.abs(fast - slow).max() <= ROUNDING * np.abs(slow).max()


def numbers(row: Optimizer) -> list[float]:
    problem = Quadratic(Spectrum.power_law(40))
    run = problem.run(row, 8.0, [0, 1, 9, 30])
    planned = problem.run(row, 8.0, [0, 1, 9, 30], schedule=cosine(30))
    hit = steps_to_target(problem, row, 8.0, 0.7 * problem.spectrum.initial_loss)
    return [*run.loss, *planned.loss, run.floor, float(hit.steps or 0)]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_everything_on_plain_numpy(row: Optimizer) -> None:
    fast = numbers(row)
    with plain_loops():
        assert not loops().compiled
        assert relative_error(numbers(row), fast) < ROUNDING


def test_numpy_takes_over_where_numba_is_missing() -> None:
    script = """
import sys
import warnings
from contextlib import nullcontext
sys.modules["numba"] = None                      # import numba raises ImportError
from nqm import HeavyBall, Quadratic, ScheduleFree, Spectrum, tune
from nqm.engine.kernels import loops
problem = Quadratic(Spectrum.power_law(40))
assert tune(problem, HeavyBall(momentum=0.5), 8.0, 1.0).steps
print([problem.run(o, 8.0, [100]).loss[0].item() for o in (HeavyBall(0.1, 0.9), ScheduleFree(0.5, 0.9))], loops().compiled)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    losses, used = answer.strip().rsplit(" ", 1)
    problem = Quadratic(Spectrum.power_law(40))
    here = [problem.run(o, 8.0, [100]).loss[0] for o in (HeavyBall(0.1, 0.9), ScheduleFree(0.5, 0.9))]
    assert used == "False"
    assert relative_error(ast.literal_eval(losses), here) < ROUNDING


def test_no_warning_leaves_a_search_without_numba() -> None:
    """Settings that are unstable overflow in a search; compiled loops say nothing of it, and so do those in NumPy."""
    problem = Quadratic(Spectrum.power_law(60))
    with plain_loops(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tune(problem, SGD(), 64, 0.05).steps is not None
        assert tune(problem, HeavyBall(), 64, 0.05).steps is not None
        assert steps_to_target(problem, SGD(3.0), 64, 0.05).steps is None
        phase_map(problem, HeavyBall(), Axis("lr", 0.01, 8, 4), Axis("momentum", 0, 0.9, 3), 64, target=0.05)
    with np.errstate(over="raise"):  # What the caller asked for is in force again.
        plain.square(*(np.full(shape, 1e200) for shape in ((1, 1, 1), (1, 1), (1, 1, 1))))
        assert np.geterr()["over"] == "raise"
