"""MNIST with the same two strided convolutions as Fashion-MNIST."""

from __future__ import annotations

from ...optimizers import SGD
from .base import Workload
from .fashion_cnn import model
from .mnist import data, val

WORKLOAD = Workload(
    "mnist_cnn", "two strided convolutions and a linear layer on 10,000 of MNIST", data, model,
    examples=10_000, optimizer=SGD(0.05), batch_size=64, steps=600, target=0.1, val=val,
)  # fmt: skip
