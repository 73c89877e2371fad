"""Measured curves with a known critical batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nqm.lab.compare import Curve
from nqm.types import Array

SIZES = np.array([2.0**k for k in range(3, 11)])


def curve(
    name: str, searched: Array, seeds: Sequence[Array], settings: Sequence[Mapping[str, float]] | None = None,
    repeats: Sequence[Sequence[Array]] | None = None,
) -> Curve:  # fmt: skip
    """A curve at the first batch sizes, whose label and optimizer are those of its name; by default of one search."""
    label, count = name.removeprefix("EMA(").removesuffix(")"), len(searched)
    found = tuple(tuple(own) for own in repeats or [[s] if len(s) else [] for s in seeds])
    return Curve(
        name, SIZES[:count], searched, tuple(seeds), tuple(settings or [{}] * count), ((),) * count, label, label, found
    )


def hyperbola(
    name: str, knee: float, smallest: float, spread: float = 0.05, seeds: int = 5, searches: int = 2, luck: int = 0
) -> Curve:  # fmt: skip
    """Steps ``smallest (1 + knee / B)``, whose examples are twice their least at B = knee + ...: seeds scatter around it."""
    rng = np.random.default_rng([len(name), luck])
    steps = smallest * (1 + knee / SIZES)
    found = [[np.round(s * np.exp(spread * rng.normal(size=seeds))) for _ in range(searches)] for s in steps]
    best = [min(own, key=np.median) if seeds else own[0] for own in found]
    settings = [{"lr": 0.01 * B, "momentum": 0.9} for B in SIZES]
    return curve(name, np.array([f.min(initial=1e9) for f in best]), best, settings, found if seeds else None)
