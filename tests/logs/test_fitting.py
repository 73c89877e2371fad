"""Fitting: the law is found again, spikes and long logs are handled, and the covariance follows the scatter."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
import scipy.signal
from laws import METRICS, TYPICAL, law_of

from nqm import HeavyBall, Quadratic, Spectrum
from nqm.logs import Log
from nqm.logs.course import Course
from nqm.logs.fitting import (
    SETTINGS_OF_FIT,
    Fitted,
    Objective,
    averaged,
    fit_law,
    guesses,
    huber,
    independent_points,
    mean_square,
    reading,
    sandwich,
    sizes_of,
)
from nqm.logs.law import NAMES, LossLaw, RateMetric
from nqm.types import Wrong

STEPS = 2000
PLAIN = RateMetric("plain")
t = np.arange(1, STEPS + 1)
RATES = {
    "constant": np.full(STEPS, 0.05),
    "cosine": 0.05 * (0.55 + 0.45 * np.cos(np.pi * t / STEPS)),
    "drop": np.where(t <= 1000, 0.05, 0.015),
}
TRUE = law_of(PLAIN, A=4.0, s0=2.0, N=1.0, C=3.0)


def logs_of(law: LossLaw, points: int = 50, error: float = 0.0, seed: int = 0, optimizer: str = "SGD") -> list[Log]:
    """Logs that follow a law, with independent relative errors."""
    rng = np.random.default_rng(seed)
    at = np.unique(np.linspace(20, STEPS, points).astype(int))
    return [
        Log(at, law.loss(Course.of(rates, at)) * np.exp(error * rng.standard_normal(at.size)), rates, optimizer=optimizer,
            name=name)
        for name, rates in RATES.items()
    ]  # fmt: skip


def fitted(logs: list[Log], settings=SETTINGS_OF_FIT) -> Fitted:
    return fit_law([reading(log, PLAIN, None, settings) for log in logs], PLAIN, settings)


def unseen(law: LossLaw) -> np.ndarray:
    """Losses of a cooldown that no log has."""
    rates = 0.05 * np.minimum(1, np.maximum(STEPS - t, 0) / 500)
    return law.loss(Course.of(rates, np.array([1000, 1600, 1800, STEPS])))


@pytest.fixture(scope="module")
def clean() -> Fitted:
    return fitted(logs_of(TRUE))


def test_the_law_is_found_again(clean: Fitted) -> None:
    """Without errors, only the priors pull, with a weight of some thousandths of a relative error."""
    assert clean.scatter < 1e-4
    np.testing.assert_allclose(unseen(clean.law), unseen(TRUE), rtol=5e-4)
    assert clean.law["floor"] == pytest.approx(TRUE["floor"], rel=5e-3)


def test_spikes_move_a_forecast_by_little(clean: Fitted) -> None:
    """One point in twenty is 10% high. Least squares would go up by 0.5% with them; Huber's loss counts their number."""
    spiked = [
        replace(log, loss=log.loss * np.where(np.arange(log.step.size) % 20 == 7, 1.1, 1)) for log in logs_of(TRUE)
    ]
    robust = unseen(fitted(spiked).law) / unseen(clean.law) - 1
    assert np.abs(robust).max() < 5e-4
    # With a width of 10%, every spike counts in full. Points count as many as before in units of their width.
    wide = replace(SETTINGS_OF_FIT, scatter=0.1, effective_points=1e4 * SETTINGS_OF_FIT.effective_points)
    squares = unseen(fitted(spiked, wide).law) / unseen(clean.law) - 1
    assert np.abs(squares).max() > 3e-3


