"""What a forecast says of one run: expected loss over steps with its interval, and how far from the logs it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import number, numbers
from ..types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes
    from .log import Log


@dataclass(frozen=True, eq=False, repr=False)
class Outlook(Tabular):
    """Expected loss of a run that was not made, with a 90% interval for the loss of one such run.

    ``signal`` and ``noise`` are the parts of the loss above the floor: what is still to be learnt, and what the learning rate
    adds. ``rates`` has the learning rate of each step. ``low`` and ``high`` are NaN where the run is beyond the reach of the logs,
    and ``beyond`` says in which ways it is.
    """

    steps: Array
    loss: Array
    low: Array
    high: Array
    signal: Array
    noise: Array
    rates: Array
    batch_size: float | None
    sentence: str  # how far from the logs this run is
    beyond: tuple[str, ...] = ()  # why there is no interval

    def _brief(self) -> str:
        interval = f"{self.low[-1]:.4f} to {self.high[-1]:.4f}" if np.isfinite(self.low[-1]) else "no interval"
        last = f"step {self.steps[-1]:,}, loss {self.loss[-1]:.4f} ({interval})"
        return f"{len(self.steps)} points to {last}"

    def _notes(self) -> tuple[str, ...]:
        return (self.sentence,)

    def table(self) -> list[dict[str, Any]]:
        """One row for each reported step."""
        from ..show.tables import rows_of

        at = self.rates[np.maximum(self.steps, 1) - 1]
        columns = {"step": self.steps, "lr": at, "loss": self.loss, "low": self.low, "high": self.high}
        return rows_of({**columns, "signal": self.signal, "noise": self.noise})

    def to_dict(self) -> dict[str, Any]:
        arrays = ("steps", "loss", "low", "high", "signal", "noise")
        found = {name: numbers(getattr(self, name)) for name in arrays}
        return {**found, "batch_size": number(self.batch_size), "sentence": self.sentence, "beyond": list(self.beyond)}

    def plot(self, path: str | None = None, log: Log | None = None, *, ax: OnAxes | None = None) -> Figure:
        """Loss with its interval over steps, and the learning rate below; written to ``path`` if given.

        The losses of a ``log`` of this run are drawn as points.
        """
        from .plots import plot_outlook

        return plot_outlook(self, path, log, ax=ax)
