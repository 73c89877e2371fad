"""Training logs of any origin, and the model inferred from them. Nothing here needs torch."""

from .log import Log
from .reading import read_logs

__all__ = ["Log", "read_logs"]
