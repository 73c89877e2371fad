"""Linear optimizers, one small file each."""

from .base import Optimizer, Wrapper, decay, free, rate, unit, whole
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
    "ScheduleFree",
    "Wrapper",
    "decay",
    "free",
    "rate",
    "unit",
    "whole",
]
