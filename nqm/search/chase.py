"""What a search for the first hit of a target is asked, and what it has seen so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer
from ..problems.base import Problem
from ..types import Array

Until = Literal["first", "settled"]


@dataclass(frozen=True)
class HitSettings:
    """The numbers that steer a search for a first hit."""

    leaf_level: int = 6  # A block of 2^leaf_level steps or fewer is walked step by step instead of being bounded.
    most_walked: int = (
        10**6
    )  # So many steps are walked in all: undamped swings can stay undecided for as long as one likes.
    most_phases: int = 4096  # A cycle of so many steps or fewer is searched phase by phase; a longer one is walked.
    most_coupled: int = 10**7  # So many steps are walked at most on a problem whose modes are coupled.
    most_called: int = 10**6  # A schedule that is a function of the step is evaluated at so many steps at most.
    horizon_ratio: float = 1.02  # Where each horizon is a run of its own, horizons are tried on a grid of this ratio.
    longest_horizon: int = 10**5  # If such a run is also walked step by step, longer horizons are not tried.


HIT_SETTINGS = HitSettings()


@dataclass(frozen=True, eq=False)
class Chase:
    """One question: when does the expected loss of this run come to the target, within ``limit`` steps?"""

    problem: Problem
    optimizer: Optimizer
    batch_size: float
    target: float
    schedule: Schedule | None
    limit: int
    until: Until

    def loss(self, t: int) -> float:
        """The loss after t steps, infinite where it is not finite."""
        loss = self.problem.loss(self.optimizer, t, self.batch_size, self.schedule)
        return loss if math.isfinite(loss) else math.inf

    @property
    def floor(self) -> float:
        """The steady-state loss."""
        return self.problem.floor(self.optimizer, self.batch_size, self.schedule)


class Watch:
    """What the losses seen so far decide about a chase."""

    def __init__(self, chase: Chase, limit: int) -> None:
        self.target, self.first, self.limit = chase.target, chase.until == "first", limit
        self.over = False  # whether no later step can be an answer
        self.last_above = 0 if chase.problem.spectrum.initial_loss > chase.target else -1

    def see(self, losses: Array, time: int, stride: int = 1) -> int | None:
        """Take in the losses at ``time``, ``time + stride``, ...; the first hit among them, if the first is asked for."""
        above = ~(losses <= self.target)
        if self.first and not above.all():
            return time + stride * int(np.argmin(above))
        if above.any():
            self.above_until(time + stride * int(np.flatnonzero(above)[-1]))
        if not np.isfinite(losses[-1]):
            self.stop(time + stride * (len(losses) - 1))
        return None

    def above_until(self, time: int) -> None:
        self.last_above = max(self.last_above, time)

    def stop(self, time: int) -> None:
        """Give up at a time."""
        self.over, self.limit = True, min(self.limit, time)

    def answer(self) -> int | None:
        """The step after the last one above the target, once all times are seen and if that is what is asked for."""
        return None if self.first or self.over or self.last_above >= self.limit else self.last_above + 1
