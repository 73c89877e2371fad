"""The 1,797 digits that scikit-learn bundles, 8 x 8 pixels, with a small MLP. Nothing is downloaded or takes long."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...optimizers import SGD
from ...types import Wrong
from .base import Workload, standardised

FIRST_HELD_OUT = 1500  # examples from this one on are held out


def data(n: int) -> tuple[Tensor, Tensor]:
    """The first n examples."""
    x, y = _all()
    return standardised(x[:n]), y[:n]


def val(n: int) -> tuple[Tensor, Tensor]:
    """The last 297 examples."""
    if n > FIRST_HELD_OUT:
        raise Wrong(f"digits holds out its last 297 examples: train on {FIRST_HELD_OUT} at most, not {n}", "examples")
    x, y = _all()
    return standardised(x[FIRST_HELD_OUT:], like=x[:n]), y[FIRST_HELD_OUT:]


def _all() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)


def model() -> nn.Module:
    """An MLP with one hidden layer: 2,410 weights."""
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


DIGITS = Workload("digits", data, model, examples=1797, optimizer=SGD(0.1), batch_size=64, steps=300, val=val)
