"""CIFAR-10 with the ResNet8 of Zhang et al. (2019): three residual blocks, no batch norm, 77,706 weights."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ...optimizers import SGD
from .base import Workload
from .cifar10 import data, val


class ResidualBlock(nn.Module):
    """``relu(shortcut(x) + conv(relu(conv(x))))``; a shortcut that changes the shape is a convolution of one pixel."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1)
        self.second = nn.Conv2d(outside, outside, 3, padding=1)
        same = inside == outside and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.second(F.relu(self.first(x))))


def model() -> nn.Module:
    found = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()),
        *(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    for module in found.modules():  # He's start: without batch norm torch's own shrinks the signal in every layer
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return found


WORKLOAD = Workload(
    "cifar_resnet8", "ResNet8 without batch norm on 2,000 of CIFAR-10", data, model,
    examples=2_000, optimizer=SGD(0.02), batch_size=32, steps=400, target=1.7, chunk=512, val=val,
)  # fmt: skip
