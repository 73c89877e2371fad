"""Steps of K-FAC against a reference that forms every matrix, option by option; each has a planted bug that is found."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from models import attention, cnn, mlp, regression
from torch import Tensor

from nqm.nets.curvature import GaussNewton
from nqm.nets.network import Network
from nqm.nets.training.kronecker import layers_of, statistics
from nqm.nets.training.rules.base import Column
from nqm.nets.training.rules.kfac import KFACRule
from nqm.nets.training.rules.ratio import followed, reduction_ratio
from nqm.nets.training.stacks import Plain, Stacked

DOUBLE = torch.float64
STEPS = 10
PLAIN = {
    "lr": 0.2, "damping": 0.03, "momentum": 0.7, "decay": 0.9, "kl_clip": 0, "weight_decay": 0, "warmup": 0,
    "damping_period": 0, "inverse_period": 4, "staleness": 0, "empirical": 1,
}  # fmt: skip
RENEWALS = {0.05: range(STEPS), 0.5: (0, 1, 2, 4, 8), 0.9: (0, 1, 5, 9)}
"""The steps at which inverses are computed, by hand from the rule of the docstring with a period of 4."""


def batches(network: Network) -> list[Tensor]:
    """Overlapping batches of twelve examples, another one at each step."""
    return [torch.arange(3 * t, 3 * t + 12) % network.examples for t in range(STEPS)]


def places(network: Network, layer: object) -> Tensor:
    """Where in the flat vector the entries of a layer's matrix lie, column after column."""
    numbers = network.unflatten(torch.arange(network.dim, dtype=DOUBLE)[None])
    return layer.matrix(numbers)[0].T.reshape(-1).long()  # type: ignore[attr-defined]


def on(network: Network, theta: Tensor, index: Tensor) -> Network:
    """The network at theta with the examples of a batch as its data."""
    return Network(network.model, network.loss, network.take(index), dtype=DOUBLE).at(theta)


class Dense:
    """K-FAC with whole blocks kron(A, G), one trial, settings as in `PLAIN`; ``bug`` names one that is planted."""

    def __init__(self, network: Network, settings: dict[str, float], bug: str = "") -> None:
        self.network, self.settings, self.bug = network, settings, bug
        self.theta, self.v = network.theta.clone(), torch.zeros_like(network.theta)
        self.damping, self.running, self.inverses = settings["damping"], dict[str, list[Tensor]](), dict[str, Tensor]()

    def step(self, index: Tensor, t: int) -> None:
        one, theta = self.settings, self.theta
        here = on(self.network, theta, index)
        g, d = here.gradient(theta, here.data), torch.zeros_like(theta)
        got = statistics(Plain(here), layers_of(here), theta[None], torch.arange(len(index))[None], None)
        share, renewed = min(1 - 1 / (t + 1), one["decay"]), RENEWALS.get(one["staleness"], range(STEPS))
        for layer in layers_of(here):
            new = [factor[0] for factor in got.factors[layer.name]]
            old = self.running.get(layer.name, new)
            A, G = self.running[layer.name] = [share * o + (1 - share) * n for o, n in zip(old, new, strict=True)]
            if t in (range(0, STEPS, 4) if self.bug == "period alone" else renewed):
                self.inverses[layer.name] = torch.linalg.inv(self.damped(A, G))
            where = places(here, layer)
            d[where] = self.inverses[layer.name] @ g[where]
        rising = t if self.bug == "warm-up from zero" else t + 1
        lr = one["lr"] * (min(1.0, rising / one["warmup"]) if one["warmup"] else 1.0)
        rate = one["lr"] if self.bug == "clip at the full rate" else lr
        clip = math.sqrt(one["kl_clip"] / (rate**2 * float(d @ g))) if one["kl_clip"] else 1.0
        if self.bug == "clip after momentum":
            self.v = one["momentum"] * self.v + d
            moved = min(1.0, clip) * self.v
        else:
            moved = self.v = one["momentum"] * self.v + min(1.0, clip) * d
        if self.bug == "coupled decay":
            moved = self.v = self.v + one["weight_decay"] * theta
        kept = 1 if self.bug == "coupled decay" else 1 - lr * one["weight_decay"]
        self.theta = kept * theta - lr * moved
        if one["damping_period"] and (t + 1) % one["damping_period"] == 0:
            self.test(here, g)

    def damped(self, A: Tensor, G: Tensor) -> Tensor:
        pi = math.sqrt((A.trace() / len(A)) / (G.trace() / len(G)))
        root = math.sqrt(self.damping)
        A = A + pi * root * torch.eye(len(A), dtype=DOUBLE)
        return torch.kron(A, G + root / pi * torch.eye(len(G), dtype=DOUBLE))

    def test(self, here: Network, g: Tensor) -> None:
        damping = 0 if self.bug == "model without damping" else self.damping
        ratio = dense_ratio(here, self.theta - here.theta, g, damping)
        factor = (20 / 19) ** self.settings["damping_period"]
        self.damping *= 1 / factor if ratio > 0.75 else factor if ratio < 0.25 else 1


def dense_ratio(here: Network, step: Tensor, g: Tensor, damping: float) -> float:
    """The reduction ratio with the whole Gauss-Newton matrix, and the loss over all the network's data."""
    F = GaussNewton(here).dense()
    change = here.full_loss(here.theta + step) - here.full_loss(here.theta)
    model = float(g @ step + step @ F @ step / 2 + damping * step @ step / 2)
    return change / model if model < 0 else -math.inf


