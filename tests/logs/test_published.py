"""Published logs: every run is read, and every cooldown finds the run of its own peak rate."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from nqm.logs import Log, read_logs

CURVES = Path(__file__).parents[1] / "data" / "curves"


@pytest.mark.parametrize("size", ["25M", "100M"])
def test_multi_power_law(size: str) -> None:
    logs = {log.name: log for log in read_logs(CURVES / "multipowerlaw" / size)}
    assert len(logs) == 9
    for name, log in logs.items():
        with open(CURVES / "multipowerlaw" / size / f"{name}.csv") as file:
            rows = [[float(cell) for cell in row] for row in list(csv.reader(file))[1:]]
        np.testing.assert_array_equal(np.stack([log.step, log.lr, log.loss], axis=1), rows)
        assert log.rates.size == log.step[-1]
        assert log.rates[log.step[0] - 1] == log.lr[0] == 3e-4
        assert any("linear warm-up" in remark for remark in log.remarks)


@pytest.fixture(scope="module")
def described() -> dict[str, dict[str, str]]:
    with open(CURVES / "lr_scheduling" / "runs.csv") as file:
        return {row["run"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def validation() -> dict[str, Log]:
    logs = read_logs(CURVES / "lr_scheduling" / "curves.csv.gz", columns={"loss": "val/loss"}, batch_size=100)
    return {log.name: log for log in logs}


def test_every_cooldown_finds_the_run_of_its_own_peak_rate(
    described: dict[str, dict[str, str]], validation: dict[str, Log]
) -> None:
    assert validation.keys() == described.keys()
    branches = 0
    for name, log in validation.items():
        assert log.step[0] == 0
        for remark in log.remarks:
            if found := re.search(r"points of '(\d+)', from which it branches", remark):
                branches += 1
                assert described[found[1]]["lr"] == described[name]["lr"]
    assert branches == 78


@pytest.mark.parametrize(
    ("run", "kind"), [("46", "linear"), ("54", "sqrt"), ("127", "cosine"), ("84", "linear"), ("41", "sqrt")]
)
def test_rates_are_those_of_the_schedule(
    run: str, kind: str, described: dict[str, dict[str, str]], validation: dict[str, Log]
) -> None:
    """The authors' schedules, written a second time from their description of the run."""
    row = described[run]
    steps, warm_up, peak = int(row["iterations"]), int(row["warmup_steps"]), float(row["lr"])
    fraction = float(row["wsd_fract_decay"])
    t = np.arange(1, validation[run].step[-1] + 1)
    if kind == "cosine":
        u = (t - warm_up) / (steps - warm_up)
        factor = np.where(t < warm_up, t / warm_up, 0.1 + 0.9 * (1 + np.cos(np.pi * u)) / 2)
    else:
        u = np.maximum(t - (1 - fraction) * steps, 0) / (fraction * steps)
        factor = np.minimum(t / warm_up, 1 - (u if kind == "linear" else np.sqrt(u)))
    # Rates are logged every 50 to 600 steps. Interpolation cuts the corner at the end of the warm-up, which is not
    # compared. It is exact on straight lines, misses a cosine by its curvature, and a square root where it is steepest,
    # at the step of the branch: 1 - sqrt(50 / 10,000) = 0.93 and less steep after it.
    tolerance = {"linear": 1e-12, "cosine": 1e-4, "sqrt": 0.07}[kind]
    error = np.abs(validation[run].rates - peak * factor)[2 * warm_up :] / peak
    assert error.max() < tolerance
    assert np.median(error) < 1e-4
