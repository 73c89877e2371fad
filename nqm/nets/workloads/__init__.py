"""Training tasks by name, each a small file: data, model, loss, checkpoint."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...types import Wrong

if TYPE_CHECKING:
    from ..network import Network
    from .base import Workload

PACKAGE = Path(__file__).parents[2]
WORKLOADS = {
    "digits": "scikit-learn's digits, MLP 64-32-10",
    "fashion_mlp": "Fashion-MNIST, MLP 784-64-32-10",
    "fashion_cnn": "Fashion-MNIST, two strided convolutions and a linear layer",
    "mnist_cnn": "MNIST, two strided convolutions and a linear layer",
    "cifar_resnet8": "CIFAR-10, ResNet8 without batch norm",
    "moby_transformer": "Moby-Dick by characters, Transformer of two layers",
}


def workload(name: str) -> Workload:
    """A training task by its name."""
    if name not in WORKLOADS:
        raise Wrong(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    return import_module(f".{name}", __name__).WORKLOAD


def network_of(text: str, **options: Any) -> Network:
    """The network that a text names: a workload at its checkpoint, or ``module:function``, which returns a `Network`.

    The options are those of `Workload.network`; a function of the user's own makes its own checkpoint.
    """
    if ":" not in text:
        return workload(text).network(**options)
    if given := [name for name, value in options.items() if value is not None and name not in ("progress", "seed")]:
        raise Wrong(f"{' and '.join(given)} is for built-in workloads; {text} makes its own checkpoint")
    found = object_named(text)
    from ..network import Network

    if not isinstance(found, Network):
        raise Wrong(f"{text} returned {type(found).__name__}; it must return an nqm.nets.Network")
    return found


def object_named(text: str) -> Any:
    """What the user's function ``module:function`` returns; modules of the current folder can be named."""
    module_name, name = text.split(":", 1)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise Wrong(f"cannot import {module_name!r} for {text}: {_told(error)}{_hint(module_name, name)}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise Wrong(f"{module_name} has no function {name!r}; write one that returns an nqm.nets.Network")
    try:
        return function()
    except (Exception, SystemExit) as error:
        if _ours(error):
            raise  # a sentence of Network's own
        raise Wrong(f"{text} fails: {_told(error)}") from error


def _ours(error: BaseException) -> bool:
    """Whether the function called this package and that refused with a sentence."""
    _, *frames = traceback.extract_tb(error.__traceback__)  # the first is the call of the function
    return isinstance(error, (ValueError, TypeError)) and bool(frames) and _under(frames[-1].filename, [PACKAGE])


def _told(error: BaseException) -> str:
    """An error of the user's own code: its kind, its text, and the last line of that code on the way to it."""
    if isinstance(error, SyntaxError):
        return str(error)  # it names its line
    others = [PACKAGE, *(Path(folder) for folder in sysconfig.get_paths().values())]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_file() and not _under(frame.filename, others)]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{where}"


def _under(path: str, folders: Sequence[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _hint(module_name: str, name: str) -> str:
    """What to write instead of the path of a file."""
    if not module_name.endswith(".py") and os.sep not in module_name:
        return ""
    return f"; name a module, not a file: {Path(module_name).stem}:{name}, from the folder that it is in"
