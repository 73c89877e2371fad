"""Measured and predicted training side by side: steps against batch size, critical batch sizes, the paper's findings."""

from .curves import Curve, curves_of
from .files import read_curves, read_table
from .predictions import Predicted, predicted
from .verdicts import Topic, by_topic, findings

__all__ = ["Curve", "Predicted", "Topic", "by_topic", "curves_of", "findings", "predicted", "read_curves", "read_table"]
