"""A log checks itself, and knows the learning rate of each step."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from nqm.logs import Log
from nqm.logs.log import MAX_LOG_STEPS
from nqm.optimizers import AdamW
from nqm.types import Wrong


def test_rates_between_logged_steps_are_interpolated() -> None:
    log = Log([3, 5, 9], [3.0, 2.0, 1.0], [0.3, 0.3, 0.1])
    np.testing.assert_allclose(log.rates, [0.1, 0.2, 0.3, 0.3, 0.3, 0.25, 0.2, 0.15, 0.1], rtol=1e-15)
    assert not log.every_step
    assert "warm-up" in log.remarks[0]
    assert "step 3" in log.remarks[0]


@pytest.mark.parametrize("first", [0, 1])
def test_a_log_from_the_first_step_on_assumes_no_warm_up(first: int) -> None:
    log = Log([first, 3], [3.0, 2.0], [0.3, 0.1])
    assert log.remarks == ()
    assert log.rates[0] == pytest.approx(0.3 if first == 1 else 0.3 - 0.2 / 3, rel=1e-15)


def test_rates_of_every_step_are_used_as_they_are() -> None:
    lr = np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.0])
    log = Log([2, 4], [3.0, 2.0], lr)
    assert log.every_step
    assert log.rates.tolist() == lr[:4].tolist()  # the training may go on after the last logged step
    assert log.logged_rates.tolist() == [0.2, 0.2]
    assert log.remarks == ()


def test_one_rate_is_a_constant_one() -> None:
    log = Log([0, 10], [3.0, 2.0], 0.1)
    assert log.rates.tolist() == [0.1] * 10
    assert log.logged_rates.tolist() == [0.1, 0.1]
    assert log.to_dict()["lr"] == 0.1
    assert Log([0], [3.0], 0.1).rates.size == 0


def test_both_readings_of_rates_agree_if_every_step_is_logged() -> None:
    log = Log([1, 2, 3], [3.0, 2.0, 1.0], [0.3, 0.2, 0.1])
    assert log.rates.tolist() == [0.3, 0.2, 0.1]


def test_a_log_prints_as_one_line_and_as_rows() -> None:
    log = Log([0, 2, 4], [3.0, 2.0, 1.5], [0.1, 0.1, 0.05], [8, 8, 16], AdamW(), 0.1, "short", remarks=["Said."])
    assert repr(log) == "Log(short: 3 points from step 0 to 4, loss 3 -> 1.5, lr 0.1 -> 0.05, 1 remark)"
    assert log.table()[2] == {"step": 4, "loss": 1.5, "lr": 0.05, "batch_size": 16.0}
    assert list(log.to_pandas().columns) == ["step", "loss", "lr", "batch_size"]
    assert log.to_csv().splitlines()[0] == "step,loss,lr,batch_size"
    assert "Said." in log._repr_html_()
    again = Log(**json.loads(json.dumps(log.to_dict())))
    assert again.to_dict() == log.to_dict()
    assert repr(Log([7], [1.0], 0.1)) == "Log(1 point at step 7, loss 1 -> 1, lr 0.1 -> 0.1)"


def test_a_log_cannot_be_changed() -> None:
    log = Log([0, 2], [3.0, 2.0], [0.1, 0.1])
    with pytest.raises(ValueError, match="read-only"):
        log.loss[0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        log.name = "other"  # type: ignore[misc]


def test_a_log_does_not_change_the_arrays_it_is_made_of() -> None:
    loss = np.array([3.0, 2.0])
    Log([0, 2], loss, [0.1, 0.1])
    loss[0] = 1.0


def test_a_replaced_log_says_each_remark_once() -> None:
    log = Log([5, 7], [3.0, 2.0], [0.1, 0.1])
    assert dataclasses.replace(log, name="other").remarks == log.remarks


GOOD = {"step": [1, 2, 3], "loss": [3.0, 2.0, 1.0], "lr": [0.1, 0.1, 0.1]}


@pytest.mark.parametrize(
    ("argument", "value", "says"),
    [
        ("step", [1, 3, 2], "2 after 3"),
        ("step", [1, 2, 2], "2 after 2"),
        ("step", [1, 2.5, 3], "2.5"),
        ("step", [-1, 2, 3], "-1"),
        ("step", [1, 2, float("nan")], "nan"),
        ("step", [1, 2, 10**12], f"{MAX_LOG_STEPS:,}"),
        ("step", [], "none"),
        ("step", [[1, 2, 3]], "row"),
        ("loss", [3.0, float("nan"), 1.0], "step 2"),
        ("loss", [3.0, 2.0], "2 values for 3 steps"),
        ("loss", ["a", "b", "c"], "numbers"),
        ("lr", [0.1, -0.1, 0.1], "-0.1"),
        ("lr", [0.1, float("inf"), 0.1], "inf"),
        ("lr", [0.1, 0.1], "3 logged steps"),
        ("batch_size", 0, "positive"),
        ("batch_size", [1, 2], "2 values for 3 steps"),
        ("optimizer", 3, "name"),
        ("weight_decay", -1, "negative"),
        ("weight_decay", [0.1, 0.2], "number"),
        ("name", 3, "text"),
    ],
)
def test_a_wrong_log_is_refused(argument: str, value: object, says: str) -> None:
    with pytest.raises(Wrong, match=says) as error:
        Log(**{**GOOD, argument: value})  # type: ignore[arg-type]
    assert error.value.argument == argument
