"""The optimizers with which the lab trains real networks, by name. Each steps a stack of trials, or one trial."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import cast

import torch

from ....optimizers import Optimizer
from ....text.imports import imported
from ....types import Wrong, unknown
from .base import Method, Rule, Settings
from .flat import OPTIMIZERS
from .flat import method as flat_method
from .kfac import kfac
from .muon import muon
from .torch_optim import method as torch_method
from .torch_optim import one_by_one, torch_class, torch_names

__all__ = ["Method", "Rule", "Settings", "method_of", "names"]

METHODS: dict[str, Callable[[], Method]] = {
    **{kind.__name__: partial(flat_method, kind) for kind in OPTIMIZERS}, "KFAC": kfac, "Muon": muon,
}  # fmt: skip
"""Functions that make the package's own methods; other names are classes of ``torch.optim``."""


def names() -> list[str]:
    """The names of all optimizers, of the package and of the installed PyTorch."""
    return [*METHODS, *(name for name in torch_names() if name not in METHODS)]


def method_of(name: str) -> Method:
    """The optimizer of this name; ``torch.SGD`` is PyTorch's, where the package has an optimizer of the same name.

    ``module:name`` is an optimizer of the user's own: a class of either kind, or a function that takes the parameters and
    settings by name and returns an optimizer of PyTorch.

    >>> method_of("HeavyBall").stacks, method_of("RAdam").stacks
    (True, False)
    """
    if ":" in name:
        return _own(name)
    if name in METHODS:
        return METHODS[name]()
    kind = torch_class(name.removeprefix("torch."))
    if kind is None:
        raise unknown("optimizer", name, names(), argument="optimizer")
    return torch_method(name, kind)


def _own(name: str) -> Method:
    """The method of an optimizer that the user wrote, ``module:name``."""
    found = imported(name, "an optimizer: a class, or a function that returns an optimizer of PyTorch")
    if inspect.isclass(found) and issubclass(found, Optimizer):
        return flat_method(found)
    if inspect.isclass(found) and issubclass(found, torch.optim.Optimizer):
        return torch_method(name, found)
    if inspect.isclass(found) or not callable(found):
        kinds = "a class of nqm.Optimizer or torch.optim.Optimizer, or a function that returns the latter"
        raise Wrong(f"the optimizer {name} must be {kinds}; it is {found!r:.60}", argument="optimizer")
    function = cast(Callable[..., torch.optim.Optimizer], found)
    known = list(inspect.signature(function).parameters)[1:]
    return one_by_one(name, lambda parts, settings: [function(parts, **settings)], known, {"lr": "positive"})
