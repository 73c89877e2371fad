"""CIFAR-10 (Krizhevsky, 2009): 50,000 colour images of ten kinds of things, 32 x 32 pixels."""

from __future__ import annotations

import json

import torch
from torch import Tensor

from ...types import Wrong
from .base import standardised
from .datasets import DataSet, read_png
from .fetch import how

DATA_FILES = DataSet("cifar10", how("cifar10"))
SIDE = 32


def data(n: int) -> tuple[Tensor, Tensor]:
    """The first n training images."""
    labels = json.loads(DATA_FILES.file("train_lables.json").read_text())
    x = _first(n)
    return standardised(x), torch.tensor(labels[: len(x)], dtype=torch.int64)


def val(n: int) -> tuple[Tensor, Tensor]:
    """The 10,000 test images."""
    labels = json.loads(DATA_FILES.file("test_lables.json").read_text())
    return standardised(_images("test_batch"), like=_first(n)), torch.tensor(labels, dtype=torch.int64)


def _first(n: int) -> Tensor:
    files, left = [], n
    while left > 0 and len(files) < 5:
        files.append(_images(f"data_batch_{len(files) + 1}")[:left])
        left -= len(files[-1])
    return torch.cat(files)


def _images(name: str) -> Tensor:
    """The images of a file, (examples, 3, rows, columns): a row of it is one, its 1,024 pixels in reading order."""
    pixels = read_png(DATA_FILES.file(f"{name}.png"))
    if pixels.ndim != 3 or pixels.shape[1] != SIDE**2 or pixels.shape[2] < 3:
        raise Wrong(f"a batch of CIFAR-10 has 1,024 RGB pixels in a row; this has shape {pixels.shape}")
    return torch.from_numpy(pixels[:, :, :3]).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2).float().contiguous()
