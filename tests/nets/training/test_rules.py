"""Optimizers of the lab against PyTorch's own, on stacks, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import mlp

from nqm.nets.training.rules import method_of, names
from nqm.nets.training.rules.base import Column
from nqm.nets.training.rules.flat import OPTIMIZERS
from nqm.nets.training.stacks import Plain, Stacked

SETTINGS: dict[str, list[dict[str, float]]] = {
    "SGD": [{"lr": 0.1}, {"lr": 0.5}],
    "HeavyBall": [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.3, "momentum": 0.5}],
    "Nesterov": [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.3, "momentum": 0.5}],
    "Adam": [{"lr": 0.1}, {"lr": 0.03, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6}],
    "AdamW": [{"lr": 0.1}, {"lr": 0.03, "beta1": 0.8, "weight_decay": 0.3}],
    "RMSProp": [{"lr": 0.01}, {"lr": 0.02, "alpha": 0.9, "momentum": 0.5}],
    "NormalisedSGD": [{"lr": 0.1}, {"lr": 0.2, "momentum": 0.5}],
    "Sign": [{"lr": 0.01}, {"lr": 0.02, "momentum": 0.5}],
    "Lion": [{"lr": 0.01}, {"lr": 0.02, "beta1": 0.5, "weight_decay": 0.1}],
    "ScheduleFree": [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.3, "momentum": 0.5}],
}
THEIRS: dict[str, Any] = {
    "SGD": lambda p, s: torch.optim.SGD(p, s["lr"]),
    "HeavyBall": lambda p, s: torch.optim.SGD(p, s["lr"], momentum=s["momentum"]),
    "Adam": lambda p, s: torch.optim.Adam(p, s["lr"], (s.get("beta1", 0.9), s.get("beta2", 0.999)), s.get("eps", 1e-8)),
    "AdamW": lambda p, s: torch.optim.AdamW(
        p, s["lr"], (s.get("beta1", 0.9), 0.999), weight_decay=s.get("weight_decay", 0.01)
    ),
    "RMSProp": lambda p, s: torch.optim.RMSprop(p, s["lr"], s.get("alpha", 0.99), momentum=s.get("momentum", 0.0)),
}
BATCHES = torch.randint(24, (6, 2, 5), generator=torch.Generator().manual_seed(0))


def steps(name: str, settings: list[dict[str, float]], kind: Any, rows: list[int]) -> torch.Tensor:
    """Weights after six steps of the trials in these rows."""
    network, method = mlp(), method_of(name)
    theta = torch.stack([network.theta * (1 + 0.1 * row) for row in rows])
    rule = method.start(network, theta, [settings[row] for row in rows], rows)
    for t, index in enumerate(BATCHES):
        rule.step(kind(network), index[rows], t)
    return rule.theta


@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_stack_steps_as_its_trials_would(name: str) -> None:
    together = steps(name, SETTINGS[name], Stacked, [0, 1])
    alone = torch.cat([steps(name, SETTINGS[name], Plain, [row]) for row in (0, 1)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(together[0], together[1])


def test_every_optimizer_of_the_package_that_wraps_no_other_is_trained() -> None:
    assert {kind.__name__ for kind in OPTIMIZERS} == set(SETTINGS)


@pytest.mark.parametrize("name", list(THEIRS))
def test_steps_are_those_of_pytorch(name: str) -> None:
    together = steps(name, SETTINGS[name], Stacked, [0, 1])
    for row, settings in enumerate(SETTINGS[name]):
        network = mlp()
        model = network.model
        model.load_state_dict(network.state_dict(network.theta * (1 + 0.1 * row)))
        optimizer = THEIRS[name](model.parameters(), settings)
        for index in BATCHES[:, row]:
            x, y = network.take(index)
            optimizer.zero_grad()
            network.loss(model(x), y).backward()
            optimizer.step()
        there = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        torch.testing.assert_close(together[row], there, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("torch_name", "own"), [("torch.SGD", "SGD"), ("torch.Adam", "Adam"), ("RMSprop", "RMSProp")])
def test_classes_of_torch_by_name(torch_name: str, own: str) -> None:
    settings = [{"lr": 0.05}]
    method_of(torch_name).check_settings(settings[0], None)
    torch.testing.assert_close(steps(torch_name, settings, Plain, [0]), steps(own, settings, Plain, [0]))


def test_muon_takes_matrices_and_adamw_the_rest() -> None:
    network, method = mlp(), method_of("Muon")
    method.check_settings({"lr": 0.02, "momentum": 0.9}, network)
    rule = method.start(network, network.theta[None], [{"lr": 0.02}], [0])
    rule.step(Plain(network), BATCHES[0, :1], 0)
    before, after = network.unflatten(network.theta), network.unflatten(rule.theta[0])
    g = network.unflatten(network.gradient(network.theta, network.take(BATCHES[0, 0])))
    torch.testing.assert_close(after["0.bias"], before["0.bias"] - 0.02 * g["0.bias"].sign(), rtol=1e-4, atol=1e-6)
    moved = torch.linalg.svdvals((after["0.weight"] - before["0.weight"]) / (0.02 * 0.2 * 7**0.5))
    assert float(moved.max()) < 1.3  # orthogonal as far as five Newton-Schulz steps make it
    assert float(moved.min()) > 0.6


def test_a_column_acts_as_a_number() -> None:
    column, x = Column([0.9, 0.999]), torch.ones(2, 3)
    torch.testing.assert_close(((1 - column) * x)[:, 0], torch.tensor([1 - 0.9, 1 - 0.999]), rtol=1e-7, atol=0)
    torch.testing.assert_close((x / (1 - column**3))[1, 0], torch.tensor(1 / (1 - 0.999**3)), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        (x - column * 2 - x + 2.0 / column)[0, 1], torch.tensor(2 / 0.9 - 1.8), rtol=1e-6, atol=0
    )
    assert (column.keep([1]) + x[:1]).shape == (1, 3)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("Adagarad", {"lr": 0.1}, "no optimizer 'Adagarad' .did you mean Adagrad.*; there are Adam, AdamW, HeavyBall"),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, "SGD has no setting 'momentum'; it has lr"),
        ("HeavyBall", {"lr": 0.1}, "HeavyBall needs a value of momentum"),
        ("Adam", {"lr": -0.1}, "lr must be positive"),
        ("Adam", {"lr": 0.1, "beta2": 1.0}, r"beta2 must be in \[0, 1\)"),
        ("RAdam", {"lr": 0.1, "beta3": 1.0}, "RAdam has no setting 'beta3'; it has lr, betas"),
        ("RAdam", {"lr": 0.1, "beta1": 2.0}, "torch.optim does not take"),
        ("RAdam", {"lr": 0.0}, "lr must be positive"),
        ("LBFGS", {"lr": 0.1}, "takes several passes a step"),
        ("RAdam", {"lr": 0.1, "eps": "x"}, "RAdam: eps must be a finite number, got 'x'"),
        ("RAdam", {"lr": 0.1, "maximize": True}, "RAdam has no setting 'maximize'"),
        ("RAdam", {"lr": 0.1, "decoupled_weight_decay": "x"}, "decoupled_weight_decay must be true or false, got 'x'"),
        ("Muon", {"lr": 0.1, "beta": 1.0}, "Muon has no setting 'beta'"),
        ("Muon", {"lr": 0.1, "nesterov": "x"}, "Muon: nesterov must be true or false, got 'x'"),
        ("Muon", {"lr": 0.1, "momentum": 2}, r"Muon: momentum must be in \[0, 1\), got 2"),
        ("Muon", {"lr": 0.1, "ns_steps": 2.5}, "Muon: ns_steps must be a whole number, 1 or more, got 2.5"),
        ("Muon", {"lr": 0.1, "eps": -1}, "Muon: eps must be positive, got -1"),
        ("KFAC", {"lr": 0.1, "empirical": "x"}, "KFAC: empirical must be true or false, got 'x'"),
        ("KFAC", {"lr": 0.1, "empirical": 0.5}, "KFAC: empirical must be true or false, got 0.5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_cannot_do_is_said(name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        method_of(name).check_settings(settings, None)


def test_every_name_is_an_optimizer() -> None:
    assert {"SGD", "HeavyBall", "Adam", "KFAC", "Muon", "RAdam", "Adagrad"} <= set(names())
    for name in names():
        assert method_of(name).name == name
