"""Claims about Adam: what they compute beside the mean field, by second routes."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from nqm import Adam, Quadratic, Spectrum
from nqm.paper.claims import adam_half_life, adam_half_power, adam_rate_surges, check
from nqm.paper.claims.adam_half_life import noisy_v
from nqm.paper.claims.adam_rate_surges import BATCH_SIZES, one_step, peak_of
from nqm.paper.instance import POWERS, PaperStudy
from nqm.show.tables import column
from nqm.types import Array


def seeded(
    monkeypatch: pytest.MonkeyPatch, module: object, compute: Callable[[], Array | float], seeds: int = 8
) -> tuple:
    """Mean and standard error of what is computed with several seeds."""
    found = []
    for seed in range(seeds):
        monkeypatch.setattr(module, "SEED", seed)
        noisy_v.cache_clear()
        found.append(compute())
    noisy_v.cache_clear()
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(seeds)


# What a noisy v costs.


def cost_without_momentum(beta2: float, count: int = 20_000) -> float:
    """E u^2 / (E u g)^2 for u = g / sqrt(v): quadrature over the newest gradient, sampling over the older ones."""
    if beta2 == 0:
        return math.pi / 2
    rng, older = np.random.default_rng(7), 0.0
    for _ in range(int(30 / (1 - beta2))):
        older = beta2 * older + (1 - beta2) * rng.standard_normal(count) ** 2
    g, weight = np.polynomial.hermite_e.hermegauss(80)
    u = g / np.sqrt(beta2 * np.asarray(older)[:, None] + (1 - beta2) * g * g)
    mean = lambda values: float((values @ weight).mean() / weight.sum())  # noqa: E731
    return mean(u * u) / mean(u * g) ** 2


@pytest.mark.parametrize("beta2", [0.0, 0.5, 0.9])
def test_the_cost_of_a_noisy_v_without_momentum(beta2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cost, stderr = seeded(monkeypatch, adam_half_life, lambda: noisy_v(0.0, beta2))
    known = cost_without_momentum(beta2)
    assert abs(cost - known) < 4 * stderr + 2e-3 * (known - 1)
    wrong = 1 + 1.5 * (known - 1)
    assert abs(cost - wrong) > 8 * stderr  # A cost that is half as large again is told apart.


def test_the_cost_of_a_noisy_v_vanishes_with_its_noise() -> None:
    costs = [noisy_v(0.9, beta2) - 1 for beta2 in (0.9, 0.97, 0.99, 0.9999)]
    assert all(later < earlier for earlier, later in pairwise(costs))
    assert costs[-1] == pytest.approx(costs[1] / 300)


@pytest.mark.slow
@pytest.mark.parametrize(("beta1", "beta2"), [(0.0, 0.5), (0.9, 0.5)])
def test_the_cost_of_a_noisy_v_is_that_of_sampled_adam(beta1: float, beta2: float) -> None:
    """On equal modes with much noise, the steps to a target are in proportion to the noise floor over the rate of decay."""
    lr, noise, times = 0.02, 400.0, [0, 600, *range(6000, 16_001, 500)]
    problem = Quadratic(Spectrum([1.0], c=[noise], s=[16.0], count=256))
    run = problem.sample(Adam(lr, beta1, beta2), 1, times, replicas=128, seed=3, workers=1)
    assert run.stderr is not None
    floor = run.loss[2:].mean()
    fall = (run.loss[1] - floor) / (run.loss[0] - floor)
    rate = -math.log(fall) / 600  # of the loss, so twice that of the weights
    cost = 4 * (floor / 128) / rate / noise  # 2 h^2 E theta^2 over the rate of the weights, in units of the noise
    off = 4 * (run.stderr[1] / (run.loss[1] - floor) / -math.log(fall) + run.stderr[2] / floor / math.sqrt(10))
    assert cost == pytest.approx(noisy_v(beta1, beta2), rel=off)
    assert off < 0.05


# The best rate of one step.


def closed_form(h: Array, distance: float) -> Array:
    """E theta erf(k theta) over normal weights, for curvature along the coordinates."""
    k = np.sqrt(h * np.array(BATCH_SIZES)[:, None] / 2)
    return (2 * k * h * distance**2 / np.sqrt(math.pi * (1 + 2 * (k * distance) ** 2))).sum(1) / h.sum()


def test_one_step_along_the_coordinates_has_a_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    h = 1 / np.arange(1.0, 51)
    rates, stderr = seeded(monkeypatch, adam_rate_surges, lambda: one_step(h, "coordinates", "coordinates", 0.1)[0])
    assert np.abs((rates - closed_form(h, 0.1)) / stderr).max() < 4.5
    assert np.abs((rates - closed_form(h, 0.13)) / stderr).max() > 8  # Weights that are further away are told apart.
    assert np.all(np.diff(rates) > 0)  # It never falls,
    monkeypatch.setattr(adam_rate_surges, "SEED", 0)
    one, other = (one_step(h, "coordinates", noise, 0.1)[0] for noise in ("coordinates", "curvature"))
    assert np.allclose(one, other)  # and along the coordinates there is one noise alone.


@pytest.mark.parametrize("noise", ["coordinates", "curvature"])
def test_one_step_in_random_axes_by_dense_matrices(noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The minimum of the loss after a step, from the loss itself at three rates."""
    h, distance, at = 1 / np.arange(1.0, 31), 0.1, 5
    monkeypatch.setattr(adam_rate_surges, "POINTS", 2000)

    def dense(seed: int) -> float:
        R = np.linalg.qr(np.random.default_rng(seed).standard_normal((30, 30)))[0]  # the rotation of this seed
        rng, H = np.random.default_rng(1000 + seed), R @ np.diag(h) @ R.T
        theta = distance * rng.standard_normal((4000, 30)) @ R.T
        root = R @ np.diag(np.sqrt(h)) @ R.T if noise == "curvature" else np.diag(np.sqrt(np.diag(H)))
        g = theta @ H + rng.standard_normal((4000, 30)) @ root / math.sqrt(BATCH_SIZES[at])
        lrs = np.array([0.0, 0.02, 0.04])
        losses = [np.einsum("ni,ij,nj->n", x, H, x).mean() / 2 for lr in lrs for x in [theta - lr * np.sign(g)]]
        a, b, _ = np.polyfit(lrs, losses, 2)
        return -b / (2 * a)

    ratio = []
    for seed in range(8):
        monkeypatch.setattr(adam_rate_surges, "SEED", seed)
        ratio.append(one_step(h, "random", noise, distance)[0][at] / dense(seed))
    assert abs(np.mean(ratio) - 1) < 4 * np.std(ratio, ddof=1) / math.sqrt(8)
    assert np.std(ratio, ddof=1) < 0.1


