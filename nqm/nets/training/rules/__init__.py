"""Optimizers that the lab trains real networks with, by name; each steps a stack of trials, or one trial."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....types import unknown
from .base import Method, Rule, Settings
from .flat import OPTIMIZERS
from .flat import method as flat_method
from .kfac import kfac
from .muon import muon
from .torch_optim import method as torch_method
from .torch_optim import torch_class, torch_names

__all__ = ["Method", "Rule", "Settings", "method_of", "names"]

METHODS: dict[str, Callable[[], Method]] = {
    **{kind.__name__: partial(flat_method, kind) for kind in OPTIMIZERS}, "KFAC": kfac, "Muon": muon,
}  # fmt: skip
"""The methods that are the package's own, each made when it is asked for; another name is PyTorch's."""


def names() -> list[str]:
    """Optimizers of the package and of this PyTorch."""
    return [*METHODS, *(name for name in torch_names() if name not in METHODS)]


def method_of(name: str) -> Method:
    """An optimizer by its name; ``torch.SGD`` is PyTorch's where the package has one of the same name.

    >>> method_of("HeavyBall").stacks, method_of("RAdam").stacks
    (True, False)
    """
    if name in METHODS:
        return METHODS[name]()
    kind = torch_class(name.removeprefix("torch."))
    if kind is None:
        raise unknown("optimizer", name, names(), argument="optimizer")
    return torch_method(name, kind)
