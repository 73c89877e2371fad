"""The points of one run from its rows: restarts, disorder, doubled and missing values, each handled and said."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import Array, Wrong
from .log import MAX_LOG_STEPS
from .sheets import Sheet, counted, listed, were

MAX_SEGMENTS = 100  # Steps that go back more often than this are rows out of order, and not restarts.
MIN_SEGMENT = 3  # Steps that go back after fewer rows than this, on average, are rows out of order, too.
STEP_DIGITS = 1e-6  # Tokens or examples may miss a whole number of steps by this share of a step without a remark.


@dataclass(frozen=True)
class Order:
    """Rows in the order of their steps, one for each step, and what had to be done for it.

    ``first`` is the step of the first row, and ``restarts`` has the steps to which the log goes back. ``replaced``
    counts earlier rows that a restart replaces, ``doubled`` rows whose step has a later row, and ``misplaced`` rows
    that were moved.
    """

    rows: Array
    first: int = 0
    restarts: tuple[int, ...] = ()
    replaced: int = 0
    doubled: int = 0
    misplaced: int = 0

    @property
    def remarks(self) -> list[str]:
        said = []
        if self.restarts:
            times = f"{counted(len(self.restarts), 'time')}, to {listed(self.restarts)}"
            replaced = f"{counted(self.replaced, 'earlier point')} {were(self.replaced)} replaced by later ones"
            said.append(f"The steps go back {times}; {replaced}.")
            if self.first in self.restarts:
                remedy = "if a column tells them apart, name it: columns={'run': ...}"
                said.append(f"Steps that go back to the first one may be those of several runs in one file; {remedy}.")
        if self.doubled:
            omitted = f"{counted(self.doubled, 'doubled point')} {were(self.doubled)} omitted"
            said.append(f"{omitted}; the later of two values at a step is kept.")
        if self.misplaced:
            said.append(f"{counted(self.misplaced, 'row')} out of order {were(self.misplaced)} sorted by step.")
        return said


@dataclass(frozen=True)
class Points:
    """The points of a run: rows of the sheet in the order of their steps. The remarks count all other rows."""

    rows: Array
    step: Array
    loss: Array
    remarks: tuple[str, ...]


def ordered(step: Array) -> Order:
    """The rows in the order of their steps. Where steps go back, the later rows replace the earlier ones of their range.

    Rows that go back without meeting earlier rows in their range are out of order: they are moved, and replace nothing.
    """
    if np.all(np.diff(step) > 0):
        return Order(np.arange(step.size), int(step[0]))
    starts = np.append(0, np.flatnonzero(np.diff(step) < 0) + 1)
    back = starts.size - 1
    if back > MAX_SEGMENTS or (back > 1 and step.size < MIN_SEGMENT * starts.size):
        order = np.argsort(step, kind="stable")
        rows = order[_last_of_each(step[order])]
        moved = int(np.sum(step < np.maximum.accumulate(step)))
        return Order(rows, int(step[0]), doubled=step.size - rows.size, misplaced=moved)
    kept = np.empty(0, dtype=np.int64)
    restarts: list[int] = []
    replaced = doubled = misplaced = 0
    for start, stop in zip(starts, np.append(starts[1:], step.size), strict=True):
        segment = np.arange(start, stop)
        rows = segment[_last_of_each(step[segment])]
        doubled += segment.size - rows.size
        new, old = step[rows], step[kept]
        low, high = np.searchsorted(old, new[0]), np.searchsorted(old, new[-1], side="right")
        again = int(np.isin(old[low:high], new).sum())
        between = int(np.sum((new >= old[low]) & (new <= old[high - 1]))) if high > low else 0
        if high > low and (2 * again >= high - low or min(high - low, between) >= MIN_SEGMENT):
            restarts.append(int(new[0]))
            replaced += int(high - low)
            kept = np.concatenate([kept[:low], rows, kept[high:]])
            continue
        misplaced += int(np.sum(new < old[-1])) if old.size else 0
        doubled += again
        merged = np.concatenate([kept[~np.isin(old, new)], rows])
        kept = merged[np.argsort(step[merged], kind="stable")]
    return Order(kept, int(step[0]), tuple(restarts), replaced, doubled, misplaced)


def points_of(sheet: Sheet, step: Array, loss: Array, there: Array, column: str) -> Points:
    """The points of a run from the step of each row (NaN if it has none) and its loss (``there`` if it has one)."""
    remarks: list[str] = []

    def omit(rows: Array, what: str, where: str) -> None:
        if count := int(rows.sum()):
            remarks.append(f"{counted(count, 'row')} {what} {were(count)} omitted ({where}).")

    timeless = np.isnan(step)
    omit(timeless, "without a step", _places(sheet.unit, np.asarray(sheet.lines)[timeless]))
    empty = ~timeless & ~there
    omit(empty, f"without a value in the column {column!r}", _places("step", step[empty]))
    broken = ~timeless & there & ~np.isfinite(loss)
    omit(broken, "with a loss that is NaN or infinite", _places("step", step[broken]))
    rows = np.flatnonzero(~timeless & there & np.isfinite(loss))
    if not rows.size:
        raise Wrong(f"{sheet.file}: no row of {sheet.name!r:.60} has a step and a finite loss", argument="paths")
    order = ordered(step[rows])
    rows = rows[order.rows]
    return Points(rows, step[rows], loss[rows], (*remarks, *order.remarks))


def whole_steps(sheet: Sheet, time: Array, per_step: float, column: str, remarks: list[str]) -> Array:
    """The step of each row, NaN where it has none, from its time in steps, tokens or examples."""
    step = np.rint(time / per_step)
    known = ~np.isnan(time)
    with np.errstate(invalid="ignore"):  # Infinite times are refused below.
        off = np.abs(time / per_step - step)
    if per_step == 1:
        wrong = known & ~(off == 0)
        if wrong.any():
            i = int(np.argmax(wrong))
            sentence = f"{sheet.where(i)}: the step must be a whole number, got {time[i]:g} in the column {column!r}"
            raise Wrong(sentence, argument="paths")
    elif (most := float(np.max(off, where=np.isfinite(off), initial=0.0))) > STEP_DIGITS:
        remarks.append(f"Steps were rounded to whole numbers, by at most {most:.2g} of a step.")
    outside = known & ~((step >= 0) & (step <= MAX_LOG_STEPS))
    if outside.any():
        i = int(np.argmax(outside))
        remedy = "if the column counts tokens or examples, name it so in columns and give tokens_per_step or batch_size"
        sentence = f"{sheet.where(i)}: a step lies between 0 and {MAX_LOG_STEPS:,}, got {step[i]:g}; {remedy}"
        raise Wrong(sentence, argument="paths")
    return step


def _places(unit: str, places: Array) -> str:
    """Steps or lines in a sentence."""
    return f"{unit}{'s' * (places.size != 1)} {listed([int(place) for place in places])}"


def _last_of_each(step: Array) -> Array:
    """Of rows with rising steps, whether each is the last one at its step."""
    return np.append(step[1:] != step[:-1], True) if step.size else np.ones(0, dtype=bool)
