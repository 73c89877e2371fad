"""Training tasks by name, each a small file: data, model, loss, checkpoint."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..network import Network
    from .base import Workload

WORKLOADS = {
    "digits": "scikit-learn's digits, MLP 64-32-10",
    "fashion_mlp": "Fashion-MNIST, MLP 784-64-32-10",
    "fashion_cnn": "Fashion-MNIST, two strided convolutions and a linear layer",
    "mnist_cnn": "MNIST, two strided convolutions and a linear layer",
    "cifar_resnet8": "CIFAR-10, ResNet8 without batch norm",
    "moby_transformer": "Moby-Dick by characters, Transformer of two layers",
}


def workload(name: str) -> Workload:
    """A training task by its name."""
    if name not in WORKLOADS:
        raise ValueError(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    return import_module(f".{name}", __name__).WORKLOAD


def network_of(text: str, **options: Any) -> Network:
    """The network that a text names: a workload at its checkpoint, or ``module:function``, which returns a `Network`.

    The options are those of `Workload.network`; a function of the user's own makes its own checkpoint.
    """
    if ":" not in text:
        return workload(text).network(**options)
    if given := [name for name, value in options.items() if value is not None and name not in ("progress", "seed")]:
        raise ValueError(f"{' and '.join(given)} is for built-in workloads; {text} makes its own checkpoint")
    found = object_named(text)
    from ..network import Network

    if not isinstance(found, Network):
        raise ValueError(f"{text} returned {type(found).__name__}; it must return an nqm.nets.Network")
    return found


def object_named(text: str) -> Any:
    """What the user's function ``module:function`` returns; modules of the current folder can be named."""
    module_name, name = text.split(":", 1)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        hint = f"; write {module_name[:-3]}:{name}" if module_name.endswith(".py") else ""
        raise ValueError(f"cannot import {module_name!r} for {text}: {error}{hint}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{module_name} has no function {name!r}; write one that returns an nqm.nets.Network")
    try:
        return function()
    except (ValueError, TypeError, ImportError):  # sentences of Network's own
        raise
    except Exception as error:
        raise ValueError(f"{text} fails: {type(error).__name__}: {error}") from error
