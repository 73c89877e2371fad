"""Real networks: read a noisy quadratic off one, predict its training, and check the prediction. Needs the extra ``nets``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .advice import Advice, advise
    from .checking import Check, check
    from .curvature import curvature_of
    from .fitting import Fit, fit
    from .krylov import lanczos, top_eigenpairs
    from .network import Network
    from .prediction import Prediction, predict
    from .similarity import Similarity, checkpoints, compare
    from .training import train
    from .workloads import network_of, workload

_HOME = {
    "Advice": "advice", "Check": "checking", "Fit": "fitting", "Network": "network", "Prediction": "prediction",
    "Similarity": "similarity", "advise": "advice", "check": "checking", "checkpoints": "similarity",
    "compare": "similarity", "curvature_of": "curvature", "fit": "fitting", "lanczos": "krylov",
    "network_of": "workloads", "predict": "prediction", "top_eigenpairs": "krylov", "train": "training",
    "workload": "workloads",
}  # fmt: skip
__all__ = [
    "Advice", "Check", "Fit", "Network", "Prediction", "Similarity", "advise", "check", "checkpoints", "compare",
    "curvature_of", "fit", "lanczos", "network_of", "predict", "top_eigenpairs", "train", "workload",
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
