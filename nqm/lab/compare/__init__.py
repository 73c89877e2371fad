"""Measured and predicted training side by side: steps against batch size, critical batch sizes, the paper's findings."""

from .curves import Curve, curves_of
from .predictions import Predicted, predicted
from .verdicts import findings

__all__ = ["Curve", "Predicted", "curves_of", "findings", "predicted"]
