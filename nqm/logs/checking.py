"""Leaving logs out: how well the others forecast each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..types import Wrong
from .log import Log
from .outlook import Outlook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes
    from .forecasting import Forecast


@dataclass(frozen=True, eq=False, repr=False)
class LeftOut(Tabular):
    """Each log beside its forecast from the other logs."""

    logs: tuple[Log, ...]
    outlooks: tuple[Outlook, ...]

    def _brief(self) -> str:
        rows = self.table()
        final = max(abs(row["final_error"]) for row in rows)
        return f"{len(rows)} logs, each forecast from the others: final loss within {final:.4f}"

    def table(self) -> list[dict[str, Any]]:
        """One row for each log: errors of its forecast in the loss, and how many of its points the 90% intervals hold."""
        rows = []
        for i, (log, outlook) in enumerate(zip(self.logs, self.outlooks, strict=True)):
            error = outlook.loss - log.loss
            held = (log.loss >= outlook.low) & (log.loss <= outlook.high)
            spread = float(((log.loss - log.loss.mean()) ** 2).sum())
            rows.append({
                "log": log.name or f"log {i + 1}", "steps": int(log.step[-1]), "final_loss": float(log.loss[-1]),
                "forecast": float(outlook.loss[-1]), "final_error": float(error[-1]),
                "mean_error": float(np.abs(error).mean()), "largest_relative_error": float(np.abs(error / log.loss).max()),
                "R2": 1 - float((error**2).sum()) / spread if spread > 0 else float("nan"), "held": float(held.mean()),
            })  # fmt: skip
        return rows

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.table(), "outlooks": [outlook.to_dict() for outlook in self.outlooks]}

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
        """Logs and their forecasts over steps, relative errors below; written to ``path`` if given."""
        from .plots import plot_left_out

        return plot_left_out(self, path, ax=ax)


def leave_out(forecast: Forecast) -> LeftOut:
    """Forecast each log from the others."""
    from .forecasting import forecast as fitted

    logs = forecast.logs
    if len(logs) < 2:
        raise Wrong("a check leaves one log out and fits the others: it needs at least two logs", argument="logs")
    outlooks = [fitted([other for other in logs if other is not log]).predict(log, extrapolate=True) for log in logs]
    return LeftOut(logs, tuple(outlooks))
