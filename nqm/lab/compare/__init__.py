"""Measured and predicted training side by side: steps against batch size, critical batch sizes, what the paper found."""

from .curves import Curve, curves_of
from .findings import findings
from .predicted import Predicted, predicted

__all__ = ["Curve", "Predicted", "curves_of", "findings", "predicted"]