def test_points_of_a_long_log_are_averaged() -> None:
    steps = np.arange(1, 100_001)
    rng = np.random.default_rng(0)
    loss = 3 + 2 * (1 + steps / 100) ** -0.5
    log = Log(steps, loss * np.exp(0.01 * rng.standard_normal(steps.size)), 0.01, optimizer="SGD")
    one = reading(log, PLAIN, None)
    assert one.y.size == one.course.steps.size == SETTINGS_OF_FIT.most_points
    # The median of 500 points has a standard deviation of 1.25 x 0.01 / sqrt(500) = 0.00056; 200 of them stay within 4.5.
    # The first group falls by 40% over its steps, where the median is that of the curve itself.
    # The mean step of an even group lies between two steps, and half a step is 0.0002 there.
    np.testing.assert_allclose(one.y, np.log(loss[one.course.steps - 1]), atol=4.5 * 0.00056 + 0.0002)


def test_few_points_are_not_averaged() -> None:
    step, y = averaged(np.arange(5), np.arange(5.0), 5)
    assert step.tolist() == y.tolist() == [0, 1, 2, 3, 4]
    step, y = averaged(np.arange(9), np.array([1.0, 1, 9, 2, 2, 2, 3, -9, 3]), 3)
    assert step.tolist() == [1, 4, 7]
    assert y.tolist() == [1, 2, 3]
    # Pairs are not moved to their later step: a straight line stays one on average.
    step, y = averaged(np.arange(0, 400, 10), np.arange(0.0, 400, 10), 20)
    assert step.tolist() == y.tolist()


def test_a_log_counts_as_so_many_points_however_many_it_has() -> None:
    for points in (10, 40, 150):
        one = reading(logs_of(TRUE, points)[0], PLAIN, None)
        assert np.sum(one.weight**2) == pytest.approx(SETTINGS_OF_FIT.effective_points, rel=1e-12)
        early = one.course.steps < SETTINGS_OF_FIT.beginning * STEPS
        assert one.weight[early].max(initial=0) < one.weight[~early].min()


def test_points_of_the_warm_up_and_before_the_first_step_are_omitted() -> None:
    at = np.arange(0, STEPS + 1, 50)
    log = Log(at, np.full(at.size, 3.0), 0.05 * np.minimum(t / 300, 1), optimizer="SGD")
    assert reading(log, PLAIN, None).course.steps[0] == 300


@pytest.mark.parametrize(("at", "warm_up"), [([400, 2000], 1), ([2000], 1), ([100, 300, 500, 850, 2000], 800)])
def test_too_few_points_are_refused(at: list[int], warm_up: int) -> None:
    log = Log(at, [3.0] * len(at), 0.05 * np.minimum(t / warm_up, 1), name="few")
    with pytest.raises(
        Wrong, match=r"log 'few' has [12] points after its warm-up of \d+ steps; a fit needs 3"
    ) as error:
        reading(log, PLAIN, None)
    assert error.value.argument == "logs"


def test_losses_that_are_not_positive_are_refused() -> None:
    log = logs_of(TRUE, 30)[0]
    negative = replace(log, loss=np.where(np.arange(log.step.size) == 20, -1.0, log.loss))
    with pytest.raises(Wrong, match=rf"positive losses; log 'constant' has -1 at step {log.step[20]:,}") as error:
        reading(negative, PLAIN, None)
    assert error.value.argument == "logs"


def test_a_log_without_a_positive_rate_is_refused() -> None:
    for log in (Log([0], [3.0], 0.1, name="still"), Log([1, 2, 3], [3.0, 2.0, 1.0], 0.0, name="still")):
        with pytest.raises(Wrong, match="log 'still' has no step with a positive learning rate") as error:
            reading(log, PLAIN, None)
        assert error.value.argument == "logs"


def test_batch_sizes_of_steps() -> None:
    log = Log([2, 4, 6], [3.0, 2.0, 1.0], 0.1)
    assert sizes_of(log, 64.0) == 1.0
    assert sizes_of(replace(log, batch_size=128), 64.0) == 2.0
    assert sizes_of(replace(log, batch_size=128), None) == 1.0
    assert np.asarray(sizes_of(replace(log, batch_size=[32, 64, 128]), 64.0)).tolist() == [0.5, 0.5, 1, 1, 2, 2]


