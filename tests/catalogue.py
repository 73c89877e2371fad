"""Every optimizer once, nested ones too: a row here buys every generic test.

Rows are stable for curvatures up to 1 and lively: no two slots of a row move at the same rate.
"""

from __future__ import annotations

from nqm import (
    EMA,
    SGD,
    Adam,
    AdamW,
    Clipped,
    DiagonalPreconditioned,
    DriftingPreconditioned,
    EstimatedPreconditioned,
    HeavyBall,
    Lion,
    Lookahead,
    Nesterov,
    NormalisedSGD,
    Optimizer,
    Polyak,
    Preconditioned,
    RMSProp,
    ScheduleFree,
    Sign,
)
from nqm.optimizers.base import fill, parameters

ROWS: dict[str, Optimizer] = {
    "sgd": SGD(0.7),
    "heavy_ball": HeavyBall(0.3, 0.9),
    "heavy_ball_plain": HeavyBall(0.6, 0.0),
    "nesterov": Nesterov(0.25, 0.85),
    "schedule_free": ScheduleFree(0.8, 0.9),
    "preconditioned_sgd": Preconditioned(SGD(0.6), 0.5),
    "preconditioned_heavy_ball": Preconditioned(HeavyBall(0.2, 0.8), 0.75),
    "preconditioned_preconditioned": Preconditioned(Preconditioned(SGD(0.4), 0.5), 0.25),
    "ema_sgd": EMA(SGD(0.6), 0.9),
    "ema_heavy_ball": EMA(HeavyBall(0.15, 0.9), 0.8),
    "ema_nesterov": EMA(Nesterov(0.2, 0.7), 0.95),
    "ema_ema": EMA(EMA(SGD(0.5), 0.7), 0.8),
    "ema_preconditioned": EMA(Preconditioned(HeavyBall(0.1, 0.6), 0.5), 0.75),
    "ema_lookahead": EMA(Lookahead(SGD(0.5), 0.6, 4), 0.8),
    "ema_schedule_free": EMA(ScheduleFree(0.5, 0.8), 0.7),
    "ema_polyak": EMA(Polyak(SGD(0.5), 6), 0.6),
    "polyak_step": Polyak(SGD(0.4), 10),
    "polyak_all": Polyak(HeavyBall(0.2, 0.7), 0),
    "polyak_fraction": Polyak(SGD(0.9), 0.5),
    "polyak_fraction_momentum": Polyak(Nesterov(0.2, 0.8), 0.3),
    "polyak_lookahead": Polyak(Lookahead(SGD(0.6), 0.5, 3), 5),
    "polyak_schedule_free": Polyak(ScheduleFree(0.6, 0.7), 4),
    "polyak_polyak": Polyak(Polyak(SGD(0.5), 2), 5),
    "lookahead_sgd": Lookahead(SGD(0.6), 0.5, 5),
    "lookahead_heavy_ball": Lookahead(HeavyBall(0.1, 0.8), 0.7, 6),
    "lookahead_nesterov": Lookahead(Nesterov(0.2, 0.8), 0.5, 5),
    "lookahead_lookahead": Lookahead(Lookahead(SGD(0.4), 0.6, 2), 0.8, 3),
    "lookahead_ema": Lookahead(EMA(HeavyBall(0.2, 0.5), 0.5), 0.6, 4),
    "lookahead_every_step": Lookahead(SGD(0.8), 0.4, 1),
    "lookahead_polyak": Lookahead(Polyak(SGD(0.5), 3), 0.6, 4),
    "lookahead_schedule_free": Lookahead(ScheduleFree(0.5, 0.6), 0.5, 3),
    "preconditioned_ema": Preconditioned(EMA(Nesterov(0.2, 0.6), 0.8), 0.5),
    "preconditioned_lookahead": Preconditioned(Lookahead(HeavyBall(0.1, 0.7), 0.6, 4), 0.25),
    "preconditioned_polyak": Preconditioned(Polyak(HeavyBall(0.1, 0.6), 0.4), 0.5),
    "preconditioned_schedule_free": Preconditioned(ScheduleFree(0.4, 0.8), 0.5),
}

CYCLIC = {name: row for name, row in ROWS.items() if row.at_horizon(100).cycle}
"""Rows whose steps repeat, so that a run of 10^9 steps is a power."""

LIMITED = {name: row for name, row in ROWS.items() if row.at_horizon(100).cycle and not row.averages}
"""Rows whose noise settles at a floor above zero."""

SAMPLED: dict[str, Optimizer] = {
    "adam": Adam(0.05, 0.9),
    "adam_short_memory": Adam(0.02, 0.5, 0.9, 1e-3),
    "adamw": AdamW(0.04, 0.8, 0.99, 1e-6, 0.1),
    "rmsprop": RMSProp(0.02, 0.95),
    "rmsprop_momentum": RMSProp(0.01, 0.9, 1e-4, 0.7),
    "sign": Sign(0.03),
    "signum": Sign(0.02, 0.9),
    "lion": Lion(0.02, 0.8, 0.95, 0.1),
    "normalised_sgd": NormalisedSGD(0.2),
    "normalised_momentum": NormalisedSGD(0.1, 0.8),
    "clipped_sgd": Clipped(SGD(0.5), 0.7),
    "clipped_heavy_ball": Clipped(HeavyBall(0.2, 0.8), 1.1),
    "clipped_adam": Clipped(Adam(0.03, 0.9), 0.5),
    "diagonal_heavy_ball": DiagonalPreconditioned(HeavyBall(0.2, 0.7), 0.5),
    "drifting_before": DriftingPreconditioned(HeavyBall(0.2, 0.8), 0.5, 0.5, 7),
    "drifting_after": DriftingPreconditioned(HeavyBall(0.2, 0.8), 0.5, 0.5, 7, "after"),
    "estimated_sgd": EstimatedPreconditioned(SGD(0.3), 0.5, 4),
    "ema_adam": EMA(Adam(0.05, 0.9), 0.8),
    "polyak_sign": Polyak(Sign(0.05), 4),
    "lookahead_adam": Lookahead(Adam(0.05, 0.8), 0.5, 3),
    "preconditioned_sign": Preconditioned(Sign(0.05, 0.5), 0.5),
    "polyak_fraction_rmsprop": Polyak(RMSProp(0.02), 0.4),
}
"""Rows that are not linear systems: followed by their mean field, or sampled."""


def set_all(row: Optimizer, **values: object) -> Optimizer:
    """The row with every hyper-parameter of these names set, however deep."""
    return fill(row, {name: values[p.path[-1]] for name, p in parameters(row).items() if p.path[-1] in values})
