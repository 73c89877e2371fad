"""Forecasts with known laws, whose logs are the law itself: SGD, and an adaptive optimizer with and without weight decay."""

from __future__ import annotations

from typing import Literal

import numpy as np

from nqm.logs import Forecast, Log
from nqm.logs.course import Course
from nqm.logs.fitting import Fitted
from nqm.logs.law import NAMES, LossLaw, RateMetric

Kind = Literal["plain", "half", "norm"]
KINDS: tuple[Kind, ...] = ("plain", "half", "norm")
PEAKS = {"plain": (0.2, 0.1), "half": (2e-3, 1e-3), "norm": (2e-3, 1e-3)}
WARMUP, LAST = 500, 10_000


def known_law(kind: Kind) -> LossLaw:
    values = {"floor": 2.5, "A": 1.8, "alpha": 0.55, "s0": 0.4, "N": 30.0, "C": 60.0, "k": 1.1, "r0": 1e-3}
    if kind == "plain":
        values |= {"s0": 5.0, "N": 1.0, "C": 8.0}
    return LossLaw(RateMetric(kind, 0.1 if kind == "norm" else 0.0), np.log([values[name] for name in NAMES]))


def known_forecast(kind: Kind, batch_size: float | None = 64.0) -> Forecast:
    """A forecast of two logs of 10,000 steps, with 500 steps of warm-up and a constant rate."""
    law, steps, logs = known_law(kind), np.arange(100, LAST + 1, 100), []
    for peak in PEAKS[kind]:
        rates = peak * np.minimum(1.0, np.arange(1, LAST + 1) / WARMUP)
        loss = law.loss(Course.of(rates, steps, law.metric.weight_decay))
        optimizer, decay = ("SGD", None) if kind == "plain" else ("AdamW", law.metric.weight_decay or None)
        logs.append(Log(steps, loss, rates, batch_size, optimizer=optimizer, weight_decay=decay, name=f"{peak:g}"))
    residuals = tuple(np.zeros(len(steps)) for _ in logs)
    count = len(NAMES)
    fitted = Fitted(law, 1e-6 * np.eye(count), np.ones(count), 1.0, 1e-3, residuals)
    return Forecast(tuple(logs), fitted, batch_size)


def saved_forecast(kind: Kind, path: object, batch_size: float | None = 64.0) -> None:
    """Write a forecast as `Forecast.save` does, without the search for what its logs leave undecided."""
    found = known_forecast(kind, batch_size)
    vars(found)["undecided"] = ()  # type: ignore[index]
    found.save(str(path))
