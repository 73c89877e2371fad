"""A problem on which the mean field of one optimizer is followed: on which nodes, how finely, and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..engine.mean_field import FINE_DETAIL, QUICK_DETAIL, STEADY_DETAIL, Detail, MeanField, Start
from ..engine.run import Run
from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer
from ..types import Array
from .doubts import doubts

if TYPE_CHECKING:
    from .base import Problem

RESOLVED = 1e-3  # Blocks of time are halved until they are estimated to change a loss by less than this part.
FINEST = 1 / 128  # the shortest blocks that are tried, as a part of the time that has passed


@dataclass
class Followed:
    """The mean field of one optimizer on one problem at one batch size."""

    whole: Problem
    optimizer: Optimizer
    batch_size: float
    schedule: Schedule | None = None
    start: Start = "gaussian"
    problem: Problem = field(init=False)

    def __post_init__(self) -> None:
        self.whole.check_optimizer(self.optimizer)
        self.problem = self.whole.nodes.followed

    def field(self, detail: Detail = FINE_DETAIL, horizon: int | None = None) -> MeanField:
        """The motion, for a run of ``horizon`` steps if that matters."""
        held = self.optimizer.endless if horizon is None else self.optimizer.at_horizon(horizon)
        return self.problem.field(held, self.batch_size, self.schedule, start=self.start, detail=detail)

    def losses(self, times: Array, detail: Detail = FINE_DETAIL) -> Array:
        """The loss after each of the times."""
        return np.array(list(self._losses(times, detail)))

    def _losses(self, times: Array, detail: Detail) -> Iterator[float]:
        motion, state, now = self.field(detail), None, 0
        for t in map(int, times):
            with np.errstate(all="ignore"):
                if self.optimizer.depends_on_horizon:
                    motion, state, now = self.field(detail, t), None, 0
                state, now = motion.move(state or motion.start(), now, t), t
                yield float(motion.losses(state, t))

    def resolved(self, times: Array) -> tuple[Detail, float]:
        """A detail fine enough for these times, and its estimated relative error.

        The error of blocks is of second order: a loss changes by three times the error that is left when blocks are halved.
        """
        few = times[np.unique(np.linspace(0, len(times) - 1, 40).astype(int))]
        detail, coarse = FINE_DETAIL, self.losses(few, FINE_DETAIL.coarser())
        while True:
            fine = self.losses(few, detail)
            with np.errstate(all="ignore"):
                error = np.nanmax(np.abs(coarse / fine - 1), initial=0.0) / 3
            if not error > RESOLVED or detail.part <= FINEST:
                return detail, float(error)
            detail, coarse = detail.finer(), fine

    def floor(self) -> float:
        """The steady-state loss; 0 for an average over an ever longer time, NaN without noise, where steps never shrink."""
        if self.optimizer.averages or math.isinf(self.batch_size):
            return 0.0 if self.optimizer.averages else math.nan
        return float(self.field(STEADY_DETAIL).floor())

    def note(self, run: Run, error: float) -> str:
        """The end of the message of a run: that it is a mean field, how exactly it was followed, and where it may be wrong."""
        blocks = f"blocks of steps change it by {_percent(error)} at most" if error > 1e-4 else ""
        return self.says(blocks, steps=(int(run.steps[0]), int(run.steps[-1])))

    def says(self, *more: str, steps: tuple[int, int] | None = None) -> str:
        """The end of any message about this mean field, from a first to a last step if they are known."""
        told = self.doubts(*steps) if steps else []
        return "; ".join(["", "by mean field", *(m for m in more if m), *told])

    def doubts(self, first: int, last: int) -> list[str]:
        """Where the mean field may be wrong from a first to a last step, by how much it was where it was measured."""
        return doubts(self.problem, self.field(QUICK_DETAIL, last), first, last)


def _percent(part: float) -> str:
    return f"{100 * part:.2g}%" if math.isfinite(part) else "an unknown part"
