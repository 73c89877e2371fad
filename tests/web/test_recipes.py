"""The command and the lines of Python that come with an answer give the same answer."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from asking import HEAVY, SMALL, close, post
from click.testing import CliRunner

import nqm
from nqm.cli import main

ELSEWHERE = {
    "curve": {"problem": SMALL, "optimizer": HEAVY, "batch_size": "2^5", "steps": 100, "schedule": "cosine(100)", "points": 20},
    "curve of pieces": {
        "problem": SMALL, "optimizer": HEAVY, "batch_size": 1 / 3, "steps": 9, "schedule": {"lengths": [3, 4], "lr": [1, 0.1]},
    },
    "curve without noise": {"problem": SMALL, "optimizer": "SGD(1/3)", "batch_size": "inf", "steps": 100, "grid": "linear"},
    "curve sampled": {"problem": SMALL, "optimizer": "Sign(0.01)", "batch_size": 4, "steps": 20, "replicas": 8, "seed": 2},
    "curve quick": {"problem": {"spectrum": "power_law(10^3)"}, "optimizer": HEAVY, "batch_size": 4, "steps": 100, "quick": True},
    "curve of a regression": {
        "problem": {**SMALL, "kind": "least_squares", "label_noise": 0.3}, "optimizer": "SGD(0.1)", "batch_size": 4, "steps": 100,
    },
    "curve of a regression, quick": {
        "problem": {**SMALL, "kind": "least_squares"}, "optimizer": "SGD(0.1)", "batch_size": 4, "steps": 100, "points": 5,
        "quick": True,
    },
    "steps": {"problem": SMALL, "optimizer": "SGD(0.1)", "batch_size": 64, "target": 0.1, "until": "settled"},
    "steps of a regression": {
        "problem": {**SMALL, "kind": "least_squares"}, "optimizer": "SGD(0.1)", "batch_size": 64, "target": 0.5, "quick": True,
    },
    "tune": {"problem": SMALL, "optimizer": "Preconditioned(SGD, power=0.5)", "batch_size": 64, "steps": 200},
    "sweep": {
        "problem": {"spectrum": "Spectrum([1, 0.1], c=[2, 0.3])"}, "optimizers": ["SGD", "EMA(SGD)"], "target": 0.01,
        "batch_sizes": "4,1e3",
    },
    "schedule": {"problem": SMALL, "optimizer": "HeavyBall(momentum=0.5)", "batch_size": 8, "target": 0.05, "pieces": 3},
    "schedule with the paper's cap": {
        "problem": SMALL, "optimizer": "SGD", "batch_size": 8, "target": 0.05, "pieces": 3, "max_rate": "paper",
    },
    "map": {
        "problem": SMALL, "optimizer": "EMA(SGD)", "batch_size": 4, "target": 0.1,
        "x": {"name": "lr", "low": 0.01, "high": 1, "n": 3}, "y": {"name": "decay", "low": 0, "high": 0.9, "n": 3},
    },
    "spectrum": {"problem": {"spectrum": "power_law(10**3, exponent=1.5).binned(20)"}},
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_command_gives_the_same_answer(name: str) -> None:
    answer = post(name.split()[0], **ELSEWHERE[name])
    words = shlex.split(answer["command"])
    assert words[0] == "nqm"
    words = [word for word in words[1:] if word != "--json"]
    done = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
    printed = json.loads(done.stdout)
    if "sweeps" in printed:
        answer, printed = (dict(enumerate(a["sweeps"])) for a in (answer, printed))
        answer = {i: {k: one[k] for k in printed[i]} for i, one in answer.items()}
    assert close({k: answer[k] for k in printed}, printed)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_lines_of_python_give_the_same_answer(name: str) -> None:
    answer = post(name.split()[0], **ELSEWHERE[name])
    space: dict[str, Any] = {}
    exec(answer["python"], space)
    found = space["answer"]
    if isinstance(found, list):
        for one, shown in zip(found, answer["sweeps"], strict=True):
            assert close({k: shown[k] for k in one.to_dict()}, one.to_dict())
    else:
        there = found.summary() if isinstance(found, nqm.Spectrum) else found.to_dict()
        assert close({k: answer[k] for k in there}, there)
