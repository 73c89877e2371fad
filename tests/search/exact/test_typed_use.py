"""What a type checker says of a user's script: nothing of a right one, and the line of a mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nqm

SCRIPT = """
import numpy as np

from nqm import HeavyBall, LeastSquares, Problem, Quadratic, Spectrum, free, sweep, tune

spectrum = Spectrum.power_law(100)
problem: Problem = Quadratic(spectrum)
tuned = tune(problem, HeavyBall(), 64, target=0.01)
rate: float = tuned.optimizer.lr
memory = 1 / (1 - tuned.optimizer.momentum)
families = HeavyBall(momentum=free), HeavyBall(np.array([[0.1], [0.2]]), 0.9)
run = problem.run(tuned.optimizer, 64, steps=np.array([1, 10, 100]))
last = run.loss[-1] + run.noise[-1]
for each in (problem, LeastSquares(spectrum, 0.5), problem.nodes.fine):
    signal, noise = each.losses(tuned.optimizer, np.arange(5), 64)
    limit: float = each.stability_limit(HeavyBall(momentum=0.9), 64)
fewest = sweep(LeastSquares(spectrum), HeavyBall(), np.array([4, 16]), target=0.1).steps.min()
"""
MISTAKES = [
    ("tuned.optimizer.momentum", "tuned.optimizer.decay"),
    ("steps=np.array([1, 10, 100])", 'steps="100"'),
    ("problem.run(", "problem.ran("),
    ("momentum=free", 'momentum="loose"'),
]


def complaints(script: str, folder: Path) -> list[str]:
    """What pyright has to say of a script, with the message of each error."""
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "script.py"]
    env = {**os.environ, "PYTHONPATH": str(Path(nqm.__file__).parents[1])}
    found = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return [each["message"] for each in json.loads(found.stdout)["generalDiagnostics"]]


@pytest.mark.slow
def test_a_script_passes_a_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    assert complaints(SCRIPT, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_shows(right: str, wrong: str, tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    assert len(complaints(SCRIPT.replace(right, wrong), tmp_path)) == 1
