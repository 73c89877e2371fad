"""nqm: what batch size, momentum, averaging, preconditioning and schedules do to training, exactly.

>>> from nqm import HeavyBall, Quadratic, Spectrum
>>> problem = Quadratic(Spectrum.power_law(10_000))
>>> problem.run(HeavyBall(lr=0.1, momentum=0.9), batch_size=256, steps=2000).loss[-1].round(4)
np.float64(0.3605)
"""

from .batch import Sweep, sweep
from .least_squares import LeastSquares
from .optimizers import (
    EMA,
    SGD,
    HeavyBall,
    Lookahead,
    Nesterov,
    Optimizer,
    Polyak,
    Preconditioned,
    ScheduleFree,
    Wrapper,
    decay,
    free,
    rate,
    unit,
    whole,
)
from .problem import Problem, Quadratic
from .run import Hit, Outcome, Run
from .schedule import Schedule, constant, cosine, exponential, linear, step, warmup, wsd
from .search import Scheduled, Tuned, optimal_schedule, steps_to_target, tune
from .spectrum import Spectrum

__version__ = "0.1.0"

__all__ = [
    "EMA",
    "SGD",
    "HeavyBall",
    "Hit",
    "LeastSquares",
    "Lookahead",
    "Nesterov",
    "Optimizer",
    "Outcome",
    "Polyak",
    "Preconditioned",
    "Problem",
    "Quadratic",
    "Run",
    "Schedule",
    "ScheduleFree",
    "Scheduled",
    "Spectrum",
    "Sweep",
    "Tuned",
    "Wrapper",
    "constant",
    "cosine",
    "decay",
    "exponential",
    "free",
    "linear",
    "optimal_schedule",
    "rate",
    "step",
    "steps_to_target",
    "sweep",
    "tune",
    "unit",
    "warmup",
    "whole",
    "wsd",
]
