"""Images and labels from files in the format of MNIST."""

from __future__ import annotations

import torch
from torch import Tensor

from .datasets import DataSet, read_idx


def images_of(files: DataSet, part: str) -> tuple[Tensor, Tensor]:
    """The images of a part, ``train`` or ``t10k``, as (examples, 1, rows, columns) of 0 to 255, and their labels."""
    x = read_idx(files.file(f"{part}-images-idx3-ubyte.gz"))
    y = read_idx(files.file(f"{part}-labels-idx1-ubyte.gz"))
    return torch.tensor(x, dtype=torch.float32)[:, None], torch.tensor(y, dtype=torch.int64)
