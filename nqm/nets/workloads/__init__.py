"""Training tasks by name: data, model, loss and checkpoint. Each data set has its own file."""

from __future__ import annotations

from importlib import import_module

import torch

from ...text.imports import imported, user_code
from ...types import Progress, Wrong, unknown
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
DATA_OF = {
    "fashion_mlp": "fashion", "fashion_cnn": "fashion", "mnist_cnn": "mnist", "cifar_resnet8": "cifar10",
    "moby_transformer": "moby_dick",
}  # fmt: skip
"""The file of each workload that is not named like its file. A workload is the constant there with its name in capitals."""


def workload(name: str) -> Workload:
    """A training task by its name."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS, argument="workload")
    return getattr(import_module(f".{DATA_OF.get(name, name)}", __name__), name.upper())


def network_of(
    text: str, *, steps: int | None = None, examples: int | None = None, seed: int = 0,
    dtype: torch.dtype | None = None, progress: Progress | None = None,
) -> Network:  # fmt: skip
    """The network that a text names: a workload at its checkpoint, or what ``module:function`` returns.

    The other arguments are those of `Workload.network`. If the function returns a `Network`, it is at its checkpoint
    already, and ``examples`` is the only one of these arguments that applies.
    """
    found = named(text)
    if isinstance(found, Workload):
        return found.network(steps, examples=examples, seed=seed, dtype=dtype, progress=progress)
    for name, value in (("steps", steps), ("dtype", dtype)):
        if value is not None:
            returned = f"{text} returned a Network, at its own checkpoint"
            raise Wrong(f"{name} is for built-in workloads and functions that return a Workload; {returned}", name)
    return found if examples is None else found.first(examples)


def named(text: str) -> Workload | Network:
    """The workload of this name, or what the user's ``module:function`` returns; the module may be in the current folder."""
    if ":" not in text:
        return workload(text)
    function = imported(text, "a function that returns an nqm.nets.Network")
    if not callable(function):
        raise Wrong(f"{text} is not a function; write one that returns an nqm.nets.Network", argument="workload")
    with user_code(text):
        found = function()
    if not isinstance(found, (Network, Workload)):
        kind = type(found).__name__
        raise Wrong(f"{text} returned {kind}; it must return an nqm.nets.Network or a Workload", argument="workload")
    return found
