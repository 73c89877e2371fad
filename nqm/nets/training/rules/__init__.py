"""Optimizers that the lab trains real networks with, by name; each steps a stack of trials, or one trial."""

from __future__ import annotations

from ....types import Wrong
from .base import Method, Rule, Settings
from .flat import OPTIMIZERS
from .flat import method as flat_method
from .kfac import kfac
from .muon import muon
from .torch_optim import method as torch_method
from .torch_optim import torch_class, torch_names

__all__ = ["Method", "Rule", "Settings", "method_of", "names"]

PREFIX = "torch."


def names() -> list[str]:
    """Optimizers of the package and of this PyTorch."""
    own = [kind.__name__ for kind in OPTIMIZERS] + ["KFAC", "Muon"]
    return own + [name for name in torch_names() if name not in own]


def method_of(name: str) -> Method:
    """An optimizer by its name; ``torch.SGD`` is PyTorch's where the package has one of the same name.

    >>> method_of("HeavyBall").stacks, method_of("RAdam").stacks
    (True, False)
    """
    for kind in OPTIMIZERS:
        if kind.__name__ == name:
            return flat_method(kind)
    if name in ("KFAC", "Muon"):
        return kfac() if name == "KFAC" else muon()
    kind = torch_class(name.removeprefix(PREFIX))
    if kind is None:
        raise Wrong(f"there is no optimizer {name!r}; there are {', '.join(names())}")
    return torch_method(name, kind)
