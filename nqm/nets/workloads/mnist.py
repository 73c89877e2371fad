"""MNIST (LeCun et al., 1998): 60,000 handwritten digits, 28 x 28 pixels, with the CNN of `fashion`."""

from __future__ import annotations

from ...optimizers import SGD
from .base import Workload, readers
from .datasets import DataSet
from .fashion import cnn
from .fetch import how

DATA_FILES = DataSet("mnist", how("mnist"), shared=False)  # Fashion-MNIST has files of the same names
data, val = readers(DATA_FILES)
MNIST_CNN = Workload("mnist_cnn", data, cnn, examples=10_000, optimizer=SGD(0.05), batch_size=64, steps=600, val=val)
