"""Optimizers, one small file each."""

from .base import Optimizer, Sampled, Wrapper, decay, free, rate, unit, whole
from .ema import EMA
from .heavy_ball import HeavyBall
from .lookahead import Lookahead
from .nesterov import Nesterov
from .polyak import Polyak
from .preconditioned import Preconditioned
from .schedule_free import ScheduleFree
from .sgd import SGD

__all__ = [
    "EMA",
    "SGD",
    "HeavyBall",
    "Lookahead",
    "Nesterov",
    "Optimizer",
    "Polyak",
    "Preconditioned",
    "Sampled",
    "ScheduleFree",
    "Wrapper",
    "decay",
    "free",
    "rate",
    "unit",
    "whole",
]
