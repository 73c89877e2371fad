"""A forecast as a file: its law, its covariance and its logs as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.run import number, numbers
from ..problems.base import check_batch_size
from ..types import Wrong
from .fitting import Fitted
from .law import NAMES, LossLaw, RateMetric
from .log import Log

if TYPE_CHECKING:
    from .forecasting import Forecast

FORECAST_NAME = "nqm forecast"
FORECAST_FORMAT = f"{FORECAST_NAME} 1"


def as_dict(forecast: Forecast) -> dict[str, Any]:
    """Plain numbers, from which `parts_of` makes the same forecast."""
    fitted, law = forecast.fitted, forecast.law
    return {
        "format": FORECAST_FORMAT, "metric": {"kind": law.metric.kind, "weight_decay": law.metric.weight_decay},
        "exponent": law.exponent, "theta": numbers(law.theta), "covariance": [numbers(row) for row in fitted.covariance],
        "prior": numbers(fitted.prior), "cost": number(fitted.cost), "scatter": number(fitted.scatter),
        "residuals": [numbers(e) for e in fitted.residuals], "batch_size": number(forecast.batch_size),
        "remarks": list(forecast.remarks), "logs": [log.to_dict() for log in forecast.logs],
        "undecided": list(forecast.undecided), "parameters": forecast.table(),
    }  # fmt: skip


def read_json(path: str | Path) -> Mapping[str, Any]:
    """What a file of a forecast holds."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Wrong(f"{path} is no forecast: {error}; write one with nqm forecast fit", argument="path") from None
    found = data.get("format") if isinstance(data, dict) else None
    if found == FORECAST_FORMAT:
        return data
    if isinstance(found, str) and found.startswith(FORECAST_NAME):
        other = f"{path} is a forecast of another version of nqm: its format is {found!r}, this version reads {FORECAST_FORMAT!r}"
        raise Wrong(
            f"{other}; fit its logs again with nqm forecast fit, and name a new file with --out", argument="path"
        )
    raise Wrong(f"{path} is no forecast; nqm forecast fit LOGS writes one", argument="path")


def parts_of(data: Mapping[str, Any]) -> tuple[tuple[Log, ...], Fitted, float | None, tuple[str, ...]]:
    """Logs, fitted law, batch size and remarks of a forecast from what `as_dict` gave.

    Files without an exponent were written when it was 1.
    """
    try:
        kind, decay = data["metric"]["kind"], float(data["metric"]["weight_decay"])
        law = LossLaw(RateMetric(kind, decay), np.array(data["theta"], float), float(data.get("exponent", 1.0)))
        residuals = tuple(np.array(e, float) for e in data["residuals"])
        covariance, prior = np.array(data["covariance"], float), np.array(data["prior"], float)
        fitted = Fitted(law, covariance, prior, float(data["cost"]), float(data["scatter"]), residuals)
        logs = tuple(Log(**log) for log in data["logs"])
        shapes = law.theta.shape == prior.shape == (len(NAMES),) and covariance.shape == (len(NAMES), len(NAMES))
        known = kind in ("norm", "half", "plain") and 0 < law.exponent < 10
        if not (known and logs and shapes and np.isfinite(law.theta).all()):
            raise Wrong("its entries do not fit together", argument="path")
        size = data["batch_size"]
        return logs, fitted, None if size is None else check_batch_size(size), tuple(map(str, data["remarks"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Wrong(f"this forecast is damaged: {error}; write it again with nqm forecast fit", "path") from None


def is_forecast(path: str | Path) -> bool:
    """Whether `Forecast.save` wrote a file, of this version or another, by its beginning."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            return f'"format": "{FORECAST_NAME} ' in file.read(1000)
    except (OSError, UnicodeDecodeError):
        return False
