"""Any optimizer of ``torch.optim`` by the name of its class, one trial at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ....types import Wrong
from ...network import Network
from ..stacks import Slopes
from .base import Method, Rule, Settings, check_names, check_number, check_switch

Maker = Callable[[list[Tensor], Settings], list[torch.optim.Optimizer]]
UNFIT = {
    "LBFGS": "takes several passes a step, so that its steps do not compare",
    "SparseAdam": "needs sparse gradients",
    "Optimizer": "is no optimizer itself",
}
NO_SETTINGS = ("params", "named_parameters", "foreach", "fused", "capturable", "differentiable", "maximize")
"""Arguments that say how PyTorch computes, not what; and the one with which a training would climb."""


class TorchRule(Rule):
    """Optimizers of PyTorch on the parameters of one trial, which are views of its row of theta."""

    def __init__(self, network: Network, theta: Tensor, settings: Settings, make: Maker) -> None:
        assert len(theta) == 1, f"an optimizer of torch.optim trains one trial at a time, got {len(theta)}"
        self.flat, self.slope = theta[0].detach().clone(), torch.zeros_like(theta[0])
        self.parts = list(network.unflatten(self.flat).values())
        for part, slope in zip(self.parts, network.unflatten(self.slope).values(), strict=True):
            part.grad = slope
        self.optimizers = make(self.parts, settings)

    @property
    def theta(self) -> Tensor:
        return self.flat[None]

    def step(self, slopes: Slopes, index: Tensor, t: int) -> None:
        self.slope.copy_(slopes(self.theta, index)[0])
        for optimizer in self.optimizers:
            optimizer.step()

    def keep(self, rows: Sequence[int]) -> None:
        assert list(rows) == [0], f"there is one trial, got rows {list(rows)}"


def torch_class(name: str) -> type[torch.optim.Optimizer] | None:
    """The optimizer of ``torch.optim`` that has this name."""
    found = getattr(torch.optim, name, None)
    return found if inspect.isclass(found) and issubclass(found, torch.optim.Optimizer) else None


def torch_names() -> list[str]:
    """Optimizers of this PyTorch that a trial can use."""
    return [name for name in sorted(vars(torch.optim)) if torch_class(name) is not None and name not in UNFIT]


def arguments(settings: Settings) -> dict[str, Any]:
    """Settings as keyword arguments: ``beta1`` and ``beta2`` are the two ``betas``, and lists are tuples."""
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    if "beta1" in found or "beta2" in found:
        found["betas"] = (found.pop("beta1", 0.9), found.pop("beta2", 0.999))
    return found


def method(name: str, kind: type[torch.optim.Optimizer]) -> Method:
    """An optimizer of ``torch.optim`` as a method of the lab."""
    if kind.__name__ in UNFIT:
        raise Wrong(f"torch.optim.{kind.__name__} {UNFIT[kind.__name__]}; choose another optimizer", "optimizer")
    known = [n for n in inspect.signature(kind).parameters if n not in NO_SETTINGS]
    shown = [*known, "beta1", "beta2"] if "betas" in known else known

    def make(parts: list[Tensor], settings: Settings) -> list[torch.optim.Optimizer]:
        return [kind(parts, **arguments(settings))]

    def check_settings(settings: Settings, network: Network | None = None) -> None:
        check_names(name, settings, shown)
        check_number(name, "lr", settings["lr"], "positive", lambda v: v > 0)
        check_kinds(name, settings, kind)
        tried(name, make, settings, [torch.zeros(2, 2)])

    return one_by_one(name, check_settings, make)


def one_by_one(name: str, check_settings: Callable[[Settings, Network | None], None], make: Maker) -> Method:
    """The method of optimizers that ``make`` makes, for one trial at a time."""
    return Method(name, check_settings, lambda net, theta, all_, _: TorchRule(net, theta, all_[0], make), stacks=False)


def check_kinds(name: str, settings: Settings, kind: type[torch.optim.Optimizer]) -> None:
    """Refuse text for a number and a number for a switch: PyTorch takes them, and fails, or not, in the first step."""
    for setting, parameter in inspect.signature(kind).parameters.items():
        if setting not in settings:
            continue
        if isinstance(parameter.default, bool):
            check_switch(name, setting, settings[setting])
        elif isinstance(parameter.default, int | float):
            check_number(name, setting, settings[setting], "a finite number", lambda _: True)


def tried(name: str, make: Maker, settings: Settings, parts: list[Tensor]) -> None:
    """Make the optimizer once, so that it checks its values; what it says is passed on."""
    try:
        make(parts, settings)
    except (ValueError, TypeError, RuntimeError) as error:  # as PyTorch refuses values
        raise Wrong(f"{name}: torch.optim does not take {dict(settings)}: {error}", argument="settings") from None
