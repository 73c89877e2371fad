"""MNIST (LeCun et al., 1998): 60,000 written digits, 28 x 28 pixels; with the CNN of Fashion-MNIST."""

from __future__ import annotations

from ...optimizers import SGD
from .base import Workload, readers
from .datasets import DataSet
from .fashion import cnn
from .fetch import how

DATA_FILES = DataSet("mnist", how("mnist"), shared=False)  # Fashion-MNIST has files of the same names
data, val = readers(DATA_FILES)
MNIST_CNN = Workload(
    "mnist_cnn", "two strided convolutions and a linear layer on 10,000 of MNIST", data, cnn,
    examples=10_000, optimizer=SGD(0.05), batch_size=64, steps=600, target=0.1, val=val,
)  # fmt: skip
