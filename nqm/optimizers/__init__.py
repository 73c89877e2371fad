"""Optimizers, one small file each."""

from .adam import Adam
from .adamw import AdamW
from .base import Averaging, Optimizer, Wrapper, follow
from .clipped import Clipped
from .diagonal import DiagonalPreconditioned
from .drifting import DriftingPreconditioned
from .ema import EMA
from .estimated import EstimatedPreconditioned
from .heavy_ball import HeavyBall
from .kinds import beginning, decay, free, positive, rate, stride, unit, whole
from .lion import Lion
from .lookahead import Lookahead
from .nesterov import Nesterov
from .nonlinear import Nonlinear, NonlinearWrapper
from .normalised import NormalisedSGD
from .polyak import Polyak
from .preconditioned import Preconditioned
from .rmsprop import RMSProp
from .schedule_free import ScheduleFree
from .sgd import SGD
from .sign import Sign

__all__ = [
    "EMA", "SGD", "Adam", "AdamW", "Averaging", "Clipped", "DiagonalPreconditioned", "DriftingPreconditioned",
    "EstimatedPreconditioned", "HeavyBall", "Lion", "Lookahead", "Nesterov", "Nonlinear",
    "NonlinearWrapper", "NormalisedSGD", "Optimizer", "Polyak",
    "Preconditioned", "RMSProp", "ScheduleFree", "Sign", "Wrapper", "beginning", "decay", "follow",
    "free", "positive", "rate", "stride", "unit", "whole",
]  # fmt: skip
