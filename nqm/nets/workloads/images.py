"""Images and labels from files in the format of MNIST."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .base import standardised
from .datasets import DataSet, read_idx


def readers(files: DataSet) -> tuple[Callable[[int], tuple[Tensor, Tensor]], Callable[[int], tuple[Tensor, Tensor]]]:
    """The functions ``data`` and ``val`` of a workload: the first n training images, and the test images scaled as they are."""

    def data(n: int) -> tuple[Tensor, Tensor]:
        x, y = images_of(files, "train")
        return standardised(x[:n]), y[:n]

    def val(n: int) -> tuple[Tensor, Tensor]:
        x, y = images_of(files, "t10k")
        return standardised(x, like=images_of(files, "train")[0][:n]), y

    return data, val


def images_of(files: DataSet, part: str) -> tuple[Tensor, Tensor]:
    """The images of a part, ``train`` or ``t10k``, as (examples, 1, rows, columns) of 0 to 255, and their labels."""
    x = read_idx(files.file(f"{part}-images-idx3-ubyte.gz"))
    y = read_idx(files.file(f"{part}-labels-idx1-ubyte.gz"))
    return torch.tensor(x, dtype=torch.float32)[:, None], torch.tensor(y, dtype=torch.int64)
