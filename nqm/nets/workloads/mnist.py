"""MNIST (LeCun et al., 1998): 60,000 written digits, 28 x 28 pixels."""

from __future__ import annotations

from .datasets import DataSet
from .fetch import how
from .images import readers

DATA_FILES = DataSet("mnist", how("mnist"), shared=False)  # Fashion-MNIST has files of the same names
data, val = readers(DATA_FILES)
