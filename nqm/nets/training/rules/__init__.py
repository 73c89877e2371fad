"""The optimizers with which the lab trains real networks, by name. Each steps a stack of trials, or one trial."""

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
"""Functions that make the package's own methods; other names are classes of ``torch.optim``."""


def names() -> list[str]:
    """The names of all optimizers, of the package and of the installed PyTorch."""
    return [*METHODS, *(name for name in torch_names() if name not in METHODS)]


def method_of(name: str) -> Method:
    """The optimizer of this name; ``torch.SGD`` is PyTorch's, where the package has an optimizer of the same name.

    >>> method_of("HeavyBall").stacks, method_of("RAdam").stacks
    (True, False)
    """
    if name in METHODS:
        return METHODS[name]()
    kind = torch_class(name.removeprefix("torch."))
    if kind is None:
        raise unknown("optimizer", name, names(), argument="optimizer")
    return torch_method(name, kind)
