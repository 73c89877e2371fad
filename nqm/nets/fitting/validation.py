"""Predictions against real training from the same checkpoint, over settings and seeds."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import Run, numbers
from ...optimizers import EMA, SGD, HeavyBall, Nesterov
from ...optimizers.base import Optimizer
from ...problems.base import report_steps
from ...sampling.replicas import check_whole
from ...types import Array, Progress, Wrong
from ..training.loop import check_setting, losses, mean_run, part_of
from ..trees import leaves
from .model import Fit
from .prediction import Horizon, Prediction, predict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..network import Network

CHECKED_STEPS = (10, 30, 100, 300, 1000)
CHECKED_BATCH_SIZES = (16, 64, 256, 1024, 4096)
CHECKED_RATES = (0.03, 0.1, 0.3)  # effective learning rate x largest curvature: a range of ten
QUIET_BATCH = 2048  # beyond this batch size noise is small and training costs most, so that fewer seeds do
BIN_RATIO = 3.0  # errors are pooled over bins of effective lr x steps whose ends have this ratio


@dataclass(frozen=True, eq=False)
class Row:
    """One setting: what was predicted, with the bend and by the plain quadratic, and what training did."""

    prediction: Prediction
    plain: Prediction
    trained: Run

    @property
    def error(self) -> Array:
        """Predicted over real loss, less one; NaN where nothing was predicted."""
        return self._error(self.prediction)

    @property
    def plain_error(self) -> Array:
        """The same of the plain quadratic."""
        return self._error(self.plain)

    def _error(self, prediction: Prediction) -> Array:
        if not prediction.run.outcome.ok:
            return np.full(len(self.trained.steps), np.nan)
        return prediction.loss / self.trained.loss - 1


@dataclass(frozen=True, eq=False, repr=False)
class Check(Tabular):
    """Predicted and real loss over settings, with the error of each; ``table`` and ``median_error`` sum it up."""

    fit: Fit
    rows: list[Row]

    def _brief(self) -> str:
        return f"{len(self.rows)} settings to step {self.steps[-1]:,}: median error {self.median_error[-1]:.2%}"

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
        return _over_settings(np.nanmedian, self.errors)

    def summary(self) -> list[dict[str, float]]:
        """A row for each step: median and largest absolute error over the settings, bent and by the plain quadratic."""
        plain = np.stack([row.plain_error for row in self.rows])
        columns = {
            "steps": self.steps, "median_error": self.median_error,
            "largest_error": _over_settings(np.nanmax, self.errors),
            "plain_median_error": _over_settings(np.nanmedian, plain),
            "plain_largest_error": _over_settings(np.nanmax, plain),
        }  # fmt: skip
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def horizon(self) -> Horizon:
        """How far, in effective lr x steps x largest curvature, the median error stays within 2% and within 5%."""
        predicted = [row for row in self.rows if row.prediction.run.outcome.ok]
        points = [p for row in predicted for p in zip(row.prediction.reach, np.abs(row.error), strict=True) if p[0] > 0]
        return Horizon(furthest(points, 0.02), furthest(points, 0.05), f"{len(self.rows)} checks of this fit")

    def checked(self) -> Fit:
        """The fit with the horizon that this check found, which later predictions carry."""
        return replace(self.fit, horizon=self.horizon())

    def table(self) -> list[dict[str, object]]:
        """One row for each setting and step."""
        top = float(self.fit.spectrum.h.max())
        return [
            {
                "optimizer": str(row.trained.optimizer), "batch_size": row.trained.batch_size,
                "seeds": row.trained.replicas, "steps": int(t),
                "reach": float(row.trained.optimizer.effective_lr * top * t), "trained": float(row.trained.loss[i]),
                "stderr": math.nan if row.trained.stderr is None else float(row.trained.stderr[i]),
                "predicted": float(row.trained.loss[i] * (1 + row.error[i])),
                "error": float(row.error[i]), "plain_error": float(row.plain_error[i]),
            }
            for row in self.rows
            for i, t in enumerate(row.trained.steps)
        ]  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        return {
            "steps": numbers(self.steps), "median_error": numbers(self.median_error), "summary": self.summary(),
            "horizon": self.horizon().to_dict(), "fit": self.fit.to_dict(), "table": self.table(),
        }  # fmt: skip

    def plot(self, path: str | None = None) -> Figure:
        """Predicted and real loss over steps, and the errors."""
        from .plots import plot_check

        return plot_check(self, path)


def settings(
    fit: Fit, rates: Sequence[float] = CHECKED_RATES, batch_sizes: Sequence[float] = CHECKED_BATCH_SIZES
) -> list[tuple[Optimizer, float]]:
    """Four optimizers at each of some effective rates over the largest curvature, with batch sizes in turn."""
    found: list[tuple[Optimizer, float]] = []
    top = float(fit.spectrum.h.max())
    for i, rate in enumerate(rates):
        lr = float(f"{rate / top:.3g}")
        slow = float(f"{0.1 * lr:.3g}")  # momentum 0.9 multiplies it by ten
        for j, optimizer in enumerate((SGD(lr), HeavyBall(slow, 0.9), Nesterov(slow, 0.9), EMA(SGD(lr), 0.98))):
            found.append((optimizer, batch_sizes[(2 * i + j) % len(batch_sizes)]))
    return found


def check(
    network: Network, fit: Fit, chosen: Sequence[tuple[Optimizer, float]] | None = None, *,
    steps: Sequence[int] = CHECKED_STEPS, seeds: int = 2, seed: int = 0, store: str | Path | None = None,
    progress: Progress | None = None,
) -> Check:  # fmt: skip
    """Branch real training from the fit's checkpoint over settings (optimizer, batch size), and predict each.

    ``settings(fit)`` if none are given. Ctrl-C keeps the settings that are done; with a ``store``, a file, every training
    is kept and not made again: see `Trainings`. Of the ``seeds`` of a setting, batches B above 2,048 get a share of 2,048 / B,
    one at least: their noise is small, and they cost most.
    """
    here = network.full_loss()
    if abs(here - fit.loss) > 1e-3 * abs(fit.loss):
        both = f"the network's loss is {here:.6g}, the fit's {fit.loss:.6g}"
        raise Wrong(f"{both}: they are not of the same checkpoint", argument="fit")
    pairs = list(settings(fit) if chosen is None else chosen)
    if not pairs:
        raise Wrong("check needs at least one setting (optimizer, batch size)", argument="chosen")
    trainings = Trainings(network, store)
    rows: list[Row] = []
    try:
        for i, (optimizer, batch_size) in enumerate(pairs):
            show = part_of(progress, i, len(pairs))
            bent, plain = (predict(fit, optimizer, batch_size, steps, bent=b) for b in (True, False))
            count = max(1, math.ceil(seeds * min(1.0, QUIET_BATCH / batch_size)))
            trained = trainings.run(optimizer, batch_size, steps, seeds=count, seed=seed, progress=show)
            rows.append(Row(bent, plain, trained))
    except KeyboardInterrupt:
        if not rows:
            raise
    return Check(fit, rows)


def _over_settings(function: Callable[..., Array], errors: Array) -> Array:
    """Of absolute errors over settings, the first axis, where there is any; NaN where nothing was predicted."""
    seen = np.isfinite(errors).any(0)
    found = np.full(errors.shape[1], np.nan)
    found[seen] = function(np.abs(errors[:, seen]), axis=0)
    return found


def furthest(points: list[tuple[float, float]], tol: float) -> float:
    """The end of the last bin of x, from the smallest on, whose median error is within ``tol``; 0 if the first is not."""
    x, error = np.array(points).T
    edge, found = x.min(), 0.0
    while edge <= x.max():
        inside = (x >= edge) & (x < BIN_RATIO * edge)
        if inside.any():
            if np.median(error[inside]) > tol:
                break
            found = float(x[inside].max())
        edge *= BIN_RATIO
    return found


class Trainings:
    """Trainings of a network, each with its own seed; with a path, a file of one JSON line for each.

    A line is found again by a text that says all the training depends on: weights and data by their digest, optimizer,
    batch size, reported steps and seed. An interrupt therefore loses one training at most, and a fit can be checked again
    against trainings that were made for another. Lines of other networks in the file are left alone.
    """

    def __init__(self, network: Network, path: str | Path | None = None) -> None:
        self.network, self.path = network, None if path is None else Path(path)
        digest = hashlib.sha256(network.theta.contiguous().numpy().tobytes())
        for tensor in leaves(network.data):
            digest.update(tensor.contiguous().numpy().tobytes())
        self.checkpoint = f"{network.name} {digest.hexdigest()[:16]}"
        self.kept: dict[str, list[float]] = {}
        if self.path is not None and self.path.exists():
            self.kept = dict(_line(text, self.path) for text in self.path.read_text().splitlines() if text.strip())

    def run(
        self, optimizer: Optimizer, batch_size: float, steps: Sequence[int], *, seeds: int, seed: int = 0,
        progress: Progress | None = None,
    ) -> Run:  # fmt: skip
        """The mean over seeds, as `train` gives it."""
        size, times, rows = check_setting(optimizer, batch_size), report_steps(steps, "log", 2), []
        check_whole("seeds", seeds, 1)
        for s in range(seeds):
            key = f"{self.checkpoint} {optimizer} B={size:g} {times.tolist()} {seed}.{s}"
            if key not in self.kept:
                show = part_of(progress, s, seeds)
                self._keep(key, losses(self.network, optimizer, size, times, (seed, s), progress=show).tolist())
            rows.append(np.array(self.kept[key], float))
        return mean_run(optimizer, size, times, rows)

    def _keep(self, key: str, found: list[float]) -> None:
        self.kept[key] = found
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"training": key, "loss": [x if np.isfinite(x) else None for x in found]}) + "\n")


def _line(text: str, path: Path) -> tuple[str, list[float]]:
    try:
        row = json.loads(text)
        return str(row["training"]), [np.inf if x is None else float(x) for x in row["loss"]]
    except (ValueError, TypeError, KeyError) as error:  # a line of another file
        raise Wrong(f"{str(path)!r} is not a file of trainings that nqm wrote: {error}", argument="store") from None
