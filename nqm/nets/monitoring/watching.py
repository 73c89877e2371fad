"""What the file of a monitor says: where the batch stands against the critical size, what doubling it saves, and a ramp.

Steps and examples follow the law of `choosing`, with the noise scale as critical batch size. There both are twice their minimum. The
noise scale of the optimizer's metric is used if it was
measured. This module does not need torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import number
from ...logs.files import read_sheet
from ...logs.sheets import Sheet
from ...show.numbers import brief, percent
from ...types import Array, Wrong
from ..estimates import Estimate
from .choosing import SMALLEST_SCALE, steps_ratio

if TYPE_CHECKING:
    from ..fitting.model import Fit

TREND_ROWS = 10  # measurements that a trend of the noise scale needs, at least
TREND_SPAN = 1.5  # and the factor between their first and last step, at least
TREND_REACH = 4.0  # a trend is extrapolated up to this multiple of the steps so far

WATCHED_SCALES = ("noise_scale", "metric_noise_scale")
"""The kinds of noise scale of which the second is preferred."""


@dataclass(frozen=True, eq=False, repr=False)
class Watched(Tabular):
    """A training as its monitor saw it: columns over the measured steps, and what follows from the last of them.

    ``scale`` is the kind of noise scale that is used: "noise_scale" or "metric_noise_scale".
    """

    columns: dict[str, Array]
    scale: str
    largest_curvature: float = math.nan
    skipped: int = 0

    @property
    def batch_size(self) -> float:
        """The batch size of the last measured step."""
        return float(self.columns["batch_size"][-1])

    @property
    def critical_batch_size(self) -> Estimate:
        """The last noise scale with its interval and the steps it was measured over; infinite where the signal is lost in the noise.

        The ends of the interval are NaN, and the steps are None, if the file does not have them.
        """
        value, low, high = (float(self.columns.get(name + end, [math.nan])[-1]) for name, end in self._ends())
        first = float(self.columns.get(self.scale + "_from", [math.nan])[-1])
        steps = None if math.isnan(first) else (int(first), int(self.columns["step"][-1]))
        return Estimate(math.inf if math.isnan(value) else value, low, high, steps=steps)

    def _ends(self) -> list[tuple[str, str]]:
        return [(self.scale, end) for end in ("", "_low", "_high")]

    def steps_at(self, batch_size: float) -> float:
        """Steps at this batch size, as a multiple of those at the present one."""
        return steps_ratio(self.critical_batch_size.value, batch_size, self.batch_size)

    def examples_at(self, batch_size: float) -> float:
        """Examples at this batch size, as a multiple of those at the present one."""
        return self.steps_at(batch_size) * batch_size / self.batch_size

    def ramp(self) -> list[dict[str, Any]]:
        """Batch sizes that follow the noise scale: the present one times powers of two, each from the step after which the noise
        scale stays above it.

        Measurements whose interval has no upper end do not count; there is no ramp if none is left. The last row may be
        extrapolated, from the slope of log noise scale over log step in the later half of the measurements.
        """
        step, scale, _, high = (self.columns[name] for name in ("step", *(name + end for name, end in self._ends())))
        fine = np.isfinite(scale) & (scale > 0) & np.isfinite(high)
        if not fine.any():
            return []
        step, scale = step[fine], scale[fine]
        lowest = np.minimum.accumulate(scale[::-1])[::-1]  # from each measurement on
        power = np.floor(np.log2(lowest / self.batch_size))
        first = np.flatnonzero(np.diff(power, prepend=-np.inf) > 0)
        size = np.maximum(1, np.round(self.batch_size * 2.0 ** power[first]))
        rows = [
            {"step": int(step[i]), "batch_size": int(B), "extrapolated": False}
            for i, B in zip(first, size, strict=True)
        ]
        later = _reaches(step, scale, 2 * float(self.batch_size * 2.0 ** power[-1]))
        if later is not None:
            rows.append({"step": later, "batch_size": 2 * rows[-1]["batch_size"], "extrapolated": True})
        return rows

    def sentences(self) -> list[str]:
        """What a reader should know, one thing a sentence."""
        B, found = self.batch_size, self.critical_batch_size
        metric = "" if self.scale == "noise_scale" else ", in the optimizer's metric"
        last = f"at step {int(self.columns['step'][-1]):,}"
        if math.isinf(found.value):
            low = f" It is at least {brief(found.low)}, with 95%." if found.low > 0 else ""
            said = [
                f"The critical batch size cannot be told from infinity {last}: the signal is lost in the noise.{low}"
            ]
        else:
            said = [f"The critical batch size is about {_spelled(found)}{metric}; the batch size {last} is {brief(B)}."]
        said.append(measured_over(found))
        steps, examples = self.steps_at(2 * B), self.examples_at(2 * B)
        said.append(
            f"Doubling the batch saves {percent(1 - steps)} of the steps and costs {percent(examples - 1)} more examples."
        )
        if B >= 2:
            fewer, more = 1 - self.examples_at(B / 2), self.steps_at(B / 2) - 1
            said.append(f"Halving it saves {percent(fewer)} of the examples and costs {percent(more)} more steps.")
        if self.skipped:
            said.append(f"{self.skipped:,} steps could not be measured.")
        return said

    def table(self) -> list[dict[str, Any]]:
        """One row for each measured step."""
        from ...show.tables import rows_of

        shown = ["step", "loss", "batch_size", *(name + end for name, end in self._ends()), self.scale + "_from"]
        return rows_of({name: self.columns[name] for name in shown if name in self.columns})

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, as ``--json`` prints them."""
        found = self.critical_batch_size
        B = self.batch_size
        return {
            "step": int(self.columns["step"][-1]), "batch_size": number(B), "scale": self.scale,
            "critical_batch_size": {name: number(value) for name, value in found.to_dict().items()}, "steps": found.steps,
            "largest_curvature": number(self.largest_curvature), "skipped": self.skipped,
            "doubled": {"steps": self.steps_at(2 * B), "examples": self.examples_at(2 * B)},
            "ramp": self.ramp(), "sentences": self.sentences(), "table": self.table(),
        }  # fmt: skip

    def _brief(self) -> str:
        return f"step {int(self.columns['step'][-1]):,}, batch size {self.batch_size:g}, critical {self.critical_batch_size}"

    def _notes(self) -> list[str]:
        return self.sentences()