def test_the_root_of_huber_s_loss_and_its_derivative() -> None:
    e = np.array([-3.0, -1.0, -0.4, 0.0, 0.9, 1.0, 2.5, 40.0])
    value, slope = huber(e)
    expected = np.where(np.abs(e) <= 1, e**2 / 2, np.abs(e) - 0.5)
    np.testing.assert_allclose(value**2 / 2, expected, rtol=1e-14)
    assert np.all(np.sign(value) == np.sign(e))
    inner = np.abs(np.abs(e) - 1) > 0.01  # The second derivative jumps at 1.
    differences = (huber(e + 1e-6)[0] - huber(e - 1e-6)[0]) / 2e-6
    np.testing.assert_allclose(slope[inner], differences[inner], rtol=1e-8)


def test_spikes_count_little_in_the_mean_square() -> None:
    e = np.append(np.full(50, 1e-3), 0.1)
    assert mean_square(e, np.ones(51)) < 1.4e-6
    assert mean_square(e[:-1], np.ones(50)) == pytest.approx(1e-6, rel=1e-12)


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_derivatives_of_the_objective(metric: RateMetric) -> None:
    """Residuals on both sides of Huber's width, in every free parameter."""
    optimizer = "AdamW" if metric.adaptive else "SGD"
    logs = logs_of(law_of(metric, s0=20.0), error=2e-3, optimizer=optimizer)
    readings = [reading(log, metric, None) for log in logs]
    mean, deviation, starts = guesses(readings, metric, SETTINGS_OF_FIT)
    free = [NAMES.index(name) for name in metric.names]
    objective = Objective(readings, metric, mean, deviation, free, SETTINGS_OF_FIT)
    x = starts[0][free] + 0.1
    J = objective.jacobian(x)
    for i in range(len(free)):
        step = 1e-5 * (np.arange(len(free)) == i)
        differences = (objective.residuals(x + step) - objective.residuals(x - step)) / 2e-5
        np.testing.assert_allclose(J[:, i], differences, rtol=1e-5, atol=1e-6 * np.abs(J[:, i]).max())
    assert objective.residuals(x) is objective.residuals(x.copy())  # One evaluation serves both.


def test_the_covariance_against_many_estimates() -> None:
    """A linear model with an offset of each log and independent errors, estimated 4,000 times as the fit would."""
    rng = np.random.default_rng(1)
    points, settings = 15, replace(SETTINGS_OF_FIT, effective_points=15.0, offset=2e-3)
    slopes = [rng.standard_normal((points, 2)) + 0.5 for _ in range(3)]  # of log losses by two parameters
    weights = [np.ones(points) for _ in slopes]
    P = 1e4 * np.eye(2)  # inverse variances of the priors
    J = np.concatenate([np.sqrt(P), *(each / settings.scatter for each in slopes)])
    stacked, draws = np.concatenate(slopes), 4000
    truth = 1e-2 * rng.standard_normal((draws, 2))  # drawn from the priors, whose mean is 0
    offsets = np.repeat(settings.offset * rng.standard_normal((draws, 3)), points, axis=1)
    scatter = 7e-4
    y = truth @ stacked.T + offsets + scatter * rng.standard_normal(offsets.shape)
    found = y @ stacked @ np.linalg.inv(settings.scatter**2 * P + stacked.T @ stacked)
    squares = [scatter**2 / points] * 3
    covariance = sandwich(J, weights, squares, settings)
    z = (found - truth) / np.sqrt(np.diag(covariance))
    # The mean of 4,000 squares of a normal variable has a standard deviation of sqrt(2 / 4000) = 0.022.
    np.testing.assert_allclose(np.mean(z**2, axis=0), 1, atol=4 * 0.022)
    bare = sandwich(J, weights, squares, replace(settings, offset=0.0))  # The planted bug: no offset.
    assert np.all(np.mean((found - truth) ** 2, axis=0) / np.diag(bare) > 1.5)


