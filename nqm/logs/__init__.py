"""Training logs of any origin, and the model inferred from them. Nothing here needs torch."""

from .branches import join
from .log import Log
from .reading import read_logs

__all__ = ["Log", "join", "read_logs"]
