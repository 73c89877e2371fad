"""Training logs of any origin, and the model inferred from them. Nothing here needs torch."""

from .branches import join
from .forecasting import Forecast, forecast
from .log import Log
from .outlook import Outlook
from .reading import read_logs

__all__ = ["Forecast", "Log", "Outlook", "forecast", "join", "read_logs"]
