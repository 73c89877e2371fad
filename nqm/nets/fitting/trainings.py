"""Trainings from one checkpoint, kept in a file: what was trained once is not trained again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...engine.run import Run
from ...optimizers.base import Optimizer
from ...problems.base import report_steps
from ...sampling.replicas import check_whole
from ...types import Progress, Wrong
from ..training.loop import batches_of, check_setting, losses, mean_run, part_of
from ..trees import leaves

if TYPE_CHECKING:
    from ..network import Network


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
                show = None if progress is None else part_of(progress, s, seeds)
                batches = batches_of(self.network, seed, s)
                found = losses(self.network, optimizer, size, times, batches=batches, progress=show)
                self._keep(key, found.tolist())
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
