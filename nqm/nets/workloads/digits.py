"""The 1,797 digits that scikit-learn bundles, 8 x 8 pixels, with a small MLP: seconds for everything, and no download."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...optimizers import SGD
from .base import Workload, standardised


def data(n: int) -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return standardised(torch.tensor(x[:n], dtype=torch.float32)), torch.tensor(y[:n], dtype=torch.int64)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


WORKLOAD = Workload(
    "digits", "MLP 64-32-10 on scikit-learn's digits", data, model,
    examples=1797, optimizer=SGD(0.1), batch_size=64, steps=300, target=0.2,
)  # fmt: skip
