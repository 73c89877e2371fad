"""What keeps an optimal schedule a training: a bound on the loss on the way, or a largest learning rate instead.

By default the expected loss is at no step above `LOSS_BOUND` times the lowest loss at the end of an earlier piece; the start
counts as one. With ``max_rate`` no rate is above that number, and the loss is free. The paper's cap is ``2 / (h_1 + h_d)``, with the
largest and the smallest curvature as the preconditioner leaves them, ``h^(1 - p)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..engine.spectrum import Spectrum
from ..optimizers import EMA, SGD, Preconditioned
from ..optimizers.base import Optimizer, nested
from ..problems.base import is_number
from ..types import Array, Wrong

LOSS_BOUND = 1.05  # Largest loss of a step, over the lowest loss at the end of an earlier piece.
ALLOWED = 'a positive number, "paper" for the paper\'s cap, or inf for no limit'

MaxRate = float | Literal["paper"]
Cap = Literal["loss", "paper", "max_rate", "none"]


@dataclass(frozen=True)
class Limit:
    """The limit of a schedule: the bound on the loss if ``max_rate`` is None, or else a largest learning rate."""

    max_rate: MaxRate | None = None

    @classmethod
    def of(cls, max_rate: object, optimizer: Optimizer) -> Limit:
        """The limit that a user's argument states; a wrong argument is refused."""
        if max_rate is None:
            return cls()
        if max_rate == "paper":
            if not all(isinstance(each, SGD | EMA | Preconditioned) for each in nested(optimizer)):
                raise Wrong(
                    "max_rate='paper' is a cap on the rate of SGD, plain or preconditioned or with an average, and has no "
                    f"meaning for {optimizer}; give a number, or omit max_rate= to bound the loss",
                    "max_rate",
                )
            return cls("paper")
        if not is_number(max_rate) or not max_rate > 0:
            raise Wrong(f"max_rate must be {ALLOWED}, got {max_rate!r}", "max_rate")
        return cls(float(max_rate))

    @property
    def bounded(self) -> bool:
        """Whether the loss on the way is bounded."""
        return self.max_rate is None

    def cap(self, optimizer: Optimizer, spectrum: Spectrum) -> float:
        """The largest learning rate that is allowed to an optimizer on these curvatures."""
        if self.max_rate != "paper":
            return math.inf if self.max_rate is None else self.max_rate
        with np.errstate(divide="ignore"):
            seen = 2 / np.asarray(optimizer.edge(spectrum.h))  # The curvatures as the preconditioner leaves them.
        return float(2 / (seen.max() + seen.min()))


def allowed(start: float, ends: Array) -> Array:
    """The largest loss that is allowed in each piece, from the loss at the start and at the end of each piece."""
    return LOSS_BOUND * np.minimum.accumulate(np.append(start, ends[:-1]))


class LossBound:
    """The log of the loss at the end, with an augmented Lagrangian for the bound on all losses that are read.

    With g the log of a loss over its bound, each adds ``(max(0, m + stiffness g)^2 - m^2) / (2 stiffness)`` for its multiplier m,
    and ``max(0, m + stiffness g)`` is the multiplier of the next descent.
    """

    def __init__(self, start: float, held: Array, slack: float, stiffness: float) -> None:
        self.start, self.held, self.slack, self.stiffness = start, held, slack, stiffness

    def __call__(self, losses: Array) -> tuple[float, Array]:
        """The value, and its derivative by each loss (piece, link)."""
        pulls = self.multipliers(losses)
        logs = np.log(losses)
        earlier = np.append(math.log(self.start), logs[:-1, -1])
        lowest = np.minimum.accumulate(earlier)
        weights = pulls.copy()
        weights[-1, -1] += 1
        from_piece = np.maximum.accumulate(np.where(earlier == lowest, np.arange(len(earlier)), 0)) - 1
        inside = from_piece >= 0
        np.add.at(weights[:, -1], from_piece[inside], -pulls[inside].sum(axis=1))
        value = logs[-1, -1] + ((pulls**2 - self.held**2) / (2 * self.stiffness)).sum()
        return float(value), weights / losses

    def multipliers(self, losses: Array) -> Array:
        """The multipliers of the next descent, if this one ends at these losses."""
        return np.maximum(0.0, self.held + self.stiffness * self._over(losses))

    def charged(self, losses: Array) -> float:
        """The loss at the end, raised by what the multipliers charge for losses above the bound; never below the loss."""
        over = np.maximum(0.0, self._over(losses))
        with np.errstate(over="ignore"):
            return float(losses[-1, -1] * np.exp((over * (self.held + self.stiffness / 2 * over)).sum()))

    def _over(self, losses: Array) -> Array:
        """Log of each loss over its bound."""
        return np.log(losses / allowed(self.start, losses[:, -1])[:, None]) + self.slack


def free_end(losses: Array) -> tuple[float, Array]:
    """The log of the loss at the end, and its derivative by each loss, where the loss is not bounded on the way."""
    weights = np.zeros_like(losses)
    weights[-1, -1] = 1 / losses[-1, -1]
    return float(np.log(losses[-1, -1])), weights
