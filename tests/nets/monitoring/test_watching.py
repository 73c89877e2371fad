"""What the file of a monitor says, on files whose noise scale is known."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.shell import call

from nqm.nets import watch
from nqm.nets.monitoring.watching import known_scale
from nqm.types import Wrong


def write(file: Path, scale: list[float | None], steps: list[int] | None = None, **more: object) -> Path:
    steps = steps or list(range(1, len(scale) + 1))
    rows = [
        {"step": t, "loss": 1.0, "lr": 0.1, "batch_size": 64, "noise_scale": b, "noise_scale_low": b and 0.8 * b,
         "noise_scale_high": b and 1.3 * b, "noise_scale_from": 1 + t // 2, **more}
        for t, b in zip(steps, scale, strict=True)
    ]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_where_the_batch_stands(tmp_path: Path) -> None:
    found = watch(write(tmp_path / "run.jsonl", [32.0, 64.0, 192.0]))
    assert found.critical_batch_size.value == 192
    assert found.steps_at(128) == pytest.approx((1 + 192 / 128) / (1 + 192 / 64))
    assert found.examples_at(128) == pytest.approx((1 + 128 / 192) / (1 + 64 / 192))
    assert found.sentences() == [
        "The critical batch size is about 192 (90% interval 154 to 250); the batch size at step 3 is 64.",
        "It was measured over the steps 2 to 3, and its interval covers the drift in them.",
        "Doubling the batch saves 38% of the steps and costs 25% more examples.",
        "Halving it saves 12% of the examples and costs 75% more steps.",
    ]


def test_the_metric_of_the_optimizer_comes_first(tmp_path: Path) -> None:
    more = {
        "metric_noise_scale": 500.0,
        "metric_noise_scale_low": 400.0,
        "metric_noise_scale_high": None,
        "metric_noise_scale_from": 1,
    }
    found = watch(write(tmp_path / "run.jsonl", [32.0], **more, largest_curvature=3.5, skipped=2))
    assert (found.scale, found.critical_batch_size.value, found.largest_curvature) == ("metric_noise_scale", 500, 3.5)
    assert "no upper end" in found.sentences()[0]
    assert "in the optimizer's metric" in found.sentences()[0]
    assert found.sentences()[-1] == "2 steps could not be measured."


def test_no_signal(tmp_path: Path) -> None:
    found = watch(write(tmp_path / "run.jsonl", [None, None]))
    assert math.isinf(found.critical_batch_size.value)
    assert found.steps_at(128) == 0.5
    assert found.ramp() == []
    assert "cannot be told from infinity" in found.sentences()[0]
    with pytest.raises(Wrong, match=r"cannot be told from infinity at step 2.*over the steps 2 to 2"):
        known_scale(found)
    found = watch(write(tmp_path / "run.jsonl", [None, None], noise_scale_low=40.0))
    with pytest.raises(Wrong, match=r"at least 40.*give 40 as noise scale"):
        known_scale(found)


def test_a_file_of_an_earlier_version_has_no_window(tmp_path: Path) -> None:
    found = watch(write(tmp_path / "run.jsonl", [32.0, 64.0], noise_scale_from=None))
    assert found.critical_batch_size.steps is None
    assert "does not say over which steps" in found.sentences()[1]
    assert found.to_dict()["steps"] is None


def test_a_batch_size_names_the_steps_of_its_noise_scale(tmp_path: Path) -> None:
    file = str(write(tmp_path / "run.jsonl", [32.0, 64.0, 192.0]))
    options = ("--devices", "1", "--per-device", "64", "--seconds", "1", "--training-steps", "1000")
    assert "that of the steps 2 to 3; it changes during a training" in " ".join(
        call("batch", file, *options).output.split()
    )
    assert any("steps 2 to 3" in one for one in json.loads(call("batch", file, *options, "--json").output)["rests_on"])


def test_ramp_follows_a_power_law(tmp_path: Path) -> None:
    """A noise scale of 2 step^(1/2) reaches 64 2^k at step (32 2^k)^2."""
    steps = np.unique(np.geomspace(1, 5000, 400).astype(int))
    found = watch(write(tmp_path / "run.jsonl", (2 * steps**0.5).tolist(), steps.tolist())).ramp()
    *past, last = found
    for row in past[1:]:
        exact = (row["batch_size"] / 2) ** 2
        assert exact <= row["step"] <= 1.05 * exact + 1
    assert last["extrapolated"]
    assert (last["batch_size"], last["step"]) == (256, pytest.approx(128**2, rel=0.01))
    falling = watch(write(tmp_path / "run.jsonl", (2000 / steps**0.5).tolist(), steps.tolist())).ramp()
    assert len(falling) == 1


def test_a_ramp_does_not_follow_what_does_not_last(tmp_path: Path) -> None:
    """Neither a maximum that passes, nor measurements without an upper end."""
    ramp = watch(write(tmp_path / "run.jsonl", [4000.0, 100.0, 70.0, 260.0, 300.0])).ramp()
    assert [(row["step"], row["batch_size"]) for row in ramp] == [(1, 64), (4, 256)]
    assert watch(write(tmp_path / "run.jsonl", [70.0, 260.0], noise_scale_high=None)).ramp() == []


def test_a_resumed_training_and_a_line_that_is_being_written(tmp_path: Path) -> None:
    file = write(tmp_path / "run.jsonl", [1.0, 2.0, 3.0, 20.0, 30.0], [1, 2, 3, 2, 3])
    file.write_text(file.read_text() + '{"step": 4, "lo')
    assert watch(file).columns["noise_scale"].tolist() == [1, 20, 30]


def test_wrong_files_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Wrong, match="there is no file"):
        watch(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(Wrong, match="has not measured a step yet"):
        watch(tmp_path / "empty.jsonl")
    (tmp_path / "begun.jsonl").write_text('{"step": 1, "loss": 0.7')
    with pytest.raises(Wrong, match="no whole line yet"):
        watch(tmp_path / "begun.jsonl")
    (tmp_path / "other.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 2}\n')
    with pytest.raises(Wrong, match="not the file of a Monitor"):
        watch(tmp_path / "other.jsonl")


def test_the_verb(tmp_path: Path) -> None:
    file = str(write(tmp_path / "run.jsonl", [32.0, 64.0, 192.0]))
    text = call("watch", file).output
    assert "Doubling the batch saves 38%" in text
    assert "Ramp that follows" in text
    data = json.loads(call("watch", file, "--once", "--json").output)
    assert data["critical_batch_size"] == {"value": 192, "low": pytest.approx(153.6), "high": pytest.approx(249.6)}
    assert [row["batch_size"] for row in data["ramp"]] == [32, 64, 128]
    assert call("watch", file, "--csv", "-").output.splitlines()[0].startswith("step,loss,batch_size,noise_scale")


def test_watching_does_not_load_torch(tmp_path: Path) -> None:
    import subprocess

    file = write(tmp_path / "run.jsonl", [32.0, 64.0])
    script = f"from nqm.nets import watch; watch({str(file)!r}); import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
