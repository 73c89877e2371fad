"""Fashion-MNIST with the simple CNN of Zhang et al. (2019) cut to two strided convolutions: 9,098 weights."""

from __future__ import annotations

from torch import nn

from ...optimizers import SGD
from .base import Workload
from .fashion import data, val


def model() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(784, 10)),
    )


WORKLOAD = Workload(
    "fashion_cnn", "two strided convolutions and a linear layer on 10,000 of Fashion-MNIST", data, model,
    examples=10_000, optimizer=SGD(0.05), batch_size=64, steps=600, target=0.3, val=val,
)  # fmt: skip
