"""Compare predictions with real training from the same checkpoint, over settings and seeds."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import Run, numbers
from ...optimizers import EMA, SGD, HeavyBall, Nesterov
from ...optimizers.base import Optimizer, Written, assign
from ...problems.base import report_steps
from ...types import Array, Progress, Wrong, part_of
from ..natural import as_trained
from ..network import Network
from ..streaming import Stream
from ..training.loop import losses, mean_run
from ..trees import leaves
from .model import Fit
from .plots import plot_check
from .prediction import Horizon, Prediction, furthest, predict
from .stepwise import family_in_metric
from .verifying import check_same

CHECKED_STEPS = (10, 30, 100, 300, 1000)
CHECKED_BATCH_SIZES = (16, 64, 256, 1024, 4096)
CHECKED_RATES = (0.03, 0.1, 0.3)  # effective learning rates, as multiples of 1 / largest curvature
QUIET_BATCH = 2048  # larger batches get fewer seeds: their noise is small, and they cost most


@dataclass(frozen=True, eq=False)
class Row:
    """One setting: the corrected prediction, the real training, and the errors of this and of the plain prediction."""

    prediction: Prediction
    trained: Run
    error: Array
    plain_error: Array

    def reach(self, top: float) -> Array:
        """Effective lr x steps x largest curvature, which is ``top``, at each step."""
        if self.prediction.run.outcome.ok:
            return self.prediction.reach
        return float(self.trained.optimizer.effective_lr) * top * self.trained.steps

    @property
    def interval(self) -> Array:
        """The ends of the 90% interval, (end, step); NaN if nothing was predicted."""
        ahead = self.prediction
        return np.stack([ahead.low, ahead.high]) if ahead.run.outcome.ok else np.full((2, len(self.error)), np.nan)

    @property
    def inside(self) -> Array:
        """Whether the real loss is inside the interval, at each step."""
        low, high = self.interval
        return (low <= self.trained.loss) & (self.trained.loss <= high)


def relative_error(prediction: Prediction, trained: Run) -> Array:
    """Predicted / real loss - 1; NaN if nothing was predicted."""
    return prediction.loss / trained.loss - 1 if prediction.run.outcome.ok else np.full(len(trained.steps), np.nan)


@dataclass(frozen=True, eq=False, repr=False)
class Check(Tabular):
    """Predicted and real losses over settings; ``table``, ``summary`` and ``median_error`` have the errors."""

    fit: Fit
    rows: list[Row]

    def _brief(self) -> str:
        return f"{len(self.rows)} settings to step {self.steps[-1]:,}: median error {self.median_error[-1]:.2%}"

    plot = plot_check

    @property
    def steps(self) -> Array:
        """The steps at which losses are compared."""
        return self.rows[0].trained.steps

    @property
    def errors(self) -> Array:
        """Relative errors, (settings, steps)."""
        return np.stack([row.error for row in self.rows])

    @property
    def median_error(self) -> Array:
        """Median of the absolute relative error over the settings that were predicted, at each step."""
        return _over_settings(np.nanmedian, self.errors)

    @property
    def coverage(self) -> Array:
        """Share of the settings whose real loss is inside the 90% interval, at each step; one that is not predicted is outside."""
        rows = self.rows
        return np.mean(
            [row.inside if row.prediction.run.outcome.ok else np.zeros(len(row.error)) for row in rows], axis=0
        )

    def summary(self) -> list[dict[str, float]]:
        """A row for each step: median and largest absolute error over the settings, corrected and plain, and the coverage."""
        plain = np.stack([row.plain_error for row in self.rows])
        columns = {
            "steps": self.steps, "median_error": self.median_error,
            "largest_error": _over_settings(np.nanmax, self.errors), "covered": self.coverage,
            "plain_median_error": _over_settings(np.nanmedian, plain),
            "plain_largest_error": _over_settings(np.nanmax, plain),
        }  # fmt: skip
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def horizon(self) -> Horizon:
        """The effective lr x steps x largest curvature up to which the median error stays within 2% and within 5%."""
        predicted = [row for row in self.rows if row.prediction.run.outcome.ok]
        points = [p for row in predicted for p in zip(row.prediction.reach, np.abs(row.error), strict=True) if p[0] > 0]
        return Horizon(furthest(points, 0.02), furthest(points, 0.05), f"{len(self.rows)} checks of this fit")

    def checked(self) -> Fit:
        """The fit with the horizon that this check found, which its predictions then report."""
        return replace(self.fit, horizon=self.horizon())

    def table(self) -> list[dict[str, object]]:
        """One row for each setting and step."""
        top = float(self.fit.spectrum.h.max())
        return [
            {
                "optimizer": str(row.trained.optimizer), "batch_size": row.trained.batch_size,
                "seeds": row.trained.replicas, "steps": int(t),
                "reach": float(row.reach(top)[i]), "trained": float(row.trained.loss[i]),
                "stderr": math.nan if row.trained.stderr is None else float(row.trained.stderr[i]),
                "predicted": float(row.trained.loss[i] * (1 + row.error[i])),
                "low": float(row.interval[0, i]), "high": float(row.interval[1, i]),
                "error": float(row.error[i]), "plain_error": float(row.plain_error[i]),
            }
            for row in self.rows
            for i, t in enumerate(row.trained.steps)
        ]  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as ``--json`` prints them."""
        return {
            "steps": numbers(self.steps), "median_error": numbers(self.median_error), "summary": self.summary(),
            "horizon": self.horizon().to_dict(), "fit": self.fit.to_dict(), "table": self.table(),
        }  # fmt: skip


