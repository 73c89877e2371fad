"""The learning rates of a run as few blocks of constant rate: what the forecast's law is evaluated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import Array

RATE_SHARE = 0.02  # A block ends when the rate has moved by this share of the largest rate.
BLOCK_GROWTH = 30  # A block lasts at most this part of the steps before it.
SHORTEST = 8  # No block is cut shorter than this for its length alone.
DECAY_SHARE = 0.1  # A block ends before 2 lr weight_decay, summed over its steps, passes this.


@dataclass(frozen=True, eq=False)
class Course:
    """Blocks of steps, each with the mean of its learning rates, and the block after which each loss is read.

    ``blocks[i]`` is the last block before reading i; it is -1 for the loss before the first step. ``batch_size`` is the
    ratio of each block's batch size to the reference, 1 where it does not vary. ``peak`` is the largest rate of the run.
    """

    steps: Array  # the steps at which the loss is read
    lengths: Array
    lr: Array
    batch_size: Array
    blocks: Array
    peak: float

    @classmethod
    def of(cls, rates: Array, steps: Array, weight_decay: float = 0.0, batch_size: Array | float = 1.0) -> Course:
        """The course of a run with one rate for each of its steps, read at some of them.

        ``batch_size`` is a number, or one for each step, relative to the reference.
        """
        steps = np.asarray(steps, dtype=np.int64)
        last = max(int(steps[-1]), 1)
        rates = np.asarray(rates, dtype=float)[:last]
        ends = cuts(rates, steps, weight_decay)
        sizes = np.broadcast_to(np.asarray(batch_size, dtype=float), (last,))
        if np.ndim(batch_size):
            ends = np.union1d(ends, np.flatnonzero(np.diff(sizes)) + 1)
        lengths = np.diff(ends, prepend=0).astype(float)
        total = np.append(0.0, np.cumsum(rates))
        lr = np.diff(total[np.append(0, ends)]) / lengths
        blocks = np.searchsorted(ends, steps, side="right") - 1
        return cls(steps, lengths, lr, sizes[ends - 1], blocks, float(rates.max()))


def cuts(rates: Array, steps: Array, weight_decay: float) -> Array:
    """The steps after which blocks end: every reading, and wherever the rate or the weight norm has moved."""
    last = len(rates)
    moved = np.append(0.0, np.cumsum(np.abs(np.diff(rates)))) / max(rates.max(), 1e-300)
    shrunk = 2 * weight_decay * np.cumsum(rates)
    ends = {last, *steps[steps > 0].tolist()}
    for measure, share in ((moved, RATE_SHARE), (shrunk, DECAY_SHARE)):
        ends.update((np.flatnonzero(np.diff(np.floor(measure / share))) + 1).tolist())
    t = 0
    while t < last:
        t = min(last, t + max(SHORTEST, t // BLOCK_GROWTH))
        ends.add(t)
    return np.array(sorted(ends))
