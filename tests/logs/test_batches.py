"""The critical batch size along a run, from logs that the exact engine made at several batch sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import SGD, Quadratic, Spectrum
from nqm.logs import Log, forecast
from nqm.types import Wrong

FLOOR, A, ALPHA, S0, N, C = 2.0, 3.0, 0.5, 2.0, 4.0, 0.4
STEPS = np.unique(np.geomspace(20, 20_000, 100).astype(int))


def problem() -> Quadratic:
    """The law's two densities over curvature as modes of a quadratic, by a trapezoid rule in log h."""
    y, dy = np.linspace(-16, 3.2, 160, retstep=True)
    x = np.exp(y)
    signal = A * x**ALPHA * np.exp(-x) * dy / math.gamma(ALPHA)
    noise = N * x * np.exp(-x) * dy
    h = np.append(x / (2 * S0), C * x)
    zero = np.zeros(len(x))
    return Quadratic(Spectrum(h, np.append(zero, 2 * noise / h[160:]), np.append(2 * signal / h[:160], zero)))


def made(sizes: tuple[int, ...], seed: int = 0) -> list[Log]:
    """Logs at these batch sizes and two rates; the noise of the problem is that of batch size 64."""
    rng, logs = np.random.default_rng(seed), []
    for lr, size in zip((0.02, 0.02, 0.01), sizes, strict=True):
        run = problem().run(SGD(lr), size / 64, STEPS)
        scatter = 4e-4 * rng.standard_normal() + 4e-4 * rng.standard_normal(len(STEPS))
        logs.append(Log(STEPS, (FLOOR + run.loss) * np.exp(scatter), lr, size, "SGD", name=f"{lr} {size}"))
    return logs


def test_it_is_the_batch_size_at_which_signal_and_noise_are_alike() -> None:
    held = 0
    for seed in range(5):
        ramp = forecast(made((64, 256, 64), seed)).critical_batch_size(0.02, [200, 2000, 20_000], extrapolate=True)
        run = problem().run(SGD(0.02), 1, ramp.steps)
        truth = 64 * run.noise / run.signal
        np.testing.assert_allclose(ramp.batch_size, truth, rtol=0.15)
        held += int(((ramp.low <= truth) & (truth <= ramp.high)).sum())
    assert held >= 11  # of 15; with 90% each, fewer would be seen once in a hundred times


def test_another_batch_size_is_forecast() -> None:
    outlook = forecast(made((64, 256, 64))).predict(0.02, [20_000], batch_size=1024)
    truth = FLOOR + problem().run(SGD(0.02), 16, [20_000]).loss[0]
    assert outlook.loss[0] == pytest.approx(truth, rel=2e-3)
    assert "its batch size 1,024 is 4 times the largest of the logs, 256" in outlook.sentence


def test_the_ramp_follows_it() -> None:
    ramp = forecast(made((64, 256, 64))).critical_batch_size(extrapolate=True)
    sizes = ramp.ramp.batch_size
    assert np.all(np.diff(sizes) > 0)
    assert np.all(sizes <= ramp.batch_size.max())
    assert np.all(np.log2(sizes) == np.rint(np.log2(sizes)))
    assert ramp.megatron().startswith("0:1 ")
    assert ramp.to_dict()["megatron"] == ramp.megatron()


def test_one_batch_size_does_not_tell() -> None:
    with pytest.raises(Wrong, match="two or more batch sizes"):
        forecast(made((64, 64, 64))).critical_batch_size()


def test_the_ramp_stays_within_the_reach_of_the_logs() -> None:
    """Logs at 64 and 256 reach from 16 to 1,024; the critical batch size begins below 1."""
    found = forecast(made((64, 256, 64)))
    ramp, wide = found.critical_batch_size(), found.critical_batch_size(extrapolate=True)
    np.testing.assert_array_equal(ramp.batch_size, wide.batch_size)
    inside = (ramp.batch_size >= 16) & (ramp.batch_size <= 1024)
    np.testing.assert_array_equal(np.isfinite(ramp.low), inside)
    assert not inside.all()
    assert ramp.ramp.batch_size.min() == 16
    assert wide.ramp.batch_size.min() == 1
    assert f"At {(~inside).sum()} of {len(inside)} steps the critical batch size has no interval" in ramp.sentence
    assert wide.sentence == ""
    assert ramp.to_dict()["low"][0] is None
