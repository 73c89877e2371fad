"""Measured curves with a known critical batch size."""

from __future__ import annotations

import numpy as np

from nqm.lab.compare import Curve

SIZES = np.array([2.0**k for k in range(3, 11)])


def hyperbola(name: str, knee: float, smallest: float, spread: float = 0.05, seeds: int = 5) -> Curve:
    """Steps ``smallest (1 + knee / B)``, whose examples are twice their least at B = knee + ...: seeds scatter around it."""
    rng = np.random.default_rng(len(name))
    steps = smallest * (1 + knee / SIZES)
    found = tuple(np.round(s * np.exp(spread * rng.normal(size=seeds))) for s in steps)
    settings = tuple({"lr": 0.01 * B, "momentum": 0.9} for B in SIZES)
    return Curve(name, SIZES, np.array([f.min() for f in found]), found, settings, ((),) * len(SIZES))
