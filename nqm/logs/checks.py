"""What looks odd in a log and stays in it: spikes, gaps, smoothed losses, a beginning that is missing. Each is said."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..types import Array
from .log import Log
from .sheets import counted

WINDOW = 11  # Points over which a running median is taken.
SPIKE_WIDTHS = 8.0  # A spike lies this many standard deviations of the noise above the running median,
SPIKE_SHARE = 0.01  # and at least by this share of it.
GAP_RATIO = 10.0  # A gap is this many times as long as both distances beside it.


def oddities(log: Log, smoothed: bool, validation: bool) -> Iterator[str]:
    """A sentence for each thing that looks odd."""
    yield from _spikes(log)
    yield from _gaps(log)


def _spikes(log: Log) -> Iterator[str]:
    above = log.loss - running_median(log.loss)
    width = 1.4826 * float(np.median(np.abs(above)))
    high = above > np.maximum(SPIKE_WIDTHS * width, SPIKE_SHARE * np.abs(log.loss - above))
    high[: WINDOW // 2] = False  # A loss that falls steeply at its beginning lies above the median there.
    if log.loss.size >= 2 * WINDOW and high.any():
        top = int(np.argmax(np.where(high, above, -np.inf)))
        where = f"the highest is {log.loss[top]:.4g} at step {log.step[top]:,}"
        yield f"{counted(int(high.sum()), 'spike')} of the loss kept ({where}); a robust fit gives them little weight."


def _gaps(log: Log) -> Iterator[str]:
    apart = np.diff(log.step).astype(float)
    if apart.size < 4:
        return
    beside = np.maximum(np.append(apart[1], apart[:-1]), np.append(apart[1:], apart[-2]))
    gaps = np.flatnonzero(apart > GAP_RATIO * beside)
    if gaps.size:
        i = int(gaps[np.argmax(apart[gaps])])
        yield f"{counted(gaps.size, 'gap')}: the longest has no points between steps {log.step[i]:,} and {log.step[i + 1]:,}."


def running_median(values: Array) -> Array:
    """The median of the points around each point; at the ends, of the points that there are, mirrored."""
    if values.size < WINDOW:
        return np.full(values.shape, np.median(values))
    padded = np.pad(values, WINDOW // 2, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1)
