"""Training tasks by name, each a small file: data, model, loss, checkpoint."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
