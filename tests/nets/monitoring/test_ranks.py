"""Two processes of data-parallel training see what one process sees."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monitoring.ranks import train, train_language_model

ROOT = Path(__file__).parents[3]


def two_processes(folder: Path, *more: str, **named: str) -> None:
    """Run the script of this test in two processes."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "nets")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **named}
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), str(folder)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), *more],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, error = process.communicate(timeout=240)
        assert process.returncode == 0, error.decode()


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    train(0, 1, tmp_path / "one.jsonl")
    two_processes(tmp_path)
    one, two = (lines(tmp_path / f"{name}.jsonl") for name in ("one", "two"))
    assert len(one) == len(two) == 10
    for here, there in zip(one, two, strict=True):
        assert here.keys() == there.keys()
        for name in ("batch_size", "noise", "signal", "metric_noise", "metric_signal"):
            if name in here:
                np.testing.assert_allclose(here[name], there[name], rtol=1e-3, atol=1e-6)
    weights = [torch.load(tmp_path / f"{name}.pt") for name in ("one", "two")]
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("counted", ["average", "each"])
def test_two_processes_of_hugging_face(counted: str, tmp_path: Path) -> None:
    """The Trainer gives each rank's loss as its share of all tokens, or of the rank's own; the row has the loss of the step."""
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    alone = train_language_model(1, tmp_path / "one.jsonl")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    two_processes(tmp_path, counted, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    logged = json.loads((tmp_path / "logged.json").read_text())
    one, two = lines(tmp_path / "one.jsonl"), lines(tmp_path / "two.jsonl")
    assert len(one) == len(two) == len(alone) == len(logged) == 4
    exact = 2e-4 if counted == "average" else 0.02  # otherwise ranks with fewer tokens have the same weight
    for here, there, own, logged_there in zip(one, two, alone, logged, strict=True):
        assert here["loss"] == pytest.approx(own, rel=1e-3)
        assert there["loss"] == pytest.approx(logged_there, rel=1e-3)
        assert there["loss"] == pytest.approx(here["loss"], rel=exact)
        assert there["batch_size"] == here["batch_size"] == 16
        if counted == "average":
            np.testing.assert_allclose(
                [there["noise"], there["signal"]], [here["noise"], here["signal"]], rtol=5e-3, atol=1e-5
            )
