"""nqm: what batch size, momentum, averaging, preconditioning and schedules do to training, exactly.

>>> from nqm import HeavyBall, Quadratic, Spectrum
>>> problem = Quadratic(Spectrum.power_law(10_000))
>>> problem.run(HeavyBall(lr=0.1, momentum=0.9), batch_size=256, steps=2000).loss[-1].round(4)
np.float64(0.3605)
"""

from . import starting as _starting

_starting.start()  # before the imports that take time
# ruff: noqa: E402

from importlib import import_module
from typing import TYPE_CHECKING

from .engine.mean_field import Linearised
from .engine.run import Hit, Outcome, Run
from .engine.schedule import Schedule, constant, cosine, exponential, linear, step, warmup, wsd
from .engine.spectrum import Spectrum
from .optimizers import (
    EMA,
    SGD,
    Adam,
    AdamW,
    Averaging,
    Clipped,
    DiagonalPreconditioned,
    DriftingPreconditioned,
    EstimatedPreconditioned,
    HeavyBall,
    Lion,
    Lookahead,
    Nesterov,
    Nonlinear,
    NonlinearWrapper,
    NormalisedSGD,
    Optimizer,
    Polyak,
    Preconditioned,
    RMSProp,
    ScheduleFree,
    Sign,
    Wrapper,
    beginning,
    decay,
    follow,
    free,
    positive,
    rate,
    stride,
    unit,
    whole,
)
from .problems.base import Problem
from .problems.checkup import Diagnosis, check_optimizer
from .problems.least_squares import LeastSquares
from .problems.quadratic import Quadratic
from .search import Axis, PhaseMap, Scheduled, Tuned, optimal_schedule, phase_map, steps_to_target, tune
from .search.sweeps import Sweep, sweep
from .types import Wrong

if TYPE_CHECKING:
    from . import lab as lab
    from . import logs as logs
    from . import nets as nets
    from . import paper as paper

__version__ = "0.1.0"

__all__ = [
    "EMA", "SGD", "Adam", "AdamW", "Averaging", "Axis", "Clipped", "Diagnosis", "DiagonalPreconditioned",
    "DriftingPreconditioned", "EstimatedPreconditioned", "HeavyBall", "Hit", "LeastSquares", "Linearised", "Lion", "Lookahead",
    "Nesterov", "Nonlinear", "NonlinearWrapper", "NormalisedSGD", "Optimizer",
    "Outcome", "PhaseMap", "Polyak", "Preconditioned", "Problem",
    "Quadratic", "RMSProp", "Run", "Schedule", "ScheduleFree", "Scheduled", "Sign",
    "Spectrum", "Sweep", "Tuned", "Wrapper", "Wrong", "beginning", "check_optimizer", "constant", "cosine", "decay",
    "exponential", "follow", "free", "linear", "optimal_schedule", "phase_map", "positive", "rate", "step",
    "steps_to_target", "stride", "sweep", "tune", "unit", "warmup", "whole", "wsd",
]  # fmt: skip
_ROOMS = ("lab", "logs", "nets", "paper")  # Rooms with names of their own, which are imported when they are first used.


def __getattr__(name: str) -> object:
    """Import a room when it is first used: ``import nqm; nqm.logs.read_logs(...)``."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])