CASES = {
    "plain": ({}, None),
    "fresh inverses": ({"staleness": 0.05}, "period alone"),
    "inverses by powers of two": ({"staleness": 0.5}, "period alone"),
    "stale inverses": ({"staleness": 0.9}, "period alone"),
    "clip": ({"kl_clip": 0.001}, "clip after momentum"),
    "warm-up": ({"warmup": 6}, "warm-up from zero"),
    "clip and warm-up": ({"kl_clip": 0.001, "warmup": 6}, "clip at the full rate"),
    "weight decay": ({"weight_decay": 0.3}, "coupled decay"),
    "ratio test": ({"damping_period": 2, "lr": 1.5, "momentum": 0, "damping": 0.1}, "model without damping"),
    "all": (
        {"kl_clip": 0.01, "warmup": 3, "weight_decay": 0.1, "damping_period": 2, "staleness": 0.5},
        "clip after momentum",
    ),
}
"""For each case the settings that it changes, and a planted bug that they must show."""


def walked(network: Network, settings: dict[str, float], bug: str = "") -> Iterator[tuple[Tensor, Tensor]]:
    """Weights of the rule and of the reference, step by step."""
    rule, dense = KFACRule(network, network.theta[None], [settings], [0]), Dense(network, settings, bug)
    for t, index in enumerate(batches(network)):
        rule.step(Plain(network), index[None], t)
        dense.step(index, t)
        yield rule.theta[0], dense.theta


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("make", [mlp, regression], ids=["classes", "numbers"])
def test_steps_are_those_of_the_dense_reference(case: str, make: object) -> None:
    for mine, theirs in walked(make(), {**PLAIN, **CASES[case][0]}):  # type: ignore[operator]
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", [case for case, (_, bug) in CASES.items() if bug])
def test_a_planted_bug_is_found(case: str) -> None:
    changed, bug = CASES[case]
    *_, (mine, theirs) = walked(mlp(), {**PLAIN, **changed}, str(bug))
    assert float((mine - theirs).norm() / theirs.norm()) > 1e-6  # a thousand times the tolerance of the test above


@pytest.mark.parametrize("make", [mlp, cnn, attention, regression], ids=["mlp", "cnn", "attention", "regression"])
def test_the_ratio_is_that_of_the_dense_model(make: object) -> None:
    network, index = make(), torch.arange(6)  # type: ignore[operator]
    damping, rng = [0.01, 0.3], torch.Generator().manual_seed(1)
    theta = network.theta + 0.1 * torch.randn(2, network.dim, generator=rng, dtype=DOUBLE)
    places = [on(network, row, index) for row in theta]
    slopes = [here.gradient(here.theta, here.data) for here in places]
    step = torch.stack([-0.1 * slopes[0], 0.05 * slopes[1]])  # the second climbs
    expected = [dense_ratio(*one) for one in zip(places, step, slopes, damping, strict=True)]
    assert expected[1] == -math.inf
    for kind in (Plain, Stacked):
        found = reduction_ratio(kind(network), theta, step, index[None], Column(damping))
        assert found.tolist() == pytest.approx(expected, rel=1e-7)


def test_the_ratio_of_a_batch_is_that_of_its_pieces() -> None:
    network, index = mlp(), torch.arange(24)[None]
    arguments = (network.theta[None], 0.01 * torch.ones(1, network.dim, dtype=DOUBLE), index, Column([0.1]))
    whole = reduction_ratio(Plain(network), *arguments)
    network.chunk = 7
    torch.testing.assert_close(reduction_ratio(Plain(network), *arguments), whole)


def test_damping_follows_the_ratio() -> None:
    ratio = torch.tensor([1.2, 0.76, 0.74, 0.26, 0.24, -math.inf, math.nan], dtype=DOUBLE)
    found = followed(torch.full((7,), 0.1, dtype=DOUBLE), ratio, 5)
    down, up = 0.1 * 0.95**5, 0.1 / 0.95**5
    assert found.tolist() == pytest.approx([down, down, 0.1, 0.1, up, up, 0.1], rel=1e-12)
    ends = followed(torch.tensor([1e-10, 1e10], dtype=DOUBLE), torch.tensor([1.0, 0.0], dtype=DOUBLE), 5)
    assert ends.tolist() == [1e-10, 1e10]


def test_a_clipped_step_moves_the_model_by_as_much_as_it_may() -> None:
    """Where K-FAC is exact and nothing is damped, lr^2 d'Fd of a clipped step is the bound itself."""
    torch.manual_seed(0)
    x = torch.randn(50, 4, dtype=DOUBLE)
    y = torch.randn(50, 3, dtype=DOUBLE)
    network = Network(torch.nn.Linear(4, 3), torch.nn.functional.mse_loss, (x, y), dtype=DOUBLE)
    layer, F = layers_of(network)[0], GaussNewton(network).dense()
    rule = KFACRule(network, network.theta[None], [{"lr": 1.0, "damping": 1e-12, "kl_clip": 0.01}], [0])
    a = torch.cat([x, torch.ones(50, 1, dtype=DOUBLE)], 1)
    exact = ((a.T @ a / 50)[None], (2 / 3 * torch.eye(3, dtype=DOUBLE))[None])
    rule.factors[layer.name] = exact
    rule.gather = lambda slopes, index: slopes(rule.theta, index)  # type: ignore[method-assign]
    rule.step(Plain(network), torch.arange(50)[None], 0)
    step = rule.theta[0] - network.theta
    assert float(step @ F @ step) == pytest.approx(0.01, rel=1e-5)
