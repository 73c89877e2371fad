"""Training tasks by name: data, model, loss, checkpoint; a file for each data set."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ...text.imports import imported, user_code
from ...types import Progress, Wrong, unknown

if TYPE_CHECKING:
    import torch

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
"""The file of a workload whose data has another name; there it is the constant of its name in capitals."""


def workload(name: str) -> Workload:
    """A training task by its name."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS, argument="workload")
    return getattr(import_module(f".{DATA_OF.get(name, name)}", __name__), name.upper())


def network_of(
    text: str, *, steps: int | None = None, examples: int | None = None, seed: int = 0,
    dtype: torch.dtype | None = None, progress: Progress | None = None,
) -> Network:  # fmt: skip
    """The network that a text names: a workload at its checkpoint, or ``module:function``, which returns a `Network`.

    The other arguments are those of `Workload.network`; a function of the user's own makes its own checkpoint.
    """
    if ":" not in text:
        return workload(text).network(steps, examples=examples, seed=seed, dtype=dtype, progress=progress)
    for name, value in (("steps", steps), ("examples", examples), ("dtype", dtype)):
        if value is not None:
            raise Wrong(f"{name} is for built-in workloads; {text} makes its own checkpoint", argument=name)
    from ..network import Network

    found = returned(text)
    if not isinstance(found, Network):
        kind = type(found).__name__
        raise Wrong(f"{text} returned {kind}; it must return an nqm.nets.Network", argument="workload")
    return found


def returned(text: str) -> object:
    """What the user's function ``module:function`` returns; modules of the current folder can be named."""
    function = imported(text, "a function that returns an nqm.nets.Network")
    if not callable(function):
        raise Wrong(f"{text} is no function; write one that returns an nqm.nets.Network", argument="workload")
    with user_code(text):
        return function()
