"""Predictions of networks against their real trainings: ``python -m benchmarks.prediction FOLDER [NAME ...]``.

Writes docs/checks/prediction.csv with a row for each network, setting and step, and prints what docs/nets.md says about them.
FOLDER keeps fits and trainings (`prediction_cases`). The named networks are trained, where FOLDER does not have their trainings; the
others are predicted again and compared with the real losses in the file. All fits and trainings took about an hour of CPU; with them
it takes seconds.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.checks import runs_of
from benchmarks.prediction_cases import CASES, EDGE_RATES, fitted, made
from nqm.engine.run import Run
from nqm.nets.fitting.descent import Descent
from nqm.nets.fitting.edge import excess
from nqm.nets.fitting.model import Fit
from nqm.show.tables import to_csv

FILE = Path(__file__).parents[1] / "docs" / "checks" / "prediction.csv"
SHORT_DESCENT = 150  # full gradients of the descents past whose end predictions are measured

Row = dict[str, Any]


def cut(fit: Fit, steps: int) -> Fit:
    """The fit with a shorter descent."""
    found = fit.descent
    assert found is not None
    assert found.noise is not None
    kept = found.steps <= steps
    return replace(
        fit, descent=replace(found, **{k: getattr(found, k)[kept] for k in ("steps", "loss", "noise", "sharpness")})
    )


def kept(folder: Path, name: str) -> tuple[Fit, list[Run]]:
    """The fit of a network, and its trainings in the file."""
    with FILE.open() as file:
        mine = [row for row in csv.DictReader(file) if row["network"] == name and row["short"] == "0"]
    return fitted(folder, name)[1], list(runs_of(mine))


def rows_of(name: str, fit: Fit, runs: Sequence[Run]) -> Iterator[Row]:
    """A row for each setting and step, with the fit's descent and with a short one."""
    for length in (0, SHORT_DESCENT):
        given = cut(fit, length) if length else fit
        assert isinstance(given.descent, Descent)
        end = given.descent.reach * float(fit.spectrum.h.max())
        for run in runs:
            assert run.stderr is not None
            ahead = given.predict(run.optimizer, run.batch_size, run.steps.tolist())
            old = given.predict(run.optimizer, run.batch_size, run.steps.tolist(), bent=False)
            for i, t in enumerate(run.steps.tolist()):
                row = {
                    "network": name, "chosen_on": int(CASES[name].chosen_on), "descent": int(given.descent.steps[-1]),
                    "short": int(length > 0), "optimizer": str(run.optimizer), "batch_size": run.batch_size, "steps": t,
                    "excess": excess(fit.spectrum, run.optimizer, None), "past": float(ahead.reach[i] / end),
                    "trained": run.loss[i], "stderr": run.stderr[i], "predicted": ahead.loss[i], "low": ahead.low[i],
                    "high": ahead.high[i], "plain": old.loss[i] if old.run.outcome.ok else np.nan,
                }  # fmt: skip
                yield {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}


def told(title: str, rows: list[Row], part: Callable[[Row], bool]) -> None:
    """Print errors and coverage of some rows, by step."""
    for t in sorted({row["steps"] for row in rows}):
        some = [row for row in rows if part(row) and row["steps"] == t]
        if some:
            errors = np.array([abs(row["predicted"] / row["trained"] - 1) for row in some])
            held = np.mean([row["low"] <= row["trained"] <= row["high"] for row in some])
            shown = (
                f"median {np.median(errors):.2%}, worst {errors.max():.1%}, interval holds {held:.0%} of {len(some)}"
            )
            print(f"{title}, step {t}: {shown}")


def main(folder: Path, names: Sequence[str]) -> None:
    rows = [row for name in CASES for row in rows_of(name, *(made if name in names else kept)(folder, name))]
    FILE.write_text(to_csv(rows))
    edge = min(EDGE_RATES) / 2 * 0.99  # the lowest rate of the settings near the edge, over the largest stable one
    for name in CASES:
        mine = [row for row in rows if row["network"] == name and not row["short"]]
        told(name, mine, lambda row: row["excess"] < edge)
    usual = [row for row in rows if row["excess"] < edge]
    for chosen in (1, 0):
        told(
            "chosen on" if chosen else "checked",
            usual,
            lambda row, c=chosen: row["chosen_on"] == c and not row["short"],
        )
    told("past a short descent", usual, lambda row: bool(row["short"]) and row["past"] > 1)
    past = [row for row in rows if row["excess"] > 1 and not row["short"]]
    told("past the edge", past, lambda row: True)
    off = np.abs(np.log([row["predicted"] / row["trained"] for row in past]))
    print(
        f"past the edge: factor {np.exp(np.quantile(off, 0.5)):.2g} median, {np.exp(np.quantile(off, 0.9)):.2g} for 90%"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:] or list(CASES))
