"""Objects that a user names as ``module:name``: one importer, and one way to say that the user's own code failed."""

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

LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
NOT_THEIRS = ("<frozen", str(Path(__file__).parents[1]), *(sysconfig.get_paths()[name] for name in LIBRARIES))
"""Where the files of this package, of Python and of installed packages are: not the user's own code."""
EXTRAS = {"torch": "nets", "sklearn": "nets", "distributed": "cluster", "starlette": "web", "uvicorn": "web", "tensorboard": "logs"}
"""The extra of this package that installs a module."""


_NAMED_FOLDERS: set[str] = set()  # Modules that the user named as ``module:name`` were imported from these folders.


class UserCodeError(Exception):
    """An exception inside code that the user named: neither a wrong call of nqm nor a bug in it.

    Its text is one sentence; ``traceback`` holds the user's own frames and the exception, as Python would print them.
    """

    def __init__(self, sentence: str, traceback: str) -> None:
        super().__init__(sentence)
        self.traceback = traceback

    def __reduce__(self) -> tuple[type[UserCodeError], tuple[str, str]]:
        return UserCodeError, (str(self), self.traceback)


def imported(reference: str, what: str) -> object:
    """The object called ``module:name``; modules of the current folder can be named, as with ``python -m``.

    ``what`` says in an error what the name should have been: "an optimizer class", "a function".
    """
    module_name, separator, name = reference.partition(":")
    if not separator or not module_name or not name:
        raise Wrong(f"{reference!r:.80} does not name {what}; write it as module:name")
    if module_name.endswith(".py") or os.sep in module_name:
        raise Wrong(
            f"{reference} names a file; name the module, {Path(module_name).stem}:{name}, from the folder that it is in"
        )
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        with user_code(f"importing {module_name}"):
            module = importlib.import_module(module_name)
    except UserCodeError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name is not None:
            raise Wrong(
                f"cannot import {module_name!r} for {reference}: {missing}{install_hint(missing.name)}"
            ) from None
        raise
    if module.__file__:
        _NAMED_FOLDERS.add(str(Path(module.__file__).parent))
    found = getattr(module, name, None)
    if found is None:
        offered = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise unknown(f"name in {module_name} called", name, offered)
    return found


def install_hint(module: str) -> str:
    """What to install for a module that is missing, if an extra of this package has it."""
    extra = EXTRAS.get(module.partition(".")[0])
    return f"; pip install 'nqm[{extra}]'" if extra else ""


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Tell an exception inside as the user's own, unless it is a `Wrong` that nqm itself raised further in."""
    try:
        yield
    except (Wrong, UserCodeError):
        raise
    except (Exception, SystemExit) as error:
        raise _told(doing, error) from error


def user_failure(error: Exception) -> UserCodeError | None:
    """An exception that code of the user's raised when nqm called it, such as the ``system`` of an own optimizer.

    It is theirs if the last frame that is not a library's lies in a folder from which the user named a module.
    """
    theirs, ours = tuple(f"{folder}{os.sep}" for folder in _NAMED_FOLDERS), str(Path(__file__).parents[1])
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    known = [file for file in files if file.startswith((ours, *theirs))]
    return _told("your code", error) if known and not known[-1].startswith(ours) else None


def _told(doing: str, error: BaseException) -> UserCodeError:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_THEIRS)]
    shown = [*(["Traceback (most recent call last):\n"] if own else []), *traceback.format_list(own)]
    shown += traceback.format_exception_only(error)
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return UserCodeError(f"{doing} failed with {type(error).__name__}: {error}{where}", "".join(shown))
