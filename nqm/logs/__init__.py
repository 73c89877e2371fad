"""Training logs of any origin, and the model inferred from them. Nothing here needs torch."""

from .batches import BatchRamp
from .best import BestSchedule
from .branches import join
from .checking import LeftOut
from .deciding import NextRun
from .forecasting import Forecast, forecast
from .lengths import LossesByLength
from .log import Log
from .outlook import Outlook
from .reading import read_logs

__all__ = [
    "BatchRamp", "BestSchedule", "Forecast", "LeftOut", "Log", "LossesByLength", "NextRun", "Outlook", "forecast", "join",
    "read_logs",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
