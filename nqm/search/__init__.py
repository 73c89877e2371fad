"""Searches over time and hyper-parameters: first hits, tuning, optimal schedules."""

from .hits import steps_to_target

__all__ = ["steps_to_target"]
