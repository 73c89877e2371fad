"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): 60,000 images of clothes, 28 x 28 pixels, with an MLP and with a CNN."""

from __future__ import annotations

from torch import nn

from ...optimizers import SGD
from .base import Workload, readers
from .datasets import DataSet

DATA_FILES = DataSet(
    "fashion-mnist",
    "on Debian and Ubuntu `apt install dataset-fashion-mnist`, or put the four IDX files of "
    "https://github.com/zalandoresearch/fashion-mnist into a folder and name it in NQM_DATA",
    package="/usr/share/datasets/fashion-mnist",
    home="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    sha256={
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
)
data, val = readers(DATA_FILES)


def mlp() -> nn.Module:
    """An MLP with two hidden layers: 52,650 weights."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    """The simple CNN of Zhang et al. (2019), reduced to two strided convolutions: 9,098 weights."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(784, 10)),
    )


FASHION_MLP = Workload(
    "fashion_mlp", data, mlp, examples=10_000, optimizer=SGD(0.05), batch_size=64, steps=600, val=val
)
FASHION_CNN = Workload(
    "fashion_cnn", data, cnn, examples=10_000, optimizer=SGD(0.05), batch_size=64, steps=600, val=val
)
