"""Pictures and labels from files in the format of MNIST."""

from __future__ import annotations

import torch
from torch import Tensor

from .sources import Source, read_idx


def pictures(source: Source, part: str) -> tuple[Tensor, Tensor]:
    """The pictures of a part, ``train`` or ``t10k``, as (examples, 1, rows, columns) of 0 to 255, and their labels."""
    x = read_idx(source.file(f"{part}-images-idx3-ubyte.gz"))
    y = read_idx(source.file(f"{part}-labels-idx1-ubyte.gz"))
    return torch.tensor(x, dtype=torch.float32)[:, None], torch.tensor(y, dtype=torch.int64)
