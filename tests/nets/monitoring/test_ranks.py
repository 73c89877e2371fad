"""Two processes of data-parallel training see what one process sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from monitoring.ranks import train

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    train(0, 1, tmp_path / "one.jsonl")
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "nets")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    script = str(Path(__file__).with_name("ranks.py"))
    processes = [
        subprocess.Popen([sys.executable, script, str(tmp_path), str(rank)], env=environment, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for process in processes:
        _, error = process.communicate(timeout=240)
        assert process.returncode == 0, error.decode()
    one, two = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()] for name in ("one", "two")
    )
    assert len(one) == len(two) == 10
    for here, there in zip(one, two, strict=True):
        assert here.keys() == there.keys()
        for name in ("batch_size", "noise", "signal", "metric_noise", "metric_signal"):
            if name in here:
                np.testing.assert_allclose(here[name], there[name], rtol=1e-3, atol=1e-6)
    weights = [torch.load(tmp_path / f"{name}.pt") for name in ("one", "two")]
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=1e-4, atol=1e-5)
