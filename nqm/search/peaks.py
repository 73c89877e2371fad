"""The largest loss of each piece of a schedule, over all of its steps.

Short pieces are walked. In a long one, blocks of steps are passed whose losses are bounded by what is known already, with the
bounds of `march`: those of odd and of even steps apart, because a mode near the edge of stability changes its sign at every step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..engine.kernels import scan
from ..engine.moments import MomentMap, Powers
from ..engine.schedule import Schedule
from ..engine.trajectory import Trajectory
from ..optimizers.base import Optimizer
from ..problems.base import Problem
from ..types import Array
from .limits import allowed
from .march import Leg

WALKED_PIECE = 1024  # Pieces and blocks of at most this many steps are walked.
CLOSE = 1e-4  # A block is passed if no loss in it is above the largest known one by more than this part.


class Peaks(NamedTuple):
    """The loss at the start, and for each piece its first step, the loss at its end, its largest loss, and the step that has it.

    No loss of a piece is above ``largest`` by more than `CLOSE` of it.
    """

    initial: float
    starts: Array
    ends: Array
    largest: Array
    steps: Array

    @property
    def over(self) -> Array:
        """The largest loss of each piece over the bound on it."""
        return self.largest / allowed(self.initial, self.ends)

    @property
    def rise(self) -> float:
        """The largest loss of all, over that at the start, and at least 1."""
        return max(1.0, float(self.largest.max()) / self.initial)


def peaks(problem: Problem, optimizer: Optimizer, batch_size: float, schedule: Schedule, lengths: Array) -> Peaks:
    """The largest loss of each piece of a schedule, on nodes that are good to 1e-9."""
    where = problem.nodes.fine
    path = Trajectory(optimizer, where.modes.h, schedule)
    walk = _Walk(path, where.masses[0], where.masses[1] / batch_size)
    starts = np.append(0, np.cumsum(lengths)[:-1])
    with np.errstate(all="ignore"):
        initial = walk.loss(path.start(), 0)
        found = [walk.piece(int(t), int(t + n)) for t, n in zip(starts, lengths, strict=True)]
    ends, largest, steps = (np.array(column) for column in zip(*found, strict=True))
    return Peaks(initial, starts, ends, largest, steps)


class _Walk:
    """A run that is followed piece by piece; ``state`` is the state at the beginning of the next one."""

    def __init__(self, path: Trajectory, ws: Array, wn: Array) -> None:
        self.path, self.ws, self.wn, self.state = path, ws, wn, path.start()

    def loss(self, state: MomentMap, t: int) -> float:
        signal, noise = self.path.read(state, t)
        loss = float(signal @ self.ws + noise @ self.wn)
        return loss if np.isfinite(loss) else np.inf

    def piece(self, t: int, to: int) -> tuple[float, float, int]:
        """The loss at the end of the piece from t to ``to``, its largest loss, and the step that has it."""
        powers, first = self.path.powers(t), min(to, t + WALKED_PIECE)
        after = powers.move(self.state, to - t)
        end = self.loss(after, to)
        best = max((end, to), self._walked(self.state.A, self.state.Q, self.ws, t, first - t))
        if first < to:
            best = self._blocks(powers, powers.move(self.state, first - t), first, to, best)
        self.state = after
        return end, *best

    def _walked(self, X: Array, N: Array, weights: Array, t: int, count: int) -> tuple[float, int]:
        """The largest loss of the ``count`` steps after t, and its step."""
        G, b, batch = self.path.system(t)
        still = np.ones(count)
        rows = (G, 0 * G, b, 0 * b, still, still / batch, X.copy(), N.copy(), self.path.row(t + 1))
        losses = np.nan_to_num(np.sum(scan(*rows, np.atleast_2d(weights), self.wn), axis=0), nan=np.inf)
        step = int(np.argmax(losses))
        return float(losses[step]), t + step + 1

    def _blocks(self, powers: Powers, state: MomentMap, t: int, to: int, best: tuple[float, int]) -> tuple[float, int]:
        """The largest loss and its step, of those known and of the steps from t to ``to``."""
        twice, next_one, level = Powers(powers[1]), powers.move(state, 1), 0
        ways = [Leg(self.path, at, t + i, self.ws, self.wn, twice, 2) for i, at in enumerate((state, next_one))]
        walked = WALKED_PIECE.bit_length() - 2  # level of the blocks that are walked, in double steps
        while to - t >= WALKED_PIECE:
            level = min(level + 1, ((to - t) // 2).bit_length() - 1)
            while level > walked:
                after = [way.after(level) for way in ways]
                if max(way.most(level, end) for way, end in zip(ways, after, strict=True)) <= (1 + CLOSE) * best[0]:
                    break
                level -= 1
            else:
                level = walked
                best = max(best, self._walked(ways[0].state.A, ways[0].state.Q, ways[0].weights, t, WALKED_PIECE))
                after = [way.after(level) for way in ways]
            for way, end in zip(ways, after, strict=True):
                way.state = end
            t += 2 * 2**level
        if t < to:
            best = max(best, self._walked(ways[0].state.A, ways[0].state.Q, ways[0].weights, t, to - t))
        return best
