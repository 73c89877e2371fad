"""Any optimizer of ``torch.optim``, by the name of its class, for one trial at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ....types import Wrong
from ...network import Network
from ..stacks import Slopes
from .base import Method, Rule, Settings, check_settings

Maker = Callable[[list[Tensor], Settings], list[torch.optim.Optimizer]]
UNFIT = {
    "LBFGS": "takes several passes a step, so its steps cannot be compared with those of others",
    "SparseAdam": "needs sparse gradients",
    "Optimizer": "is the base class of optimizers",
}
"""Why these classes of ``torch.optim`` cannot be used, as the end of a sentence."""
NO_SETTINGS = ("params", "named_parameters", "foreach", "fused", "capturable", "differentiable", "maximize")
"""Arguments that are no settings: they change how PyTorch computes and not what, except ``maximize``, which would ascend."""


class TorchRule(Rule):
    """Optimizers of PyTorch on the parameters of one trial, which are views of one flat vector."""

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
    """Settings as keyword arguments: ``beta1`` and ``beta2`` become ``betas``, and lists become tuples."""
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

    return one_by_one(name, make, shown, ranges_of(kind))


def ranges_of(kind: type[torch.optim.Optimizer]) -> dict[str, str]:
    """The range of each setting whose default is a number or a switch: PyTorch itself often accepts text in their place."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
    switches = {name: "true or false" for name, value in defaults.items() if isinstance(value, bool)}
    numbers = {name: "a finite number" for name, value in defaults.items() if isinstance(value, int | float)}
    return {**numbers, **switches, "lr": "positive"}


def one_by_one(
    name: str, make: Maker, known: Sequence[str], ranges: Mapping[str, str],
    check_network: Callable[[Network], None] | None = None,
) -> Method:  # fmt: skip
    """The method that trains one trial at a time with the optimizers that ``make`` makes."""

    def check(settings: Settings, network: Network | None = None) -> None:
        check_settings(name, settings, known, ranges)
        try:
            make([torch.zeros(2, 2), torch.zeros(2)], settings)  # PyTorch checks further values itself
        except (ValueError, TypeError, RuntimeError) as error:
            raise Wrong(f"{name}: torch.optim does not take {dict(settings)}: {error}", argument="settings") from None
        if network is not None and check_network is not None:
            check_network(network)

    return Method(name, check, lambda net, theta, all_, _: TorchRule(net, theta, all_[0], make), stacks=False)