def test_the_surge_is_no_accident_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    study = PaperStudy((4.0,))
    for seed in (1, 2):
        monkeypatch.setattr(adam_rate_surges, "SEED", seed)
        found = check("adam_rate_surges", study, axes="random", dim=300)
        assert found.verdict.name == "holds"
        assert found.number > 0.4


@pytest.mark.parametrize("premise", ["axes", "noise"])
def test_unknown_axes_are_refused(premise: str) -> None:
    with pytest.raises(ValueError, match=f"there is no {premise} 'coordinate' .did you mean coordinates"):
        check("adam_rate_surges", PaperStudy((4.0,)), **{premise: "coordinate"})


def test_a_peak_is_found_between_batch_sizes() -> None:
    sizes = np.array([1.0, 4, 16, 64, 256])
    assert peak_of(sizes, np.exp(-((np.log(sizes / 23)) ** 2))) == pytest.approx(23)
    assert peak_of(sizes, sizes) == 256


# The power that stands for Adam.


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_adam_divides_by_the_root_of_the_noise(exponent: float) -> None:
    """While noise dominates, noise of variance c = h^q makes Adam the preconditioner H^-(q / 2)."""
    found = check("adam_half_power", PaperStudy((1.0,), dim=100), noise_exponent=exponent)
    assert column(found.table, "power")[0] == pytest.approx(exponent / 2, abs=0.04)


def test_powers_are_interpolated_in_log_steps() -> None:
    ideal = [1000.0, 100.0, 10.0, 1.0]
    assert [adam_half_power._power(steps, ideal) for steps in ideal] == pytest.approx(POWERS)
    assert adam_half_power._power(math.sqrt(1000.0), ideal) == pytest.approx(0.375)
    assert adam_half_power._power(5000.0, ideal) == 0.0
