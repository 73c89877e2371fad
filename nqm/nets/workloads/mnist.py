"""MNIST (LeCun et al., 1998): 60,000 written digits, 28 x 28 pixels."""

from __future__ import annotations

from torch import Tensor

from .base import standardised
from .datasets import DataSet
from .fetch import how
from .images import images_of

FILES = DataSet("mnist", how("mnist"), shared=False)  # Fashion-MNIST has files of the same names


def data(n: int) -> tuple[Tensor, Tensor]:
    x, y = images_of(FILES, "train")
    return standardised(x[:n]), y[:n]


def val(n: int) -> tuple[Tensor, Tensor]:
    """The 10,000 digits of the test files."""
    x, y = images_of(FILES, "t10k")
    return standardised(x, like=images_of(FILES, "train")[0][:n]), y
