"""Tests of real networks: one thread each, and skipped where torch is missing unless NQM_REQUIRE_TORCH says it must not be."""

import os

import pytest

if os.environ.get("NQM_REQUIRE_TORCH"):
    import torch
else:
    torch = pytest.importorskip("torch")

torch.set_num_threads(1)  # more threads than free cores spin
