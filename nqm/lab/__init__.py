"""The lab tunes optimizers on real training at every batch size, and keeps every result. It does not import torch.

>>> from nqm.lab import Entry, Space, Study
>>> Study("small", "digits", 0.1, (8, 32), {"SGD": Entry("SGD", {"lr": Space(0.01, 10)})}).first_trials("SGD")
10
"""

from ..nets.training.trial import Result, Trial
from .executors import Crew
from .results import Point, Results
from .runner import LabError, Snapshot, run
from .space import Space
from .store import Store
from .study import Entry, Study

__all__ = [
    "Crew", "Entry", "LabError", "Point", "Result", "Results", "Snapshot", "Space", "Store", "Study", "Trial", "run",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
