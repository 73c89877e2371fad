"""Searches over time and hyper-parameters: first hits, tuning, optimal schedules."""

from .answer import Tuned
from .hits import steps_to_target
from .schedules import Scheduled, optimal_schedule
from .tune import Tuner, tune

__all__ = ["Scheduled", "Tuned", "Tuner", "optimal_schedule", "steps_to_target", "tune"]
