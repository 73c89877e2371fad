"""A fit as `nqm fit` would write it, without a network: a few nodes of signal and noise, three probes, a descent."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nqm import AdamW
from nqm.nets.estimates import Measure
from nqm.nets.fitting.descent import Descent
from nqm.nets.fitting.metric import AdamMetric
from nqm.nets.fitting.model import Fit, Provenance


def small_fit() -> Fit:
    h = np.geomspace(4.0, 0.01, 8)
    signal = Measure(h, 0.02 * h, np.zeros(8, int))
    rng = np.random.default_rng(0)
    noise = Measure(np.tile(h, 3), np.tile(0.5 * h, 3) * rng.uniform(0.8, 1.2, 24), np.repeat(np.arange(3), 8))
    top = {"h": h[:4], "c": 0.5 * h[:4], "g": np.sqrt(0.02 * h[:4]), "adam": h[:4] ** -0.5}
    descent = Descent(0.25, 0.5, np.array([0, 1, 3, 10, 30, 100]), np.array([0.6, 0.59, 0.57, 0.53, 0.5, 0.47]))
    return Fit(signal, noise, 0.6, 1000, top, signal, descent, Provenance(network="small", parameters=100))


def adamw_fit() -> Fit:
    """The same in the metric of AdamW at its start, without momentum."""
    fit, none, few = small_fit(), np.zeros(8), np.ones(4)
    metric = AdamMetric(
        AdamW(0.01), 100, fit.signal.h, np.sqrt(fit.signal.weight), none, none, fit.signal.h[:2], none[:2], 0.1 * few, few,
        np.array([1.0, 50.0]),
    )  # fmt: skip
    return replace(fit, metric=metric)


def fit_bytes(ending: str = ".json", fit: Fit | None = None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fit" + ending)
        (fit or small_fit()).save(path)
        return path.read_bytes()


def fit_json() -> dict[str, Any]:
    return json.loads(fit_bytes())
