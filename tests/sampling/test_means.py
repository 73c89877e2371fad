"""Means that merge, and quantiles of as many losses as are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import SGD, Quadratic, Spectrum
from nqm.sampling import means
from nqm.sampling.means import Mean


def test_means_merge() -> None:
    values = np.random.default_rng(0).normal(1e6, 1.0, (2, 1000))
    found = Mean()
    for part in np.split(values, [10, 11, 500], axis=1):
        found.add(part)
    assert np.abs(found.mean - values.mean(1)).max() < 1e-8
    assert np.abs(found.stderr / (values.std(1, ddof=1) / math.sqrt(1000)) - 1).max() < 1e-8


def test_memory_does_not_grow_with_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "KEPT_LOSSES", 3 * 100)
    run = Quadratic(Spectrum([1.0])).sample(SGD(0.1), 16, [0, 1, 2], replicas=50_000)
    assert run.stderr[0] == pytest.approx(math.sqrt(0.5) / math.sqrt(50_000), rel=0.03)  # every replica counts
    assert run.quantiles[0.5][0] == pytest.approx(0.2275, abs=0.15)  # 100 of them for the quantiles
