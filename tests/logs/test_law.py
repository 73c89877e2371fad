"""The law of a forecast against a plain loop, 50-digit arithmetic, sums over curvatures and central differences."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import METRICS, TYPICAL, curvature_sums, effective_rates, law_of, plain_loop

from nqm.logs import law as module
from nqm.logs.course import Course
from nqm.logs.law import NAMES, LossLaw, RateMetric

STEPS = 600
TIMES = [1, 7, 150, 400, 600]
t = np.arange(1, STEPS + 1)
SCHEDULES = {
    "constant": np.full(STEPS, 2e-3),
    "cosine": 2e-3 * np.minimum(t / 40, 1) * (0.55 + 0.45 * np.cos(np.pi * t / STEPS)),
    "drop": np.where(t <= 300, 2e-3, 5e-4),
    "cooldown": 2e-3 * np.minimum(1, np.maximum(0, (STEPS - t) / 150)),
}
SIZES = np.where(t <= 200, 1.0, np.where(t <= 450, 2.0, 0.5))
names = pytest.mark.parametrize("name", SCHEDULES)
metrics = pytest.mark.parametrize("metric", METRICS, ids=str)


def single_steps(rates: np.ndarray, times: list[int], ratios: np.ndarray | None = None) -> Course:
    """A course with one block for each step."""
    sizes = np.ones(len(rates)) if ratios is None else ratios
    blocks = np.array(times) - 1
    return Course(np.array(times), np.ones(len(rates)), rates, sizes, blocks, float(rates.max()))


def check_blocks(metric: RateMetric, name: str) -> None:
    """Compare the law on the blocks of a course with the docstring's recursion, step by step."""
    rates = SCHEDULES[name]
    law = law_of(metric)
    found = law.loss(Course.of(rates, np.array(TIMES), metric.weight_decay, SIZES))
    # A block holds the rate to 2% of its largest and takes the norm at its middle: second order in both.
    np.testing.assert_allclose(found, plain_loop(law, rates.tolist(), TIMES, SIZES.tolist()), rtol=1e-4)


@names
@metrics
def test_blocks_are_the_sum_over_single_steps(metric: RateMetric, name: str) -> None:
    check_blocks(metric, name)


@names
@metrics
def test_one_step_in_a_block_is_the_plain_loop(metric: RateMetric, name: str) -> None:
    """Without blocks nothing is approximated but the norm within one step, which the loop takes alike."""
    rates, law = SCHEDULES[name], law_of(metric)
    expected = plain_loop(law, rates.tolist(), TIMES, SIZES.tolist(), continuous=True)
    np.testing.assert_allclose(law.loss(single_steps(rates, TIMES, SIZES)), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["half", "plain"])
def test_blocks_of_a_constant_rate_are_exact(kind: str) -> None:
    law = law_of(RateMetric(kind))  # type: ignore[arg-type]
    rates = SCHEDULES["constant"]
    found = law.loss(Course.of(rates, np.array(TIMES), 0.0, SIZES))
    np.testing.assert_allclose(found, plain_loop(law, rates.tolist(), TIMES, SIZES.tolist()), rtol=1e-9)


def test_slow_curvatures_are_the_sum_of_the_docstring() -> None:
    """Where C eta is small, a step leaves eta^2 K at once: here C eta is 0.002, and the error its square."""
    rates, law = SCHEDULES["cosine"], law_of(RateMetric("plain"), C=1.0, N=40.0)
    S = np.cumsum(rates)
    z = law["N"] * np.sum(rates**2 / (1 + 2 * law["C"] * (S[-1] - S + rates / 2)))
    _, noise = law.parts(single_steps(rates, [STEPS]))
    np.testing.assert_allclose(noise[0], z, rtol=4e-6)


def test_the_loss_before_the_first_step_is_floor_and_signal() -> None:
    law = law_of(RateMetric("norm", 0.1))
    found = law.loss(Course.of(SCHEDULES["cosine"], np.array([0, 5])))
    assert found[0] == pytest.approx(law["floor"] + law["A"], rel=1e-15)


