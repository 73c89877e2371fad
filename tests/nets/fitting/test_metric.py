"""Fits in the metric of Adam: the state as torch has it, and predictions against torch's own AdamW."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from models import Trained, adamw_regression, advance
from torch import nn
from torch.nn import functional as F

from nqm import SGD, Adam, AdamW, Clipped, step
from nqm.nets import Fit, Network, fit
from nqm.nets.fitting.adam_state import read_state
from nqm.nets.fitting.metric import AdamMetric
from nqm.types import Array, Wrong


def real_losses(trained: Trained, times: list[int], lr: float, norm: float = math.inf) -> list[float]:
    """The losses of torch's own optimizer on full gradients."""
    model, optimizer, (x, y) = trained
    for group in optimizer.param_groups:
        group["lr"] *= lr / optimizer.defaults["lr"]
    found, t = list[float](), 0
    for last in times:
        while t < last:
            advance(model, optimizer, x, y, norm)
            t += 1
        found.append(float(F.mse_loss(model(x), y).detach()))
    return found


def measured(trained: Trained, **options: object) -> Fit:
    model, optimizer, data = trained
    return fit(Network(model, F.mse_loss, data), optimizer=optimizer, descent=0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("groups", [False, True])
def test_full_gradients_on_a_quadratic_are_those_of_torch(groups: bool) -> None:
    """v hardly moves here, and everything else is exact: momentum, decay, rates of groups."""
    trained, times = adamw_regression(groups), [0, 1, 3, 10, 30]
    predicted = measured(trained).predict(AdamW(0.02, beta2=0.9999999, weight_decay=0.1), math.inf, times, bent=False)
    real = real_losses(trained, times, 0.02)
    np.testing.assert_allclose(
        predicted.loss, real, rtol=1e-3 if groups else 1e-4
    )  # the pull of decay on distances is a mean over groups
    assert real[-1] < 0.9 * real[0]


@pytest.mark.parametrize("planted", [{"m": 0.0}, {"pull": 0.0}], ids=["no momentum", "no decay"])
def test_what_the_state_brings_along_is_needed(planted: dict[str, float]) -> None:
    trained, times = adamw_regression(), [10, 30]
    found = measured(trained)
    assert found.metric is not None
    wrong = {name: factor * getattr(found.metric, name) for name, factor in planted.items()}
    spoiled = AdamMetric(**{**vars(found.metric), **wrong})
    object.__setattr__(found, "metric", spoiled)
    predicted = found.predict(AdamW(0.02, beta2=0.9999999, weight_decay=0.1), math.inf, times, bent=False)
    assert np.abs(predicted.loss / real_losses(trained, times, 0.02) - 1).max() > 1e-3


def test_gradients_that_are_clipped() -> None:
    trained, times = adamw_regression(), [1, 5, 20]
    found = measured(trained)
    norm = 0.5 * math.sqrt(float(found.metric.norm2[0]))  # type: ignore[union-attr]
    predicted = found.predict(
        Clipped(AdamW(0.005, beta2=0.9999999, weight_decay=0.1), norm), math.inf, times, bent=False
    )
    np.testing.assert_allclose(predicted.loss, real_losses(trained, times, 0.005, norm), rtol=0.01)


def many_trainings(trained: Trained, lr: float, size: int, times: list[int]) -> tuple[Array, Array]:
    """The mean loss of 150 trainings by torch's own AdamW, and its standard error."""
    model, optimizer, (x, y) = trained
    weights, state = {k: v.clone() for k, v in model.state_dict().items()}, copy.deepcopy(optimizer.state_dict())
    rng, rows = torch.Generator().manual_seed(5), list[list[float]]()
    for _ in range(150):
        model.load_state_dict(weights)
        again = torch.optim.AdamW(model.parameters())
        again.load_state_dict(copy.deepcopy(state))
        again.param_groups[0]["lr"] = lr
        row = list[float]()
        for t in range(1, times[-1] + 1):
            index = torch.randint(len(x), (size,), generator=rng)
            advance(model, again, x[index], y[index])
            if t in times:
                row.append(float(F.mse_loss(model(x), y).detach()))
        rows.append(row)
    return np.mean(rows, 0), np.std(rows, 0, ddof=1) / math.sqrt(len(rows))


@pytest.mark.slow
def test_noise_is_that_of_many_trainings() -> None:
    trained, times = adamw_regression(steps=500), [5, 20, 60]
    adam = AdamW(0.02, beta2=0.9999999, weight_decay=0.1)
    predicted = measured(trained).predict(adam, 4, times, bent=False).loss
    mean, error = many_trainings(trained, 0.02, 4, times)
    assert np.all(np.abs(predicted - mean) < 3 * error + 0.01 * mean), (predicted, mean, error)
    assert mean[-1] > 1.02 * mean[0]


@pytest.mark.slow
@pytest.mark.parametrize("drift", [True, False])
def test_second_moments_drift_to_those_of_the_batch_size(drift: bool) -> None:
    """A state from batches of two examples, whose v is too large for batches of eight."""
    trained, times = adamw_regression(steps=500, beta2=0.97), [80]
    model, optimizer, data = trained
    (rows,) = Network(model, F.mse_loss, data).example_gradients()
    second = rows.mean(0) ** 2 + rows.var(0, unbiased=False) / 2
    for p, part in zip((model.weight, model.bias), second.split([12, 2]), strict=True):
        optimizer.state[p]["exp_avg_sq"] = part.reshape(p.shape).clone()
    found = measured(trained)
    assert found.metric is not None
    if not drift:
        still = {"drift_g2": 0 * found.metric.drift_g2, "drift_c": 8 + 0 * found.metric.drift_c}
        object.__setattr__(found, "metric", AdamMetric(**{**vars(found.metric), **still}))
    predicted = found.predict(AdamW(0.03, beta2=0.97, weight_decay=0.1), 8, times, bent=False).loss
    mean, _ = many_trainings(trained, 0.03, 8, times)
    error = abs((predicted[0] - found.loss) / (mean[0] - found.loss) - 1)  # of what noise has added, known to 3%
    assert (error < 0.1) == drift, error


def test_a_schedule_multiplies_the_rate() -> None:
    found, asked = measured(adamw_regression()), (8, [10, 20, 40])
    adam = AdamW(0.02, beta2=0.9999999, weight_decay=0.1)
    halved = found.predict(adam, *asked, step(40, 0.5, [20]))
    np.testing.assert_allclose(halved.loss[:2], found.predict(adam, *asked).loss[:2], rtol=1e-12)
    assert halved.loss[2] != pytest.approx(found.predict(adam, *asked).loss[2], rel=1e-3)


def test_a_state_dict_is_read_like_its_optimizer(tmp_path: Path) -> None:
    for groups in (False, True):
        model, optimizer, data = adamw_regression(groups)
        network = Network(model, F.mse_loss, data)
        one, other = read_state(network, optimizer), read_state(network, optimizer.state_dict())
        assert one.optimizer == other.optimizer == AdamW(0.01, beta2=0.9999999, weight_decay=0.1)
        for name in ("second", "momentum", "rate", "decay"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name))
        assert one.step == 10**7 + 30


