"""Predict again what ``nqm check`` has trained: ``python -m benchmarks.checks FOLDER [digits fashion_mlp ...]``.

A change of the model moves predictions and not trainings. For each file docs/checks/NAME.csv that ``nqm check --csv`` wrote, the fit
FOLDER/NAME.npz predicts the settings of the file, and the columns of the prediction are replaced; the real losses stay.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from nqm.engine.run import Outcome, Run
from nqm.nets import Fit
from nqm.nets.fitting.validation import Check, Row, relative_error
from nqm.show.tables import to_csv
from nqm.text.objects import parse_optimizer

CHECKS = Path(__file__).parents[1] / "docs" / "checks"


def runs_of(rows: Iterable[Mapping[str, str]]) -> Iterator[Run]:
    """The trainings in the rows of a file, one for each setting."""
    for (text, size), group in groupby(rows, key=lambda row: (row["optimizer"], row["batch_size"])):
        own = list(group)
        steps, loss, stderr = (np.array([row[name] for row in own], float) for name in ("steps", "trained", "stderr"))
        yield Run(
            steps=steps.astype(int), loss=loss, signal=None, noise=None, batch_size=float(size), floor=math.nan,
            optimizer=parse_optimizer(text), outcome=Outcome.finished, message="", stderr=stderr,
            replicas=int(own[0].get("seeds", 0)),
        )  # fmt: skip


def rows_of(fit: Fit, name: str) -> Iterator[Row]:
    """The settings in a file, with its real losses and the predictions of the fit."""
    with (CHECKS / f"{name}.csv").open() as file:
        runs = list(runs_of(csv.DictReader(file)))
    for run in runs:
        bent, plain = (
            fit.predict(run.optimizer, run.batch_size, run.steps.tolist(), bent=bent) for bent in (True, False)
        )
        yield Row(bent, run, relative_error(bent, run), relative_error(plain, run))


def main(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        fit = Fit.load(folder / f"{name}.npz")
        found = Check(fit, list(rows_of(fit, name)))
        (CHECKS / f"{name}.csv").write_text(to_csv(found.table()))
        held = np.mean([row.inside for row in found.rows])
        errors = ", ".join(f"{error:.2%} at {t}" for t, error in zip(found.steps, found.median_error, strict=True))
        print(f"{name}: median error {errors}; worst {np.abs(found.errors).max():.1%}; interval holds {held:.0%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
