"""Logs that hold only their cooldown: they are joined to the run from which they branch, and refused where that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nqm.logs import Log, join, read_logs
from nqm.logs.branches import find_trunk, lacks_beginning
from nqm.types import Wrong


def trunk(rate: float = 0.1, level: float = 0.0, name: str = "trunk") -> Log:
    step = np.arange(0, 1001, 50)
    return Log(step, 2 + level + 3 / np.sqrt(1 + step), rate * np.minimum(step / 100, 1), 8, name=name)


def cooldown(rate: float = 0.1, first: int = 800, level: float = 0.0) -> Log:
    step = np.arange(first, 1001, 50)
    lr = rate * (1000 - step) / (1000 - first)
    return Log(step, 2 + level + 3 / np.sqrt(1 + step) - 0.001 * (step - first), lr, 8, name="cooldown")


def test_a_joined_log_is_the_trunk_and_then_the_branch() -> None:
    whole = join(cooldown(), trunk())
    assert whole.step.tolist() == list(range(0, 1001, 50))
    np.testing.assert_array_equal(whole.rates[:799], trunk().rates[:799])
    np.testing.assert_allclose(whole.rates[799:], np.linspace(0.1, 0, 201), atol=1e-16)
    assert (whole.name, whole.batch_size) == ("cooldown", 8)
    assert whole.remarks == ("Before step 800 the log has 16 points of 'trunk', from which it branches.",)


def test_a_trunk_may_end_a_little_before_the_branch() -> None:
    whole = join(cooldown(first=850), Log([0, 400, 800], [5.0, 3.0, 2.5], 0.1))
    assert whole.rates.size == 1000
    np.testing.assert_allclose(whole.rates[798:850], 0.1)


def test_what_cannot_be_joined_is_refused() -> None:
    for log, other, argument in (
        (cooldown(), cooldown(), "trunk"), (trunk(), cooldown(), "trunk"), (cooldown(), 3, "trunk"), (3, trunk(), "log"),
        (cooldown(), Log(range(0, 500, 50), range(10), 0.1), "trunk"),
    ):  # fmt: skip
        with pytest.raises(Wrong) as error:
            join(log, other)  # type: ignore[arg-type]
        assert error.value.argument == argument


def test_batch_sizes_are_joined() -> None:
    big = Log(cooldown().step, cooldown().loss, cooldown().lr, 16)
    assert join(big, trunk()).batch_size.tolist() == [8] * 16 + [16] * 5
    unknown = Log(cooldown().step, cooldown().loss, cooldown().lr)
    assert join(unknown, trunk()).batch_size is None
    assert "batch size" in join(unknown, trunk()).remarks[-1]


def test_a_trunk_is_found_by_its_rate_and_its_loss() -> None:
    others = [trunk(0.05, name="slow"), trunk(0.2, name="fast"), trunk(level=1.0, name="worse"), trunk(), cooldown()]
    found = find_trunk(cooldown(), others)
    assert found is not None
    assert found.name == "trunk"
    assert find_trunk(cooldown(), others[:3]) is None
    falling = Log(trunk().step, trunk().loss, 0.1 * np.linspace(1.2, 0.95, 21))
    assert find_trunk(cooldown(), [falling]) is None  # its rate is not constant


def test_a_log_that_begins_with_its_first_logged_step_has_its_beginning() -> None:
    assert lacks_beginning(cooldown())
    assert not lacks_beginning(trunk())
    assert not lacks_beginning(Log([500, 1000, 1500], [3.0, 2.0, 1.0], [0.1, 0.1, 0.1]))
    assert not lacks_beginning(Log([500], [3.0], [0.1]))


def test_a_log_whose_rates_are_known_from_the_first_step_needs_no_trunk(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", [cooldown()])
    (scheduled,) = read_logs(path, schedule="wsd(1000, 100, 200)", peak=0.1)
    assert not any("end of a training" in remark for remark in scheduled.remarks)
    late = "".join(f"cooldown,{step},,0.1\n" for step in range(0, 800, 50))
    path.write_text(path.read_text().replace("lr\n", "lr\n" + late))
    (logged,) = read_logs(path)
    assert logged.step[0] == 800
    np.testing.assert_allclose(logged.rates[:799], 0.1)
    assert not any("end of a training" in remark or "warm-up" in remark for remark in logged.remarks)


def write(path: Path, logs: list[Log]) -> Path:
    rows = [f"{log.name},{row['step']},{row['loss']},{row['lr']}\n" for log in logs for row in log.table()]
    path.write_text("run,step,loss,lr\n" + "".join(rows))
    return path


def test_logs_of_one_call_are_joined(tmp_path: Path) -> None:
    _, whole = read_logs(write(tmp_path / "log.csv", [trunk(), cooldown()]))
    assert whole.step[0] == 0
    assert any("16 points of 'trunk'" in remark for remark in whole.remarks)


def test_a_beginning_that_is_not_found_is_said(tmp_path: Path) -> None:
    (log,) = read_logs(write(tmp_path / "log.csv", [cooldown()]))
    assert log.step[0] == 800
    assert any("end of a training alone, from step 800 of 1,000" in remark for remark in log.remarks)
    assert any("warm-up" in remark for remark in log.remarks)
