"""CIFAR-10 (Krizhevsky, 2009): 50,000 colour pictures of ten kinds of things, 32 x 32 pixels."""

from __future__ import annotations

import json

import torch
from torch import Tensor

from ...types import Wrong
from .base import standardised
from .fetch import how
from .sources import Source, read_png

SOURCE = Source("cifar10", how("cifar10"))
SIDE = 32


def data(n: int) -> tuple[Tensor, Tensor]:
    """The first n training pictures."""
    labels = json.loads(SOURCE.file("train_lables.json").read_text())
    x = _first(n)
    return standardised(x), torch.tensor(labels[: len(x)], dtype=torch.int64)


def val(n: int) -> tuple[Tensor, Tensor]:
    """The 10,000 test pictures."""
    labels = json.loads(SOURCE.file("test_lables.json").read_text())
    return standardised(_pictures("test_batch"), like=_first(n)), torch.tensor(labels, dtype=torch.int64)


def _first(n: int) -> Tensor:
    files, left = [], n
    while left > 0 and len(files) < 5:
        files.append(_pictures(f"data_batch_{len(files) + 1}")[:left])
        left -= len(files[-1])
    return torch.cat(files)


def _pictures(name: str) -> Tensor:
    """The pictures of a file, (examples, 3, rows, columns): a row of it is one, its 1,024 pixels in reading order."""
    pixels = read_png(SOURCE.file(f"{name}.png"))
    if pixels.ndim != 3 or pixels.shape[1] != SIDE**2 or pixels.shape[2] < 3:
        raise Wrong(f"a batch of CIFAR-10 has 1,024 RGB pixels in a row; this has shape {pixels.shape}")
    return torch.from_numpy(pixels[:, :, :3]).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2).float().contiguous()
