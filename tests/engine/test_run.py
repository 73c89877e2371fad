"""Results: frozen, and plain JSON."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from nqm import SGD, HeavyBall, Outcome, Quadratic, Spectrum, steps_to_target
from nqm.engine.run import number, numbers

PROBLEM = Quadratic(Spectrum([1.0, 0.1]))


def test_a_run_is_json() -> None:
    run = PROBLEM.run(HeavyBall(0.1, 0.9), 4, 100)
    data = json.loads(json.dumps(run.to_dict(), allow_nan=False))
    assert data["optimizer"] == "HeavyBall(lr=0.1, momentum=0.9)"
    assert data["batch_size"] == 4
    assert data["outcome"] == "finished"
    assert data["loss"] == run.loss.tolist()
    assert data["steps"] == run.steps.tolist()
    assert np.shape(data["band_signal"]) == run.band_signal.shape
    assert data["stderr"] is None
    assert set(data) == {f.name for f in dataclasses.fields(run)}


def test_what_is_not_finite_is_null() -> None:
    run = PROBLEM.run(SGD(50.0), math.inf, 10**6)
    data = json.loads(json.dumps(run.to_dict(), allow_nan=False))
    assert data["floor"] is None
    assert data["batch_size"] is None
    assert data["loss"][-1] is None
    assert data["outcome"] == "diverged"


def test_results_are_frozen() -> None:
    run, hit = PROBLEM.run(SGD(0.1), 4, 10), steps_to_target(PROBLEM, SGD(0.1), 4, 0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.loss = np.zeros(1)  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        hit.steps = 0  # type: ignore[misc]


def test_a_hit_is_json() -> None:
    hit = steps_to_target(PROBLEM, SGD(0.1), 1000, 0.1)
    assert json.loads(json.dumps(hit.to_dict())) == {
        "steps": hit.steps,
        "outcome": "reached",
        "message": f"reached 0.1 at step {hit.steps}",
        "loss": hit.loss,
        "method": "exact",
    }
    lost = steps_to_target(PROBLEM, SGD(30.0), 1000, 0.1).to_dict()
    assert lost["steps"] is None
    assert lost["loss"] is None


def test_outcomes_know_whether_they_are_well() -> None:
    assert [o.name for o in Outcome if o.ok] == ["finished", "reached"]


def test_numbers() -> None:
    assert [number(v) for v in (None, math.nan, math.inf, 3.0, 0.5, 2.0**60, np.float64(7))] == [
        None, None, None, 3, 0.5, 2.0**60, 7,
    ]  # fmt: skip
    assert isinstance(number(np.float64(7)), int)
    assert numbers(np.array([[1.5, np.inf], [2.0, 3.0]])) == [[1.5, None], [2, 3]]
