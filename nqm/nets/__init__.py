"""Real networks: measure a noisy quadratic on one, predict its training, and check the prediction. Needs the extra ``nets``."""

from importlib import import_module
from typing import TYPE_CHECKING

from ..text.imports import install_hint

if TYPE_CHECKING:
    from .curvature import curvature_of
    from .fitting.advice import Advice, advise
    from .fitting.model import Fit
    from .fitting.prediction import Prediction, predict
    from .fitting.probing import fit
    from .fitting.similarity import Similarity, checkpoints, curvature_similarity
    from .fitting.validation import Check, check
    from .krylov import lanczos, top_eigenpairs
    from .monitoring.choosing import BatchChoice
    from .monitoring.monitor import Monitor
    from .monitoring.watching import Watched, watch
    from .natural import KFAC
    from .network import Network
    from .streaming import streamed
    from .training.loop import train
    from .workloads import network_of, workload

_HOME = {
    "natural": ("KFAC",),
    "network": ("Network",), "streaming": ("streamed",), "curvature": ("curvature_of",), "krylov": ("lanczos", "top_eigenpairs"),
    "workloads": ("network_of", "workload"), "training.loop": ("train",), "fitting.model": ("Fit",),
    "fitting.probing": ("fit",), "fitting.prediction": ("Prediction", "predict"), "fitting.advice": ("Advice", "advise"),
    "fitting.validation": ("Check", "check"), "fitting.similarity": ("Similarity", "checkpoints", "curvature_similarity"),
    "monitoring.choosing": ("BatchChoice",), "monitoring.monitor": ("Monitor",), "monitoring.watching": ("Watched", "watch"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = [
    "KFAC", "Advice", "BatchChoice", "Check", "Fit", "Monitor", "Network", "Prediction", "Similarity", "Watched", "advise",
    "check", "checkpoints", "curvature_of", "curvature_similarity", "fit", "lanczos", "network_of", "predict", "streamed",
    "top_eigenpairs", "train", "watch", "workload",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that torch is imported only with the parts that need it."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if hint := install_hint(error.name or ""):
            raise ImportError(f"nqm.nets needs {error.name}{hint}", name=error.name) from error
        raise


def __dir__() -> list[str]:
    return sorted(__all__)
