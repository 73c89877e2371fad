"""Fashion-MNIST with an MLP of two hidden layers."""

from __future__ import annotations

from torch import nn

from ...optimizers import SGD
from .base import Workload
from .fashion import data, val


def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


WORKLOAD = Workload(
    "fashion_mlp", "MLP 784-64-32-10 on 10,000 of Fashion-MNIST", data, model,
    examples=10_000, optimizer=SGD(0.05), batch_size=64, steps=600, target=0.3, val=val,
)  # fmt: skip
