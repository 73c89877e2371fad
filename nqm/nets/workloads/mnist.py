"""MNIST (LeCun et al., 1998): 60,000 written digits, 28 x 28 pixels."""

from __future__ import annotations

from torch import Tensor

from .base import standardised
from .fetch import how
from .images import pictures
from .sources import Source

SOURCE = Source("mnist", how("mnist"), shared=False)  # Fashion-MNIST has files of the same names


def data(n: int) -> tuple[Tensor, Tensor]:
    x, y = pictures(SOURCE, "train")
    return standardised(x[:n]), y[:n]


def val(n: int) -> tuple[Tensor, Tensor]:
    """The 10,000 digits of the test files."""
    x, y = pictures(SOURCE, "t10k")
    return standardised(x, like=pictures(SOURCE, "train")[0][:n]), y
