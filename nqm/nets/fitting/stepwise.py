"""Optimizers that are predicted step by step, from a fit in their metric: Adam and AdamW (`adaptive`), and K-FAC (`kfac_steps`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...engine.schedule import Schedule
from ...optimizers import Adam, AdamW, free
from ...optimizers.base import Optimizer
from ...types import Wrong
from ..natural import KFAC, METRIC_SETTINGS
from .adaptive import AdaptiveRun, inner_of
from .kfac_metric import KFACMetric
from .kfac_steps import NaturalRun

if TYPE_CHECKING:
    from .model import Fit


def in_metric(optimizer: Optimizer) -> bool:
    """Whether an optimizer is predicted from a fit in its own metric."""
    return isinstance(optimizer, KFAC) or inner_of(optimizer) is not None


def run_in_metric(
    fit: Fit, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, *, bent: bool = True
) -> AdaptiveRun | NaturalRun:
    """A setting of an optimizer on a fit in its metric, before its first step."""
    if schedule is not None and np.any(np.asarray(schedule.momentum) != 1):
        raise Wrong(
            f"{optimizer} is predicted with schedules of lr and batch size, not of momentum", argument="schedule"
        )
    if isinstance(optimizer, KFAC):
        return NaturalRun(fit, optimizer, batch_size, schedule, bent=bent)
    return AdaptiveRun(fit, optimizer, batch_size, schedule, bent=bent)


def check_metric(fit: Fit, optimizer: Optimizer) -> None:
    """Refuse an optimizer that the fit was not made for."""
    if fit.metric is None and in_metric(optimizer):
        advice = (
            "fit(network, optimizer=KFAC()), or `nqm fit --optimizer 'KFAC()'`"
            if isinstance(optimizer, KFAC)
            else "fit(network, optimizer=...) with the torch optimizer, or `nqm fit --optimizer adamw --state checkpoint.pt`"
        )
        raise Wrong(f"{optimizer} is predicted from a fit in its own metric; make one: {advice}", argument="optimizer")
    if fit.metric is None and not optimizer.linear:
        advice = "train it, as with `nqm lab run`, or predict SGD, HeavyBall, Nesterov and averages of them"
        raise Wrong(f"{optimizer} is not linear, so its loss on a fit is not predicted; {advice}", argument="optimizer")
    if fit.metric is None:
        return
    held = fit.metric.optimizer
    if isinstance(fit.metric, KFACMetric) != isinstance(optimizer, KFAC) or not in_metric(optimizer):
        made, known = f"this fit is in the metric of {held}", _known(fit)
        raise Wrong(f"{made}, and predicts {known}; for {optimizer} fit without an optimizer", argument="optimizer")
    if isinstance(held, KFAC) and isinstance(optimizer, KFAC) and not held.same_metric(optimizer):
        names = ", ".join(name for name in METRIC_SETTINGS if getattr(held, name) != getattr(optimizer, name))
        raise Wrong(
            f"this fit is in the metric of {held}, and {names} of {optimizer} differs; fit with the same", "optimizer"
        )


def _known(fit: Fit) -> str:
    return "KFAC" if isinstance(fit.metric, KFACMetric) else "Adam and AdamW"


def family_in_metric(fit: Fit) -> Optimizer | None:
    """The family of a fit in a metric: the settings of its optimizer, with the learning rate free."""
    if fit.metric is None:
        return None
    held = fit.metric.optimizer
    if isinstance(held, KFAC):
        return replace(held, lr=free)
    kind = AdamW if isinstance(held, AdamW) else Adam
    return kind(**{k: v for k, v in vars(held).items() if k != "lr"})