def test_groups_that_can_be_matched_in_several_ways_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    halves = [{"params": list(layer.parameters())} for layer in reversed(model)]
    optimizer = torch.optim.AdamW(halves)
    x = torch.randn(4, 3)
    advance(model, optimizer, x, x)
    network = Network(model, F.mse_loss, (x, x))
    with pytest.raises(Wrong, match="in several ways"):
        read_state(network, optimizer.state_dict())
    assert read_state(network, optimizer).step == 1
    named = torch.optim.AdamW(
        [{"params": list(layer.named_parameters(f"{1 - i}"))} for i, layer in enumerate(reversed(model))]
    )
    advance(model, named, x, x)
    network = Network(model, F.mse_loss, (x, x))
    torch.testing.assert_close(read_state(network, named.state_dict()).momentum, read_state(network, named).momentum)


def test_wrong_use_gets_a_sentence() -> None:
    model, optimizer, data = adamw_regression()
    network = Network(model, F.mse_loss, data)
    with pytest.raises(Wrong, match="needs batch_size"):
        read_state(network, AdamW(0.01))
    with pytest.raises(Wrong, match="got int"):
        read_state(network, 3)
    with pytest.raises(Wrong, match="the metric of SGD"):
        read_state(network, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(Wrong, match="made no step yet"):
        read_state(network, torch.optim.AdamW(model.parameters()))
    moved = network.at(network.theta + 1)
    with pytest.raises(Wrong, match="its weights must be those of the network"):
        read_state(moved, optimizer)
    plain = fit(network, descent=0)
    with pytest.raises(Wrong, match="fit in its own metric"):
        plain.predict(AdamW(0.01), 8, 10)
    with pytest.raises(Wrong, match="in the metric of AdamW"):
        measured(adamw_regression()).predict(SGD(0.01), 8, 10)


def test_without_a_state_the_second_moments_are_measured() -> None:
    model, _, data = adamw_regression()
    network = Network(model, F.mse_loss, data)
    state = read_state(network, Adam(0.01), 8)
    (rows,) = network.example_gradients()
    expected = rows.mean(0) ** 2 + rows.var(0, unbiased=False) / 8
    torch.testing.assert_close(state.second, expected)
    assert state.step == 0


def test_a_file_has_the_metric(tmp_path: Path) -> None:
    found = measured(adamw_regression(True))
    for name in ("a.json", "a.npz"):
        found.save(tmp_path / name)
        again = Fit.load(tmp_path / name)
        asked = AdamW(0.02, beta2=0.9999999, weight_decay=0.1), 8, [0, 5, 50]
        np.testing.assert_array_equal(again.predict(*asked).loss, found.predict(*asked).loss)
        assert again.metric is not None
        assert again.metric.plain_noise_scale == found.metric.plain_noise_scale  # type: ignore[union-attr]
