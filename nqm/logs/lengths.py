"""How long training is worth its steps: the least loss for each length, and what another tenth of the steps would buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import numbers
from ..types import Array, Wrong
from .planning import best_schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes
    from .forecasting import Forecast

MORE = 1.1  # the longer run whose gain is reported, relative to each length
DEFAULT_LENGTHS = (0.5, 1.0, 2.0, 4.0)  # lengths that are compared if none are named, relative to the longest log


@dataclass(frozen=True, eq=False, repr=False)
class LossesByLength(Tabular):
    """The least expected loss after each number of steps, with its 90% interval, each with the best schedule of its length.

    ``gain`` is how much lower the loss of a run with a tenth more steps is, and ``sentences`` say how far from the logs each
    length is.
    """

    steps: Array
    loss: Array
    low: Array
    high: Array
    gain: Array
    sentences: tuple[str, ...]

    def _brief(self) -> str:
        first, last = (f"{self.loss[i]:.4f} after {self.steps[i]:,} steps" for i in (0, -1))
        return f"loss {first} to {last}, where 10% more steps buy {self.gain[-1]:.4f}"

    def _notes(self) -> tuple[str, ...]:
        return self.sentences[-1:]

    def table(self) -> list[dict[str, Any]]:
        """One row for each length."""
        from ..show.tables import rows_of

        columns = {"steps": self.steps, "loss": self.loss, "low": self.low, "high": self.high}
        return rows_of({**columns, "gain_of_10_percent": self.gain})

    def to_dict(self) -> dict[str, Any]:
        names = ("steps", "loss", "low", "high", "gain")
        return {name: numbers(getattr(self, name)) for name in names} | {"sentences": list(self.sentences)}

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
        """The least loss with its interval over the length of training, and the gain below; written to ``path`` if given."""
        from .plots import plot_lengths

        return plot_lengths(self, path, ax=ax)


def losses_by_length(
    forecast: Forecast, lengths: Sequence[int] | None = None, max_lr: float | None = None, min_lr: float = 0.0, *,
    extrapolate: bool = False,
) -> LossesByLength:  # fmt: skip
    """The least expected loss for each length of training, and what another 10% of it would buy.

    Parameters
    ----------
    lengths : steps of the runs; by default half, once, twice and four times those of the longest log.
    max_lr : largest rate; by default the largest of the logs.
    min_lr : smallest rate after the warm-up.
    extrapolate : answer beyond the reach of the logs (`nqm.logs.reach`), too.
    """
    chosen = [round(share * forecast.longest) for share in DEFAULT_LENGTHS] if lengths is None else list(lengths)
    if not chosen:
        raise Wrong("name at least one length", argument="lengths")
    plans = [best_schedule(forecast, steps, max_lr, min_lr, extrapolate=extrapolate) for steps in sorted(set(chosen))]
    longer = [
        best_schedule(forecast, max(round(MORE * plan.steps), plan.steps + 1), max_lr, min_lr, extrapolate=True)
        for plan in plans
    ]
    loss, low, high = (np.array([getattr(plan, name) for plan in plans]) for name in ("loss", "low", "high"))
    gain = loss - np.array([plan.loss for plan in longer])
    steps = np.array([plan.steps for plan in plans])
    return LossesByLength(steps, loss, low, high, gain, tuple(plan.outlook.sentence for plan in plans))
