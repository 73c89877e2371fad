"""Import of objects that a user names as ``module:name``, and errors that the user's own code raises."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..types import Wrong, unknown

OURS = str(Path(__file__).parents[1])
NOT_THEIRS = ("<frozen", OURS, *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
"""Paths of this package, of Python and of installed packages; code elsewhere is the user's own."""
EXTRAS = {
    "torch": "nets", "sklearn": "nets", "distributed": "cluster", "starlette": "web", "uvicorn": "web", "tensorboard": "logs",
}  # fmt: skip
"""The extra of this package that installs each module."""
_NAMED_FOLDERS: set[str] = set()  # The folders of the modules that the user has named as ``module:name``.


class UserCodeError(Exception):
    """An exception in the user's own code, which is neither a wrong call of nqm nor a bug in nqm.

    Its text is one sentence; ``traceback`` is Python's traceback, reduced to the frames of the user's code.
    """

    def __init__(self, sentence: str, traceback: str) -> None:
        super().__init__(sentence)
        self.traceback = traceback

    def __reduce__(self) -> tuple[type[UserCodeError], tuple[str, str]]:
        return UserCodeError, (str(self), self.traceback)


def imported(reference: str, what: str) -> object:
    """The object called ``module:name``; the module may be in the current folder, as with ``python -m``.

    ``what`` describes the expected object in error messages: "an optimizer class", "a function".
    """
    module_name, separator, name = reference.partition(":")
    if not separator or not module_name or not name:
        raise Wrong(f"{reference!r:.80} does not name {what}; write it as module:name")
    if module_name.endswith(".py") or os.sep in module_name:
        raise Wrong(f"{reference} names a file; go to its folder and name the module: {Path(module_name).stem}:{name}")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        with user_code(f"importing {module_name}"):
            module = importlib.import_module(module_name)
    except UserCodeError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name is not None:
            hint = install_hint(missing.name)
            raise Wrong(f"cannot import {module_name!r} for {reference}: {missing}{hint}") from None
        raise
    if module.__file__:
        _NAMED_FOLDERS.add(str(Path(module.__file__).parent))
    found = getattr(module, name, None)
    if found is None:
        offered = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise unknown(f"name in {module_name} called", name, offered)
    return found


def install_hint(module: str) -> str:
    """How to install a missing module, if it belongs to an extra of this package; otherwise empty."""
    extra = EXTRAS.get(module.partition(".")[0])
    return f"; pip install 'nqm[{extra}]'" if extra else ""


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Turn an exception inside the ``with`` into a `UserCodeError`, unless nqm itself raised it as `Wrong`."""
    try:
        yield
    except (Wrong, UserCodeError):
        raise
    except (Exception, SystemExit) as error:
        raise _told(doing, error) from error


def user_failure(error: Exception) -> UserCodeError | None:
    """The exception as a `UserCodeError` if the user's code raised it, such as the ``system`` of the user's optimizer.

    It did if, of all frames in nqm or in a folder of the user's modules, the last is in such a folder. Otherwise None.
    """
    theirs = tuple(f"{folder}{os.sep}" for folder in _NAMED_FOLDERS)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    known = [file for file in files if file.startswith((OURS, *theirs))]
    return _told("your code", error) if known and not known[-1].startswith(OURS) else None


def _told(doing: str, error: BaseException) -> UserCodeError:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_THEIRS)]
    shown = [*(["Traceback (most recent call last):\n"] if own else []), *traceback.format_list(own)]
    shown += traceback.format_exception_only(error)
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return UserCodeError(f"{doing} failed with {type(error).__name__}: {error}{where}", "".join(shown))
