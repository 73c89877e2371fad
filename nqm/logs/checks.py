"""What looks odd in a log and stays in it: spikes, gaps, smoothed losses, a beginning that is missing. Each is said."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..types import Array
from .log import Log
from .sheets import counted, were

WINDOW = 11  # Points over which a running median is taken.
SPIKE_WIDTHS = 8.0  # A spike lies this many standard deviations of the noise above the running median.
SPIKE_SHARE = 0.01  # A spike lies at least this share of the running median above it.
GAP_RATIO = 10.0  # A gap between two points is more than this many times as long as the distances before and after it.
MIN_SMOOTH_POINTS = 200  # Fewer points do not tell smoothed losses from raw ones.
RAW_CORRELATION = -0.2
"""Losses look smoothed if the correlation of neighbouring changes is above this number. Independent noise has -0.5.

Measured on 500 simulated losses of 200 points, 3 t^-0.3 with noise: raw losses had -0.53 to -0.26 (98% of them), and
none was called smoothed; 87% were if averaged with decay 0.6, and 98% with decay 0.9. None of the 159 published training
curves in tests/data/curves is called smoothed, but 37% of their validation curves would be: those are not judged.
"""


def oddities(log: Log, smoothed: bool, validation: bool) -> Iterator[str]:
    """A sentence for each thing that looks odd; ``smoothed`` and ``validation`` say what the name of the column says.

    Smoothed losses are kept, with a remark: a validation loss on fixed data may vary as smoothly, and some people have
    no other losses. The remark asks for the raw ones.
    """
    yield from _spikes(log)
    yield from _gaps(log)
    if smoothed:
        yield "The losses are smoothed, as their column says: read the raw losses if there are any."
    elif not validation and log.step.size >= MIN_SMOOTH_POINTS:
        correlation = neighbour_correlation(log.loss)
        if correlation > RAW_CORRELATION:
            look = (
                f"neighbouring changes have correlation {correlation:.2f}, and raw losses of single batches about -0.5"
            )
            remedy = (
                "if they were smoothed for the export, read the raw ones; losses on fixed validation data look alike"
            )
            yield f"The losses look smoothed ({look}): {remedy}."


def _spikes(log: Log) -> Iterator[str]:
    above = log.loss - running_median(log.loss)
    width = 1.4826 * float(np.median(np.abs(above)))
    high = above > np.maximum(SPIKE_WIDTHS * width, SPIKE_SHARE * np.abs(log.loss - above))
    high[: WINDOW // 2] = False  # A loss that falls steeply at its beginning lies above the median there.
    if log.loss.size >= 2 * WINDOW and high.any():
        top = int(np.argmax(np.where(high, above, -np.inf)))
        where = f"the highest is {log.loss[top]:.4g} at step {log.step[top]:,}"
        count = int(high.sum())
        yield f"{counted(count, 'spike')} of the loss {were(count)} kept ({where}); a robust fit gives spikes little weight."


def _gaps(log: Log) -> Iterator[str]:
    apart = np.diff(log.step).astype(float)
    if apart.size < 4:
        return
    beside = np.maximum(np.append(apart[1], apart[:-1]), np.append(apart[1:], apart[-2]))
    gaps = np.flatnonzero(apart > GAP_RATIO * beside)
    if gaps.size:
        i = int(gaps[np.argmax(apart[gaps])])
        yield f"The log has {counted(gaps.size, 'gap')}; the longest is from step {log.step[i]:,} to step {log.step[i + 1]:,}."


def neighbour_correlation(loss: Array) -> float:
    """The correlation of each change of the loss with the next, without their trend and with outliers clipped.

    Losses that do not change give -0.5, as raw losses do: nothing tells whether they were smoothed.
    """
    changes = np.diff(loss)
    changes = changes - running_median(changes)
    changes = np.clip(changes, *np.quantile(changes, [0.02, 0.98]))
    changes = changes - changes.mean()
    power = float(np.mean(changes**2))
    return float(np.mean(changes[1:] * changes[:-1])) / power if power > 0 else -0.5


def running_median(values: Array) -> Array:
    """The median of the points around each point; at the ends, of the points that there are, mirrored."""
    if values.size < WINDOW:
        return np.full(values.shape, np.median(values))
    padded = np.pad(values, WINDOW // 2, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1)
