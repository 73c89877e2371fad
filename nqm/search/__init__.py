"""Searches over time and hyper-parameters: first hits, tuning, maps, optimal schedules."""

from .answer import Tuned
from .exact.tuning import Tuner, tune
from .hits import steps_to_target
from .phase import Axis, PhaseMap, phase_map
from .schedules import Scheduled, optimal_schedule

__all__ = [
    "Axis", "PhaseMap", "Scheduled", "Tuned", "Tuner", "optimal_schedule", "phase_map", "steps_to_target", "tune",
]  # fmt: skip
