"""Real networks: read a noisy quadratic off one, predict its training, and check the prediction. Needs the extra ``nets``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .advise import Advice, advise
    from .check import Check, check
    from .curvature import curvature_of
    from .fit import Fit, fit
    from .lanczos import lanczos, top_eigenpairs
    from .network import Network
    from .predict import Prediction, predict
    from .train import train
    from .workloads import network_of, workload

_HOME = {
    "Advice": "advise", "Check": "check", "Fit": "fit", "Network": "network", "Prediction": "predict",
    "advise": "advise", "check": "check", "curvature_of": "curvature", "fit": "fit", "lanczos": "lanczos",
    "network_of": "workloads", "predict": "predict", "top_eigenpairs": "lanczos", "train": "train",
    "workload": "workloads",
}  # fmt: skip
__all__ = [
    "Advice", "Check", "Fit", "Network", "Prediction", "advise", "check", "curvature_of", "fit", "lanczos", "network_of",
    "predict", "top_eigenpairs", "train", "workload",
]  # fmt: skip


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
