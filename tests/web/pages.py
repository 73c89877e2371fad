"""What the tests in a browser share: states of the page, and how near a drawn number is to an exact one."""

from __future__ import annotations

from typing import Any

import numpy as np
from live import ROOT

from nqm import Quadratic, Spectrum

DIGITS = ROOT / "nqm" / "web" / "static" / "examples" / "digits.json"
SIZES = "sizes=4,64,1024,16384"
PAPER = Quadratic(Spectrum.power_law(10_000))
SETTING = "run=HeavyBall(lr=0.05,momentum=0.9)&batch=256&steps=3000"
VIEWS = ("steps", "loss", "settings", "schedule", "map", "network", "batch")  # those that need no file


def close(shown: Any, exact: Any) -> None:
    """Equal to 1e-6, with nothing shown where there is no number."""
    expected = np.asarray(exact, dtype=float)
    np.testing.assert_allclose(
        np.array(shown, dtype=float), np.where(np.isfinite(expected), expected, np.nan), rtol=1e-6
    )