@pytest.mark.parametrize("C", [1e-9, 1e-3, 1.0, 1e4, 1e9])
def test_the_integral_over_a_block_in_50_digits(C: float) -> None:
    """C u goes from 1e-11 to 1e12: logarithms of numbers near 1, and of large ones near each other."""
    lengths, lr = np.array([1000.0, 50.0, 1.0, 4000.0, 1.0]), np.array([0.3, 0.01, 1e-4, 0.2, 0.01])
    course = Course(np.array([5052]), lengths, lr, np.array([1.0, 2.0, 1.0, 0.5, 1.0]), np.array([4]), 0.3)
    law = law_of(RateMetric("plain"), C=C, N=0.01)
    with mpmath.workdps(50):
        n, eta, two_C = [mpmath.mpf(x) for x in lengths], [mpmath.mpf(x) for x in lr], 2 * mpmath.exp(law.theta[5])
        S = [mpmath.fsum(a * b for a, b in zip(n[:i], eta[:i], strict=True)) for i in range(6)]
        terms = [
            eta[i] / mpmath.mpf(course.batch_size[i])
            * (mpmath.log(1 + two_C * (S[5] - S[i])) - mpmath.log(1 + two_C * (S[5] - S[i + 1]))) / two_C
            for i in range(5)
        ]  # fmt: skip
        expected = float(mpmath.exp(law.theta[4]) * mpmath.fsum(terms))
    # Float64 takes a block of 0.0001 in time as the difference of two logarithms of times near 1,000: 1e-7 of its term,
    # which is 1e-5 of the sum.
    np.testing.assert_allclose(law.parts(course)[1], [expected], rtol=1e-9)
    np.testing.assert_allclose(law.final(course)[0], law["floor"] + law.parts(course)[0][0] + expected, rtol=1e-9)


@metrics
@pytest.mark.parametrize(
    "changed",
    [{}, {"alpha": 1.3, "C": 0.3}, {"s0": 0.05, "C": 40.0}, {"exponent": 1.2}, {"exponent": 0.8, "C": 40.0}],
    ids=str,
)
def test_signal_and_noise_are_sums_over_curvatures(metric: RateMetric, changed: dict[str, float]) -> None:
    """4,000 curvatures of each density by the trapezoidal rule in log h; its ends leave 1e-12 of either."""
    law, rates, sizes = law_of(metric, **changed), SCHEDULES["cosine"][:200], SIZES[:200]
    etas = effective_rates(rates.tolist(), sizes.tolist(), metric, law["r0"], continuous=True)
    signal, z = curvature_sums(law, etas, sizes.tolist())
    found = law.parts(single_steps(rates, [200], sizes))
    np.testing.assert_allclose(found[0], [signal], rtol=1e-9)
    np.testing.assert_allclose(found[1], [z / (1 + law["k"] * z)], rtol=1e-9)


def check_jacobian(metric: RateMetric, name: str, exponent: float = 1.0) -> None:
    """Compare the derivatives by the logarithms of the parameters with central differences."""
    course = Course.of(SCHEDULES[name], np.array(TIMES), metric.weight_decay, SIZES)
    law, step = law_of(metric, exponent), 1e-4
    loss, J = law.jacobian(course)
    np.testing.assert_allclose(loss, law.loss(course), rtol=1e-14)
    for i in range(len(NAMES)):
        up, down = law.theta.copy(), law.theta.copy()
        up[i] += step
        down[i] -= step
        expected = (replace(law, theta=up).loss(course) - replace(law, theta=down).loss(course)) / (2 * step)
        # The differences lose step^2 / 6 = 2e-9 of a derivative to curvature, and 1e-12 of the loss to rounding.
        np.testing.assert_allclose(J[:, i], expected, rtol=2e-7, atol=2e-11, err_msg=NAMES[i])


exponents = pytest.mark.parametrize("exponent", [1.0, 1.2])


@names
@metrics
@exponents
def test_jacobian_against_central_differences(metric: RateMetric, name: str, exponent: float) -> None:
    check_jacobian(metric, name, exponent)


