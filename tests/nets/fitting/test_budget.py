"""The memory of a fit: its peak in a process of its own, what is announced, and what is refused."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from models import mlp

from nqm.nets import fit
from nqm.nets.fitting.budget import FIXED_BYTES, give_back
from nqm.nets.krylov import Store, lanczos
from nqm.types import Wrong

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1M", "10M"])
@pytest.mark.parametrize(("asked", "most"), [([], 220), (["90"], 100), (["90", "bf16"], 100)])
def test_peak_memory(size: str, asked: list[str], most: float) -> None:
    mapped = {"MALLOC_MMAP_THRESHOLD_": "1000000"}  # so that glibc keeps no freed vector, of 4 MB, at random
    environment = {**os.environ, **mapped, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "benchmarks.fit_memory", size, *asked]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=500, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert 20 < float(done.stdout.split()[0]) < most, done.stdout


def test_fewer_steps_are_taken_and_said() -> None:
    said: list[str] = []
    network = mlp()
    found = fit(
        network, steps=20, noise_steps=3, descent=2, memory=FIXED_BYTES + 8 * network.dim * 24, announce=said.append
    )
    assert found.provenance.lanczos_steps == 10
    assert any("10 Lanczos steps were taken instead of 20" in note for note in found.provenance.notes)
    (sentence,) = said
    assert sentence.startswith("28 products and 2 gradients over all the data, about ")
    with pytest.raises(Wrong, match=r"66 weights needs .* and memory is") as told:
        fit(mlp(), memory=1000)
    assert told.value.argument == "memory"


def test_no_more_is_announced_than_a_small_network_takes() -> None:
    said: list[str] = []
    fit(mlp(), steps=5, noise_steps=3, descent=0, memory=8 * 10**9, announce=said.append)
    (sentence,) = said
    assert sentence.endswith("; about 12 MB beside the activations")


def test_freed_memory_is_given_back() -> None:
    """Freed blocks between blocks that are kept stay with the process until they are given back."""
    resident = Path("/proc/self/statm")
    if not resident.exists():
        pytest.skip("the memory of a process is read from /proc")
    blocks = [torch.ones(2**14) for _ in range(2 * 1024)]  # of 64 kB, which glibc never maps one by one
    kept = blocks[1::2]
    del blocks
    gc.collect()
    before = int(resident.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    give_back()
    after = int(resident.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert len(kept) == 1024
    assert before - after > 1024 * 2**15


def test_a_basis_in_half_precision_takes_half_the_memory() -> None:
    network = mlp()  # of float64: a step takes 8 bytes for each weight, in bfloat16 2
    sizes = {"steps": 20, "noise_steps": 3, "descent": 2, "memory": FIXED_BYTES + 8 * network.dim * 16}
    assert fit(network, **sizes).provenance.lanczos_steps == 2
    assert fit(network, **sizes, basis="bf16").provenance.lanczos_steps == 8


@pytest.mark.parametrize("store", ["host", "bf16", "host-bf16"])
def test_a_fit_says_how_precise_its_basis_is(store: Store) -> None:
    sizes = {"steps": 8, "noise_vectors": 3, "noise_steps": 4, "descent": 0}
    kept, exact = fit(mlp(), **sizes, basis=store), fit(mlp(), **sizes)
    assert any("the Lanczos basis was kept" in note and "orthonormal to" in note for note in kept.provenance.notes)
    close = 1e-9 if store == "host" else 0.02  # of 2^-9, the rounding of bfloat16, few multiples
    np.testing.assert_allclose(kept.signal.h.max(), exact.signal.h.max(), rtol=close)
    assert kept.noise_scale.value == pytest.approx(exact.noise_scale.value, rel=close)
    assert kept.curvature_noise_scale.value == pytest.approx(exact.curvature_noise_scale.value, rel=close)


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
