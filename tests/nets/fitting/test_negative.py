"""Negative curvature: measured, kept apart, and told."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from nqm import SGD
from nqm.nets import Network
from nqm.nets.fitting.advice import advise
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.negative import negative_part
from nqm.nets.fitting.probing import fit


class Saddle(nn.Module):
    """Weights at a saddle of ``(x^2 - y^2 / 20) / 2 + y^4 / 400 + 1``, seen through one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.1, 0.5], dtype=torch.float64))


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    assert isinstance(model, Saddle)
    x, y = model.w + 0.0 * batch[0].mean()
    noise = batch[0].mean() * (x + y)
    return (x**2 - y**2 / 20) / 2 + y**4 / 400 + 1 + noise


@cache
def saddle(descent: int) -> Fit:
    generator = torch.Generator().manual_seed(0)
    data = 0.1 * torch.randn(64, 1, generator=generator, dtype=torch.float64)
    network = Network(Saddle(), loss, (data - data.mean(), torch.zeros(64)), of="model")
    return fit(network, steps=2, noise_vectors=2, noise_steps=2, descent=descent, curvature="hessian", test=False)


def test_the_fall_along_negative_curvature_is_that_of_a_step_loop() -> None:
    part = negative_part(np.array([2.0, -0.5, -0.01]), np.array([1.0, 0.3, 0.2]))
    assert part.share == pytest.approx(0.5 / 1.5)
    assert part.least == -0.5
    fallen = 0.0
    for h, g2 in ((-0.5, 0.3), (-0.01, 0.2)):
        theta = math.sqrt(g2) / h  # distance from the stationary point, where the gradient is h theta
        start = h * theta**2 / 2
        for _ in range(7):
            theta -= 0.1 * h * theta
        fallen += start - h * theta**2 / 2 - 7 * 0.1 * g2
    assert part.lost(0.1, 7) == pytest.approx(fallen, rel=1e-12)
    assert negative_part(np.array([1.0]), np.array([1.0])).lost(0.1, 10**6) == 0
    assert part.lost(0.1, 10**7) == math.inf


def test_a_saddle_has_no_offset_of_minus_infinity() -> None:
    found = saddle(30)
    assert found.signal.h.min() < -0.03
    assert found.negative.told
    assert -1 < found.offset < found.loss
    ahead = found.predict(SGD(0.1), 64, 300)
    assert "negative curvature, down to -0.04" in ahead.message
    x, y = 0.1, 0.5
    for _ in range(300):
        x, y = x - 0.1 * x, y - 0.1 * (-y / 20 + y**3 / 100)
    real = (x**2 - y**2 / 20) / 2 + y**4 / 400 + 1
    assert ahead.loss[-1] == pytest.approx(real, rel=0.02)
    assert ahead.low[-1] < real < ahead.high[-1]


def test_the_plain_quadratic_says_what_it_lacks_and_ends_where_it_has_no_minimum() -> None:
    found = saddle(0)
    short = found.predict(SGD(0.1), 64, 20)
    assert short.run.outcome.ok
    assert "the quadratic takes it as flat: along it the loss falls by" in short.message
    long = found.predict(SGD(0.1), 64, 2000)
    assert not long.run.outcome.ok
    assert "falls by more than the whole loss within 2,000 steps" in long.message
    advice = advise(found, 16, 0.98 * found.loss)
    assert not advice.reachable
    assert "has no minimum; fit with a descent" in advice.sentences[0]
