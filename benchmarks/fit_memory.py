"""Peak memory of a fit, in bytes for each weight, of an MLP of a given size on 16 examples, in this process alone.

    python -m benchmarks.fit_memory 4M             the default
    python -m benchmarks.fit_memory 4M 90          within 90 bytes for each weight (``memory``)
    python -m benchmarks.fit_memory 4M 90 bf16     the same with the Lanczos basis in bfloat16

The baseline is the process with the model and after a small fit, so that code and compiled loops do not count. 8 bytes for the model
and the flat weights, which are in the baseline, are added.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
from torch import nn

from nqm.nets import Network, fit

NOISE_STEPS = 4  # enough for the peak, which does not grow with them, nor by the fit's own test


def peak() -> int:
    """Largest memory of this program so far, in bytes; ``ru_maxrss`` would begin with that of the program that started it."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def main(size: str, memory: str = "", basis: str = "working") -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = round((float(size.removesuffix("M")) * 1e6 / 10) ** 0.5)
    layers = [nn.Linear(width, 5 * width), nn.Tanh(), nn.Linear(5 * width, width), nn.Tanh(), nn.Linear(width, 10)]
    x, y = torch.randn(16, width), torch.arange(16) % 10
    network = Network(nn.Sequential(*layers), nn.functional.cross_entropy, (x, y), chunk=16)
    warm = Network(nn.Linear(4, 2), nn.functional.cross_entropy, (torch.randn(8, 4), torch.arange(8) % 2))
    fit(warm, steps=3, noise_steps=2, descent=2)
    before = peak()
    limit = int(memory) * network.dim if memory else None
    found = fit(network, descent=3, noise_steps=NOISE_STEPS, memory=limit, basis=basis, test=False)  # type: ignore[arg-type]
    each = (peak() - before) / network.dim + 8
    print(f"{each:.0f} bytes for each of {network.dim:,} weights, {found.provenance.lanczos_steps} Lanczos steps")
    for note in found.provenance.notes:
        print(f"- {note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
