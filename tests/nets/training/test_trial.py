"""Trials and results: one key for what decides an outcome, and nothing lost in JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from nqm.lab import Result, Trial

TRIAL = Trial(
    "digits",
    {"examples": 500},
    "HeavyBall",
    {"lr": 0.1, "momentum": 0.9},
    (0.99, 0.9),
    32,
    "train_loss",
    0.1,
    1000,
    0.02,
    3,
)
RESULT = Result(
    "ab",
    "stopped",
    {"raw": 7, "ema(0.9)": None},
    {"raw": [2.0, math.inf], "ema(0.9)": [1.0, math.nan]},
    [1, 7],
    0.5,
    "so",
    "plain",
)

OTHER: dict[str, Any] = {
    "workload": "mine:network", "options": {"examples": 501}, "optimizer": "Nesterov", "settings": {"lr": 0.2},
    "averages": (0.9,), "batch_size": 33, "metric": "val_loss", "target": 0.2, "max_steps": 999, "growth": 0.03, "seed": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_key_knows_everything_that_decides(name: str) -> None:
    assert replace(TRIAL, **{name: OTHER[name]}).key != TRIAL.key


def test_key_knows_no_more() -> None:
    assert replace(TRIAL, limit=10).key == TRIAL.key
    assert replace(TRIAL, settings={"momentum": 0.9, "lr": 0.1}, averages=[0.9, 0.99]).key == TRIAL.key  # type: ignore[arg-type]
    assert replace(TRIAL, target=1).key == replace(TRIAL, target=1.0).key
    assert replace(TRIAL, settings={"period": 10}).key == replace(TRIAL, settings={"period": 10.0}).key
    assert replace(TRIAL, settings={"nesterov": True}).key != replace(TRIAL, settings={"nesterov": 1}).key


def test_survives_json() -> None:
    limited = replace(TRIAL, limit=10)
    assert Trial.from_json(limited.to_json()) == limited
    back = Result.from_json(RESULT.to_json())
    assert (back.steps, back.times, back.outcome, back.how) == (RESULT.steps, RESULT.times, "stopped", "plain")
    assert back.curves["raw"][0] == 2.0
    assert math.isnan(back.curves["raw"][1])
    assert "NaN" not in RESULT.to_json()


def test_a_field_of_a_later_version_is_left_out() -> None:
    data = json.loads(RESULT.to_json()) | {"watts": 3}
    assert Result.from_dict(data).steps == RESULT.steps


@pytest.mark.parametrize(
    "change", [{"batch_size": 0}, {"max_steps": 0}, {"growth": -1}, {"limit": 0}, {"limit": 1001}], ids=str
)
def test_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(TRIAL, **change)
    with pytest.raises(ValueError, match="outcome"):
        replace(RESULT, outcome="won")
    with pytest.raises(ValueError, match="raw"):
        replace(RESULT, times=[1])
