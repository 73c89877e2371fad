"""Real networks: read a noisy quadratic off one, predict its training, and check the prediction. Needs the extra ``nets``."""

from importlib import import_module
from typing import Any

_HOME = {
    "Network": "network",
}
__all__ = ["Network"]


def __getattr__(name: str) -> Any:
    """Load what is asked for, so that torch comes in only with the parts that need it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name in ("torch", "sklearn"):
            raise ImportError(f"nqm.nets needs {error.name}: pip install 'nqm[nets]'") from error
        raise
