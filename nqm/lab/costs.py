"""What a study will take, before anything is trained: trials, steps, time and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..engine.run import number
from ..show.tables import Row
from . import work
from .plan import Cell, cells
from .source import versioned
from .store import Store
from .study import Study


@dataclass(frozen=True)
class Cost:
    """What the searches for an optimizer at a batch size will take; those of an interrupted study count what is left.

    ``trials`` is the number of trainings that are to be expected, ``most_steps`` the steps of all of them if none ended early,
    ``step_seconds`` the CPU time of one step, and ``memory`` the megabytes of a process that trains; NaN if the worker does
    not say.
    """

    label: str
    batch_size: int
    trials: int
    most_steps: int
    step_seconds: float
    memory: float

    @property
    def most_seconds(self) -> float:
        """CPU time of all trainings if none ended early."""
        return self.most_steps * self.step_seconds

    def row(self) -> Row:
        """The cost as a row of a table."""
        return {
            "optimizer": self.label, "batch_size": self.batch_size, "trials": self.trials, "most_steps": self.most_steps,
            "step_seconds": number(self.step_seconds), "most_seconds": number(self.most_seconds), "memory": number(self.memory),
        }  # fmt: skip


def costs(study: Study, folder: Path | None = None, store: Path | None = None) -> list[Cost]:
    """The cost of each optimizer at each batch size; a wrong study is refused as `run` would refuse it.

    A step of each is timed in this process, if the worker's module has a function ``cost(trial)`` that returns its CPU
    seconds and the megabytes of its process. A store that exists tells what has been trained already.
    """
    study = versioned(study, folder)
    found = _cells(study, store)
    alike: dict[tuple[str, int], list[Cell]] = {}
    for cell in found:
        alike.setdefault((cell.label, cell.batch_size), []).append(cell)
    firsts = [next(own[0].extremes()) for own in alike.values()]
    every = [trial.to_dict() for own in alike.values() for trial in own[0].extremes()]
    work.check_trials(study.worker, every, str(folder or ""))
    measured = work.step_costs(study.worker, firsts)
    return [_cost(own, *one) for own, one in zip(alike.values(), measured, strict=True)]


def _cells(study: Study, store: Path | None) -> list[Cell]:
    """The cells of the study, as far as a store brings them."""
    found = cells(study)
    if store is not None and store.exists():
        with Store.open(store) as opened:
            known, _ = opened.results(study.worker)
        for cell in found:
            cell.advance(known)
    return found


def _cost(repeats: Sequence[Cell], step_seconds: float, memory: float) -> Cost:
    """The cost of repeated searches. Once trials have arrived, none takes longer than their limits allow."""
    trials = [math.ceil(cell.ahead()) for cell in repeats]
    cell = repeats[0]
    steps = [count * one.most_ahead() for count, one in zip(trials, repeats, strict=True)]
    return Cost(cell.label, cell.batch_size, sum(trials), sum(steps), step_seconds, memory)
