"""CIFAR-10 (Krizhevsky, 2009): 50,000 colour pictures of ten kinds of things, 32 x 32 pixels."""

from __future__ import annotations

import json

import numpy as np
import torch
from torch import Tensor

from .base import standardised
from .fetch import how
from .sources import Source, read_png

SOURCE = Source("cifar10", how("cifar10"))
SIDE = 32


def data(n: int) -> tuple[Tensor, Tensor]:
    """The first n training pictures: a row of ``data_batch_k.png`` is one, its 1,024 pixels in reading order."""
    labels = json.loads(SOURCE.file("train_lables.json").read_text())
    files, left = [], n
    while left > 0 and len(files) < 5:
        pixels = read_png(SOURCE.file(f"data_batch_{len(files) + 1}.png"))
        if pixels.ndim != 3 or pixels.shape[1] != SIDE**2 or pixels.shape[2] < 3:
            raise ValueError(f"a batch of CIFAR-10 has 1,024 RGB pixels in a row; this has shape {pixels.shape}")
        files.append(pixels[:left, :, :3])
        left -= len(pixels)
    x = torch.from_numpy(np.concatenate(files)).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2).float()
    return standardised(x).contiguous(), torch.tensor(labels[: len(x)], dtype=torch.int64)
