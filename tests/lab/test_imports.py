"""What the lab loads: it knows nothing of torch, and neither do comparisons."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["nqm.lab", "nqm.lab.work", "nqm.lab.compare", "nqm.lab.compare.report"])
def test_torch_is_not_loaded(module: str) -> None:
    script = f"import {module}, sys; print(*(name for name in ('torch', 'click', 'rich') if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"
