"""What a computation returns: frozen results; a failure is a value with a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..types import Array
from .readable import Readable, Tabular

if TYPE_CHECKING:
    from ..optimizers.base import Optimizer
    from ..show.chart import OnAxes


RUN_COLUMNS = ("steps", "loss", "signal", "noise", "noise_scale", "curvature_noise_scale", "stderr")
"""The arrays of a `Run` that have one entry for each reported step."""


Method = Literal["exact", "mean field", "sampled"]
"""How a loss was found."""


class Outcome(Enum):
    """How a computation ended; the value is the sentence, in which the numbers are filled in."""

    finished = "ran to step {steps:,}"
    reached = "reached {target:g} at step {steps:,}"
    above_floor = (
        "never reaches {target:g}: the steady-state loss at batch size {batch_size:g} is {floor:.4g}; "
        "lower the learning rate, raise the batch size or average"
    )
    diverged = "diverges: the spectral radius is {radius:.6g} at curvature {h:.4g}; lower the learning rate{limit}"
    out_of_steps = "still at {loss:.4g} after {steps:,} steps, above {target:g}; allow more steps or raise the target"

    def __repr__(self) -> str:
        return f"Outcome.{self.name}"

    @property
    def ok(self) -> bool:
        """Whether the computation did what was asked."""
        return self in (Outcome.finished, Outcome.reached)


def reached_at(steps: int, target: float) -> str:
    """The sentence of `Outcome.reached`."""
    return Outcome.reached.value.format(target=target, steps=steps)


@dataclass(frozen=True, eq=False, repr=False)
class Run(Tabular):
    """Expected loss over steps: ``loss = signal + noise / batch_size``.

    ``floor`` is the steady-state loss (infinite if the run diverges). ``band_signal`` and ``band_noise`` are signal and noise
    by curvature, one row for each pair of neighbouring ``band_edges``. ``noise_scale`` is tr C / |g|^2 and
    ``curvature_noise_scale`` is tr HC / g'Hg at the reported weights, in expectation: the batch sizes at which gradient
    noise and signal are equally large.

    ``method`` says how the loss was found: "exact", by "mean field", or "sampled".

    In a sampled run all of these are None, and the floor is NaN. It has the standard error of its mean loss as ``stderr``,
    and ``quantiles`` of the losses of single replicas.
    """

    steps: Array
    loss: Array
    signal: Any
    noise: Any
    batch_size: float
    optimizer: Optimizer
    floor: float
    outcome: Outcome
    message: str
    band_edges: Any = None
    band_signal: Any = None
    band_noise: Any = None
    noise_scale: Any = None
    curvature_noise_scale: Any = None
    stderr: Array | None = None
    quantiles: Mapping[float, Array] | None = None
    replicas: int | None = None
    method: Method = "exact"

    def _brief(self) -> str:
        mean = (
            f"mean of {self.replicas:,} replicas, "
            if self.sampled
            else "mean field, "
            if self.method == "mean field"
            else ""
        )
        course = f"{self.steps[-1]:,} steps: {mean}loss {self.loss[0]:.4g} -> {self.loss[-1]:.4g}"
        return f"{self.optimizer}, batch_size={self.batch_size:,.10g}, {course}, {self.outcome.name}"

    def _notes(self) -> list[str]:
        return [self.message]

    @property
    def sampled(self) -> bool:
        """Whether the loss is a mean over replicas instead of exact."""
        return self.replicas is not None

    def table(self) -> list[dict[str, Any]]:
        """One row for each reported step, with the columns that the run has."""
        from ..show.tables import rows_of

        columns = {name: getattr(self, name) for name in RUN_COLUMNS}
        columns |= {f"quantile_{level:g}": band for level, band in (self.quantiles or {}).items()}
        return rows_of({name: column for name, column in columns.items() if column is not None})

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain numbers and lists, as ``--json`` prints them."""
        arrays = {name: getattr(self, name) for name in (*RUN_COLUMNS, "band_edges", "band_signal", "band_noise")}
        return {
            "optimizer": str(self.optimizer), "batch_size": number(self.batch_size), "floor": number(self.floor),
            "outcome": self.outcome.name, "message": self.message,
            **{name: None if array is None else numbers(array) for name, array in arrays.items()},
            "quantiles": {f"{level:g}": numbers(band) for level, band in (self.quantiles or {}).items()},
            "replicas": self.replicas, "method": self.method,
        }  # fmt: skip

    def plot(self, path: str | None = None, sampled: Run | None = None, *, ax: OnAxes | None = None) -> Any:
        """A figure of loss, signal and noise over steps, with a sampled run if given; also written to ``path`` if given."""
        from ..show.plots import plot_run

        return plot_run(self, path, sampled, ax=ax)


@dataclass(frozen=True, repr=False)
class Hit(Readable):
    """The answer of `steps_to_target`; ``steps`` is None unless the outcome is `Outcome.reached`."""

    steps: int | None
    outcome: Outcome
    message: str
    loss: float
    method: Method = "exact"

    def _brief(self) -> str:
        return self.message

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain numbers and text, as ``--json`` prints them."""
        found = {"steps": self.steps, "outcome": self.outcome.name, "message": self.message, "loss": number(self.loss)}
        return {**found, "method": self.method}


def number(value: Any) -> float | int | None:
    """The number as strict JSON has it; None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(value)


def numbers(values: Any) -> list[Any]:
    """The array as nested lists of JSON numbers."""
    array = np.asarray(values)
    return [numbers(row) for row in array] if array.ndim > 1 else [number(v) for v in array.tolist()]
