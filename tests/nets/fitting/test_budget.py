"""The memory of a fit: its peak in a process of its own, what is announced, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models import mlp

from nqm.nets import fit
from nqm.nets.krylov import lanczos
from nqm.types import Wrong

ROOT = Path(__file__).parents[3]
SCRIPT = """
import re, sys, torch
from torch import nn
from nqm.nets import Network, fit


def peak():  # of this program alone, in kB: ru_maxrss begins with that of the program that started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])


torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1000, 5000), nn.Tanh(), nn.Linear(5000, 1000), nn.Tanh(), nn.Linear(1000, 10))
network = Network(model, nn.functional.cross_entropy, (torch.randn(16, 1000), torch.arange(16) % 10), chunk=16)
warm = Network(nn.Linear(4, 2), nn.functional.cross_entropy, (torch.randn(8, 4), torch.arange(8) % 2))
fit(warm, steps=3, noise_steps=2, descent=2)
before = peak()
memory = int(sys.argv[1]) * network.dim if len(sys.argv) > 1 else None
fit(network, descent=3, noise_steps=6, memory=memory)
print((peak() - before) * 1024 / network.dim + 8)
"""  # of which 8 bytes are the model and the weights of the network, which are there before


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "most"), [(None, 220), (90, 100)])
def test_peak_memory(asked: int | None, most: float) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", SCRIPT, *([] if asked is None else [str(asked)])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert 20 < float(done.stdout) < most


def test_fewer_steps_are_taken_and_said() -> None:
    said: list[str] = []
    network = mlp()
    found = fit(network, steps=20, noise_steps=3, descent=2, memory=8 * network.dim * 24, announce=said.append)
    assert found.provenance.lanczos_steps == 10
    assert any("10 Lanczos steps were taken instead of 20" in note for note in found.provenance.notes)
    (sentence,) = said
    assert sentence.startswith("28 products and 2 gradients over all the data, about ")
    with pytest.raises(Wrong, match=r"66 weights needs .* and memory is") as told:
        fit(mlp(), memory=1000)
    assert told.value.argument == "memory"


def test_ritz_vectors_in_place_are_those_of_a_copy() -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(90, 90, dtype=torch.float64, generator=generator)
    A = A @ A.T
    start = torch.randn(90, dtype=torch.float64, generator=generator)
    (one,), (other,) = (lanczos(lambda v: v @ A, start, 12, keep=True) for _ in range(2))
    values, vectors = one.ritz(5)
    same, moved = other.into_ritz(5)
    assert (values == same).all()
    torch.testing.assert_close(moved, vectors, rtol=1e-12, atol=1e-14)
