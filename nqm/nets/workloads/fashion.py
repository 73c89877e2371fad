"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): 60,000 pictures of clothes, 28 x 28 pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import standardised
from .sources import Source, read_idx

SOURCE = Source(
    "fashion-mnist",
    "on Debian and Ubuntu `apt install dataset-fashion-mnist`, or put the four IDX files of "
    "https://github.com/zalandoresearch/fashion-mnist into a folder and name it in NQM_DATA",
    package="/usr/share/datasets/fashion-mnist",
    home="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    sha256=(
        ("train-images-idx3-ubyte.gz", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        ("train-labels-idx1-ubyte.gz", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    ),
)


def data(n: int) -> tuple[Tensor, Tensor]:
    x = read_idx(SOURCE.file("train-images-idx3-ubyte.gz"))[:n]
    y = read_idx(SOURCE.file("train-labels-idx1-ubyte.gz"))[:n]
    return standardised(torch.tensor(x, dtype=torch.float32)[:, None]), torch.tensor(y, dtype=torch.int64)