def watch(file: str | Path) -> Watched:
    """Read the file that a `Monitor` writes; a last line that is still being written is omitted."""
    path = Path(file)
    if not path.is_file():
        raise Wrong(f"there is no file {str(path)!r}; Monitor(..., file=...) writes one", argument="file")
    text = path.read_bytes().strip()
    if not text:
        raise Wrong(f"{path} is empty: the monitor has not measured a step yet", argument="file")
    if text.startswith(b"{") and b"}" not in text:
        raise Wrong(f"{path} has no whole line yet: the monitor is writing its first one", argument="file")
    sheet = read_sheet(path)
    missing = [name for name in ("step", "batch_size", "noise_scale") if name not in sheet.columns]
    if missing:
        raise Wrong(f"{path} has no column {missing[0]!r}: it is not the file of a Monitor", argument="file")
    names = ("step", "loss", "batch_size", *(k + e for k in WATCHED_SCALES for e in ("", "_low", "_high", "_from")))
    columns = {name: sheet.numbers(name)[0] for name in names if name in sheet.columns}
    order = _last_run(columns["step"])
    columns = {name: column[order] for name, column in columns.items()}
    metric = int(WATCHED_SCALES[1] in columns and np.isfinite(columns[WATCHED_SCALES[1]][-1]))
    return Watched(
        columns, WATCHED_SCALES[metric], _latest(sheet, "largest_curvature"), int(_latest(sheet, "skipped", 0))
    )


def measured_over(found: Estimate) -> str:
    """Says over which steps of the training a noise scale was measured."""
    if found.steps is None:
        return (
            "The file does not say over which steps that was measured: an earlier version of nqm averaged all of them."
        )
    return "It was measured over the steps {:,} to {:,}, and its interval covers the drift in them.".format(
        *found.steps
    )


def known_scale(found: Watched | Fit) -> tuple[float, float | None, float | None, tuple[int, int] | None]:
    """The noise scale of a training or of a fit, the ends of its interval, and the steps it was measured over.

    It is None for an end that is not known, and for the steps of a fit.
    """
    watched = isinstance(found, Watched)
    scale = found.critical_batch_size if watched else found.noise_scale
    if not 0 < scale.value < math.inf:
        if not watched:
            raise Wrong("the fit has no noise, or no gradient left to compare the noise with, and so no noise scale")
        remedy = (
            f" For the batch size at that lower end give {brief(scale.low)} as noise scale." if scale.low > 0 else ""
        )
        raise Wrong(" ".join(found.sentences()[:2]) + remedy)
    if not math.isfinite(scale.low):  # A fit with one probe has no interval.
        return scale.value, None, None, scale.steps
    return scale.value, max(scale.low, SMALLEST_SCALE), number(scale.high), scale.steps


def _last_run(step: Array) -> Array:
    """The rows that count: where a training was resumed at an earlier step, the rows that it repeats are omitted."""
    earliest = np.minimum.accumulate(step[::-1])[::-1]  # from each row on
    return np.flatnonzero(step < np.append(earliest[1:], np.inf))


def _latest(sheet: Sheet, name: str, otherwise: float = math.nan) -> float:
    """The last number of a column."""
    if name not in sheet.columns:
        return otherwise
    values, there = sheet.numbers(name)
    return float(values[there][-1]) if there.any() else otherwise


def _reaches(step: Array, scale: Array, goal: float) -> int | None:
    """The step at which a rising noise scale reaches the goal by its trend, or None if there is no such trend."""
    late = step >= step[-1] / 2
    x, y = np.log(step[late]), np.log(scale[late])
    if len(x) < TREND_ROWS or step[-1] < TREND_SPAN * step[late][0]:
        return None
    slope, level = np.polyfit(x, y, 1)
    if not slope > 0:
        return None
    reached = (math.log(goal) - level) / slope
    inside = math.log(step[-1]) < reached < math.log(TREND_REACH * step[-1])
    return math.ceil(math.exp(reached)) if inside else None


def _spelled(found: Estimate) -> str:
    if math.isnan(found.low):
        return brief(found.value)
    high = "no upper end" if not math.isfinite(found.high) else brief(found.high)
    return f"{brief(found.value)} (90% interval {brief(found.low)} to {high})"
