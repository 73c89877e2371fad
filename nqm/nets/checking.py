"""Predictions against real training from the same checkpoint, over settings and seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..moments import Array
from ..optimizers import EMA, SGD, HeavyBall, Nesterov
from ..optimizers.base import Optimizer
from ..run import Run, numbers
from .fitting import Fit
from .prediction import Horizon, Prediction, predict
from .training import train

if TYPE_CHECKING:
    from .network import Network

STEPS = (10, 30, 100, 300, 1000)
BATCH_SIZES = (16, 64, 256, 1024, 4096)
RATES = (0.03, 0.1, 0.3)  # effective learning rate x largest curvature
BINS = 3.0  # ratio of effective lr x steps over which errors are pooled
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Row:
    """One setting: what was predicted and what training did."""

    prediction: Prediction
    trained: Run

    @property
    def error(self) -> Array:
        """Predicted over real loss, less one; NaN where nothing was predicted."""
        if not self.prediction.run.outcome.ok:
            return np.full(len(self.trained.steps), np.nan)
        return self.prediction.loss / self.trained.loss - 1


@dataclass(frozen=True, eq=False)
class Check:
    """Predicted and real loss over settings, with the error of each; ``table`` and ``median_error`` sum it up."""

    fit: Fit
    rows: list[Row]

    @property
    def steps(self) -> Array:
        return self.rows[0].trained.steps

    @property
    def errors(self) -> Array:
        """Relative errors, (settings, steps)."""
        return np.stack([row.error for row in self.rows])

    @property
    def median_error(self) -> Array:
        """Median over the settings that were predicted of the absolute relative error, at each step."""
        return np.nanmedian(np.abs(self.errors), axis=0)

    def horizon(self) -> Horizon:
        """How far, in effective lr x steps x largest curvature, the median error stays within 2% and within 5%."""
        points = [
            (x, abs(e))
            for row in self.rows
            if row.prediction.run.outcome.ok
            for x, e in zip(row.prediction.reach, row.error, strict=True)
            if x > 0
        ]
        what = f"{len(self.rows)} checks of this fit"
        return Horizon(_furthest(points, 0.02), _furthest(points, 0.05), what)

    def checked(self) -> Fit:
        """The fit with the horizon that this check found, which later predictions carry."""
        return replace(self.fit, note={**self.fit.note, "horizon": self.horizon().to_dict()})

    def table(self) -> list[dict[str, Any]]:
        """One row for each setting and step."""
        return [
            {
                "optimizer": str(row.trained.optimizer), "batch_size": row.trained.batch_size, "steps": int(t),
                "predicted": float(row.prediction.loss[i]) if row.prediction.run.outcome.ok else None,
                "trained": float(row.trained.loss[i]), "stderr": float(_stderr(row)[i]), "error": float(row.error[i]),
            }
            for row in self.rows
            for i, t in enumerate(row.trained.steps)
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return {
            "steps": numbers(self.steps), "median_error": numbers(self.median_error),
            "horizon": self.horizon().to_dict(), "fit": self.fit.to_dict(), "table": self.table(),
        }  # fmt: skip

    def plot(self, path: str | None = None) -> Any:
        from .pictures import plot_check

        return plot_check(self, path)


def settings(fit: Fit) -> list[tuple[Optimizer, int]]:
    """Twelve settings: four optimizers at effective rates of 0.03, 0.1 and 0.3 over the largest curvature, batches in turn."""
    found: list[tuple[Optimizer, int]] = []
    top = float(fit.spectrum.h.max())
    for i, rate in enumerate(RATES):
        lr = float(f"{rate / top:.3g}")
        slow = float(f"{0.1 * lr:.3g}")  # momentum 0.9 multiplies it by ten
        for j, optimizer in enumerate((SGD(lr), HeavyBall(slow, 0.9), Nesterov(slow, 0.9), EMA(SGD(lr), 0.98))):
            found.append((optimizer, BATCH_SIZES[(2 * i + j) % len(BATCH_SIZES)]))
    return found


def check(
    network: Network,
    fit: Fit,
    chosen: Sequence[tuple[Optimizer, float]] | None = None,
    *,
    steps: Sequence[int] = STEPS,
    seeds: int = 2,
    seed: int = 0,
    progress: Progress | None = None,
) -> Check:
    """Branch real training from the fit's checkpoint over settings (optimizer, batch size), and predict each.

    ``settings(fit)`` if none are given. Ctrl-C keeps the settings that are done.
    """
    here = network.full_loss()
    if abs(here - fit.loss) > 1e-3 * abs(fit.loss):
        raise ValueError(
            f"the network's loss is {here:.6g}, the fit's {fit.loss:.6g}: they are not of the same checkpoint"
        )
    pairs = list(settings(fit) if chosen is None else chosen)
    if not pairs:
        raise ValueError("check needs at least one setting (optimizer, batch size)")
    rows: list[Row] = []
    try:
        for i, (optimizer, batch_size) in enumerate(pairs):
            show = None if progress is None else _part(progress, i, len(pairs))
            predicted = predict(fit, optimizer, batch_size, steps)
            trained = train(network, optimizer, batch_size, steps, seeds=seeds, seed=seed, progress=show)
            rows.append(Row(predicted, trained))
    except KeyboardInterrupt:
        if not rows:
            raise
    return Check(fit, rows)


def _part(progress: Progress, i: int, parts: int) -> Progress:
    return lambda done, total: progress(i * total + done, parts * total)


def _stderr(row: Row) -> Array:
    return row.trained.stderr if row.trained.stderr is not None else np.full(len(row.trained.steps), np.nan)


def _furthest(points: list[tuple[float, float]], tol: float) -> float:
    """The end of the last bin of x, from the smallest on, whose median error is within ``tol``; 0 if the first is not."""
    x, error = np.array(points).T
    edge, found = x.min(), 0.0
    while edge <= x.max():
        inside = (x >= edge) & (x < BINS * edge)
        if inside.any():
            if np.median(error[inside]) > tol:
                break
            found = float(x[inside].max())
        edge *= BINS
    return found
