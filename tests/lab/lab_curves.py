"""Measured curves with a known critical batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

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


def with_rates(made: Curve, lr: Array, scatter: float = 0.1, searches: int = 3, luck: int = 0) -> Curve:
    """The curve with these best learning rates, around which those of repeated searches scatter in the logarithm."""
    rng = np.random.default_rng([11, luck])
    rates = [one * np.exp(scatter * rng.normal(size=searches)) for one in lr]
    return replace(made, settings=tuple({"lr": float(one[0])} for one in rates), rates=tuple(rates))


def never_at(curve_: Curve, *places: int, allowed: float = 1e6) -> Curve:
    """The curve, of which no search arrives at some batch sizes within the steps that are allowed."""
    lost = np.array([math.inf])
    seeds = tuple(lost if i in places else s for i, s in enumerate(curve_.seeds))
    repeats = tuple((lost, lost) if i in places else found for i, found in enumerate(curve_.repeats))
    searched = np.array([math.inf if i in places else s for i, s in enumerate(curve_.searched)])
    return replace(curve_, seeds=seeds, repeats=repeats, searched=searched, allowed=(allowed,) * len(seeds))