def test_independent_points_of_residuals() -> None:
    """Residuals that forget a share 1 - a in a step have (1 - a) / (1 + a) as many independent points; an offset changes nothing."""
    rng, count = np.random.default_rng(2), 4000
    noise = rng.standard_normal(count)
    assert independent_points(noise + 5) == pytest.approx(0.9 * count, rel=0.1)
    for a in (0.5, 0.9):
        slow = scipy.signal.lfilter([1], [1, -a], noise)
        assert independent_points(slow) == pytest.approx(0.9 * count * (1 - a) / (1 + a), rel=0.25)
    assert independent_points(np.linspace(-1, 1, 50)) < 5
    assert independent_points(np.zeros(20)) == 18


def test_parameters_that_a_metric_does_not_have_are_held(clean: Fitted) -> None:
    held = [NAMES.index(name) for name in ("k", "r0")]
    assert not clean.covariance[held].any()
    assert not clean.covariance[:, held].any()
    assert np.all(np.diag(clean.covariance)[:6] > 0)


def test_a_fit_that_finds_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        scipy.optimize, "least_squares", lambda f, x, **_: SimpleNamespace(x=np.full(x.shape, np.nan), cost=1.0)
    )
    with pytest.raises(Wrong, match="no law explains these logs") as error:
        fitted(logs_of(TRUE))
    assert error.value.argument == "logs"


def test_starts_hold_every_parameter_of_the_law() -> None:
    readings = [reading(log, PLAIN, None) for log in logs_of(TRUE)]
    mean, deviation, starts = guesses(readings, PLAIN, SETTINGS_OF_FIT)
    assert mean.shape == deviation.shape == (len(NAMES),) == (len(TYPICAL),)
    assert len(starts) == 2
    assert all(np.all(np.isfinite(start)) for start in starts)


def test_the_noise_speed_is_adams_edge_of_stability() -> None:
    """Adam's momentum averages gradients: its step is a heavy ball's with the rate lr (1 - beta1), whose edge the engine knows."""
    one = Quadratic(Spectrum([1.0], [1.0]))
    edge = one.stability_limit(HeavyBall(momentum=0.9), math.inf) / (1 - 0.9)
    assert SETTINGS_OF_FIT.speed[0] == pytest.approx(edge, rel=1e-6)


def test_the_exponent_is_that_of_the_papers_spectrum() -> None:
    """Noise has a constant density over curvature: the share below h is h, up to the largest curvature, 1."""
    h = 1 / np.arange(1.0, 100_001)
    modes = Spectrum(h)  # c = h, as in the paper
    share = np.cumsum(modes.noise_mass[::-1])[::-1] / modes.noise_mass.sum()  # of all modes from the i-th on
    middle = (modes.h > 1e-3) & (modes.h < 1e-1)  # The first modes are few, and the last have no modes below them.
    slope = np.polyfit(np.log(modes.h[middle]), np.log(share[middle]), 1)[0]
    assert SETTINGS_OF_FIT.exponent == pytest.approx(slope, abs=0.02)


@pytest.mark.parametrize("beta1", [0.0, 0.9, 0.95])
def test_weights_under_adam_walk_by_lr_squared_a_step(beta1: float) -> None:
    """Gradients that are noise alone: R^2 of a weight grows by lr^2 in a step for every beta1, so that r0 is its mean square."""
    rng, weights, steps = np.random.default_rng(3), 4000, 1000
    theta, m, v = np.zeros(weights), np.zeros(weights), np.zeros(weights)
    for t in range(1, steps + 1):
        g = rng.standard_normal(weights)
        m, v = beta1 * m + (1 - beta1) * g, 0.999 * v + 0.001 * g * g
        theta -= m / (1 - beta1**t) / np.sqrt(v / (1 - 0.999**t))
    # The mean of 4,000 squares scatters by sqrt(2 / 4000) = 2.2%. The first steps, before averages have settled, add a few percent.
    assert np.mean(theta**2) / steps == pytest.approx(1, abs=4 * 0.022 + 0.04)