def check_gradient(metric: RateMetric, name: str, exponent: float = 1.0) -> None:
    """Compare the derivatives of the last loss by the rate of each block with central differences."""
    course = Course.of(SCHEDULES[name], np.array([STEPS]), metric.weight_decay, SIZES)
    law = law_of(metric, exponent)
    loss, gradient = law.final(course)
    assert loss == pytest.approx(float(law.loss(course)[-1]), rel=1e-13)
    step = 1e-4 * 2e-3  # of the largest rate
    top = int(np.argmax(course.lr))  # The peak moves with the first block that has it.
    for i in range(len(course.lr)):
        ends = []
        for sign in (1, -1):
            peak = course.peak + sign * step * (i == top and course.lr[top] >= course.peak)
            ends.append(
                law.final(replace(course, lr=course.lr + sign * step * (np.arange(len(course.lr)) == i), peak=peak))[0]
            )
        expected = (ends[0] - ends[1]) / (2 * step)
        # Rounding of the loss, 1e-15, over the step gives 1e-8; derivatives are of the order of 1 to 100.
        assert gradient[i] == pytest.approx(expected, rel=1e-5, abs=2e-7), i


@names
@metrics
@exponents
def test_gradient_of_the_last_loss_against_central_differences(metric: RateMetric, name: str, exponent: float) -> None:
    check_gradient(metric, name, exponent)


def no_growth(course: Course, weight_decay: float) -> np.ndarray:
    """The planted bug: the weight norm decays, and updates do not add to it."""
    return np.zeros(len(course.lr))


def no_norm(self: LossLaw, course: Course, eta: np.ndarray, by_eta: np.ndarray) -> np.ndarray:
    """The planted bug: the gradient does not go back through the weight norm."""
    return by_eta * eta / course.lr


def no_motion(self: LossLaw, course: Course) -> dict[str, np.ndarray]:
    """The planted bug: the derivative by r0 forgets that the norm moves the intrinsic time of each step."""
    found = evaluate(self, course)
    return {**found, "dS": 0 * found["dS"], "dS0": 0 * found["dS0"]}


evaluate = LossLaw._evaluate


@pytest.mark.parametrize(
    ("owner", "attribute", "bug", "check"),
    [(module, "grown", no_growth, check_blocks), (LossLaw, "_by_rate", no_norm, check_gradient),
     (LossLaw, "_evaluate", no_motion, check_jacobian)],
)  # fmt: skip
def test_a_dropped_term_shows(owner, attribute, bug, check, monkeypatch: pytest.MonkeyPatch) -> None:
    check(METRICS[0], "cosine")
    monkeypatch.setattr(owner, attribute, bug)
    with pytest.raises(AssertionError):
        check(METRICS[0], "cosine")


@pytest.mark.parametrize("name", ["alpha", "s0", "N", "C", "k", "r0"])
def test_every_parameter_counts(name: str) -> None:
    """The comparison with the plain loop sees a parameter that is off by 1%: no term is idle at the parameters above."""
    rates, metric = SCHEDULES["cosine"], METRICS[0]
    found = law_of(metric, **{name: 1.01 * TYPICAL[name]}).loss(single_steps(rates, TIMES))
    expected = plain_loop(law_of(metric), rates.tolist(), TIMES, continuous=True)
    assert np.abs(found / expected - 1).max() > 1e-6


rate = st.floats(0, 5e-3) | st.sampled_from([0.0, 1e-6, 5e-3])


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.tuples(st.integers(1, 30), rate, st.sampled_from([1.0, 0.25, 3.0])), min_size=1, max_size=6),
    metric=st.sampled_from(METRICS),
    logs=st.lists(st.floats(-2, 2), min_size=len(NAMES), max_size=len(NAMES)),
    exponent=st.sampled_from([1.0, 0.8, 1.2, 1.5]),
)
def test_any_course_is_the_plain_loop(pieces, metric: RateMetric, logs: list[float], exponent: float) -> None:
    """Any pieces of rates and batch sizes, and parameters up to a factor of seven around the typical ones."""
    rates = np.concatenate([np.full(n, lr) for n, lr, _ in pieces] + [[1e-3]])
    sizes = np.concatenate([np.full(n, size) for n, _, size in pieces] + [[1.0]])
    law = LossLaw(metric, np.log([TYPICAL[name] for name in NAMES]) + logs, exponent)
    times = sorted({1, len(rates) // 2 or 1, len(rates)})
    expected = plain_loop(law, rates.tolist(), times, sizes.tolist(), continuous=True)
    np.testing.assert_allclose(law.loss(single_steps(rates, times, sizes)), expected, rtol=1e-9)
    assert law.final(single_steps(rates, times, sizes))[0] == pytest.approx(expected[-1], rel=1e-9)