def settings(
    fit: Fit, rates: Sequence[float] = CHECKED_RATES, batch_sizes: Sequence[float] = CHECKED_BATCH_SIZES
) -> list[tuple[Optimizer, float]]:
    """Four optimizers at each effective learning rate, in multiples of 1 / largest curvature, with batch sizes in turn.

    A fit in the metric of an optimizer has that optimizer alone.
    """
    found: list[tuple[Optimizer, float]] = []
    top = float(fit.spectrum.h.max())
    if (own := family_in_metric(fit)) is not None:
        chosen = [assign(own, ("lr",), float(f"{rate / top:.3g}")) for rate in rates]
        return [(one, batch_sizes[i % len(batch_sizes)]) for i, one in enumerate(chosen)]
    for i, rate in enumerate(rates):
        lr = float(f"{rate / top:.3g}")
        slow = float(f"{0.1 * lr:.3g}")  # momentum 0.9 makes the effective rate ten times larger
        for j, optimizer in enumerate((SGD(lr), HeavyBall(slow, 0.9), Nesterov(slow, 0.9), EMA(SGD(lr), 0.98))):
            found.append((optimizer, batch_sizes[(2 * i + j) % len(batch_sizes)]))
    return found


def check(
    network: Network, fit: Fit, chosen: Sequence[tuple[Written, float]] | None = None, *,
    steps: Sequence[int] = CHECKED_STEPS, seeds: int = 2, seed: int = 0, store: str | Path | None = None,
    progress: Progress | None = None,
) -> Check:  # fmt: skip
    """Train from the fit's checkpoint with every setting (optimizer, batch size), and predict each.

    The settings are ``settings(fit)`` if omitted. Ctrl-C keeps the settings that are done. With a ``store``, a file, no
    training is made twice: see `Trainings`. A batch size B above 2,048 gets a share 2,048 / B of the ``seeds``, at least
    one, because its noise is small and it costs most.
    """
    check_same(network, fit)
    if fit.metric is not None and fit.metric.step:
        made = f"this fit continues {fit.metric.optimizer} after {fit.metric.step:,} steps, and a check trains a fresh optimizer"
        raise Wrong(f"{made}; nqm advise --verify --state FILE trains from the state", argument="fit")
    pairs = settings(fit) if chosen is None else [(as_trained(optimizer), size) for optimizer, size in chosen]
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
            rows.append(Row(bent, trained, relative_error(bent, trained), relative_error(plain, trained)))
            if (trained.replicas or 0) < count:  # Ctrl-C ended the training of this setting early
                break
    except KeyboardInterrupt:
        if not rows:
            raise
    return Check(fit, rows)


def _over_settings(function: Callable[..., Array], errors: Array) -> Array:
    """Apply the function to absolute errors over settings, the first axis; NaN at steps for which nothing was predicted."""
    seen = np.isfinite(errors).any(0)
    found = np.full(errors.shape[1], np.nan)
    found[seen] = function(np.abs(errors[:, seen]), axis=0)
    return found


class Trainings:
    """Trainings of a network, which are kept in a file if a path is given, one JSON line for each.

    The key of a line names everything on which the training depends: a digest of weights and data, the optimizer, the batch
    size, the reported steps and the seed. An interrupt therefore loses at most one training, and another fit can be checked
    against the same trainings. The file may hold lines of other networks.
    """

    def __init__(self, network: Network, path: str | Path | None = None) -> None:
        self.network, self.path = network, None if path is None else Path(path)
        digest = hashlib.sha256(network.theta.contiguous().cpu().numpy().tobytes())
        held = not isinstance(network.data, Stream)
        for data in [network.data] if held else (batch for batch, _ in network.batches()):
            for tensor in leaves(data):
                digest.update(tensor.contiguous().cpu().numpy().tobytes())
        self.checkpoint = f"{network.name} {digest.hexdigest()[:16]}"
        self.kept = {} if self.path is None else kept_in(self.path)

    def run(
        self, optimizer: Optimizer, batch_size: float, steps: Sequence[int], *, seeds: int, seed: int = 0,
        progress: Progress | None = None,
    ) -> Run:  # fmt: skip
        """The mean over seeds, as `train` returns it."""
        times = report_steps(steps, "log", 2)

        def one(s: int, size: float, show: Progress | None) -> Array:
            key = f"{self.checkpoint} {optimizer} B={size:g} {times.tolist()} {seed}.{s}"
            if key not in self.kept:
                found = losses(self.network, optimizer, size, times, (seed, s), progress=show).tolist()
                self.kept[key] = found
                if self.path is not None:
                    line = {"training": key, "loss": [x if np.isfinite(x) else None for x in found]}
                    with self.path.open("a") as file:
                        file.write(json.dumps(line) + "\n")
            return np.array(self.kept[key], float)

        return mean_run(optimizer, batch_size, times, seeds, one, progress)


def kept_in(path: Path) -> dict[str, list[float]]:
    """The losses of each training in a file, by key; empty if there is no such file. Another program's file is refused."""
    if not path.exists():
        return {}
    try:
        rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]
        return {str(row["training"]): [np.inf if x is None else float(x) for x in row["loss"]] for row in rows}
    except (ValueError, TypeError, KeyError):
        sentence = f"{str(path)!r} is not a file of trainings that nqm wrote; name another file"
        raise Wrong(sentence, argument="store") from None
