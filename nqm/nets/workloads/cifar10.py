"""CIFAR-10 (Krizhevsky, 2009): 50,000 colour images of ten classes, 32 x 32 pixels, with ResNet8."""

from __future__ import annotations

import json

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...optimizers import SGD
from ...types import Wrong
from .base import Workload, standardised
from .datasets import DataSet, read_png
from .fetch import how

DATA_FILES = DataSet("cifar10", how("cifar10"))
SIDE = 32  # rows and columns of an image


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
    """The first n training images, from as few of the five files as have them."""
    files, left = [], n
    while left > 0 and len(files) < 5:
        files.append(_images(f"data_batch_{len(files) + 1}")[:left])
        left -= len(files[-1])
    return torch.cat(files)


def _images(name: str) -> Tensor:
    """The images of a file, (examples, 3, rows, columns). A row of the file is an image, its 1,024 pixels in reading order."""
    pixels = read_png(DATA_FILES.file(f"{name}.png"))
    if pixels.ndim != 3 or pixels.shape[1] != SIDE**2 or pixels.shape[2] < 3:
        raise Wrong(f"a file of CIFAR-10 has 1,024 RGB pixels in a row; {name}.png has shape {pixels.shape}")
    return torch.from_numpy(pixels[:, :, :3]).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2).float().contiguous()


class ResidualBlock(nn.Module):
    """``relu(shortcut(x) + conv(relu(conv(x))))``; where the shape changes, the shortcut is a 1 x 1 convolution."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1)
        self.second = nn.Conv2d(outside, outside, 3, padding=1)
        same = inside == outside and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.second(F.relu(self.first(x))))


def resnet8() -> nn.Module:
    """The ResNet8 of Zhang et al. (2019): three residual blocks without batch norm, 77,706 weights."""
    found = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()),
        *(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    # He initialisation: torch's own shrinks the signal in every layer unless there is batch norm.
    for module in found.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return found


CIFAR_RESNET8 = Workload(
    "cifar_resnet8", data, resnet8, examples=2_000, optimizer=SGD(0.02), batch_size=32, steps=400, chunk=512, val=val
)
