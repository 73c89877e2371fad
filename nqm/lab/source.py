"""Versions of what a study trains: hashes of source code, so that a changed model never returns the results of the old one.

The version of a workload is a hash of the file that defines it, of the files beside it that it imports, and of the package's
training loop. The version of an optimizer is a hash of the files that hold its rule. Comments, docstrings and blank lines do not
count. A study may name a version of its own instead, and the hash is then not taken.
"""

from __future__ import annotations

import ast
import hashlib
import io
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from ..text.imports import NOT_THEIRS
from ..types import Wrong
from .study import WORKER, Study

if TYPE_CHECKING:
    from .results import Results

PACKAGE = Path(__file__).parents[1]
WORKLOAD_FOLDER = PACKAGE / "nets" / "workloads"
TRAINING_FOLDER = PACKAGE / "nets" / "training"
RULE_FOLDER = TRAINING_FOLDER / "rules"
LOOP_PLACES = (TRAINING_FOLDER, PACKAGE / "nets")
"""The folders in which the training loop lies; what is in folders below them is not part of it."""
RULE_PLACES = (RULE_FOLDER, TRAINING_FOLDER, PACKAGE / "optimizers", PACKAGE / "sampling" / "stepping.py")
"""The folders in which the rules of the package's optimizers lie, and the file that applies them."""
VERSION_LENGTH = 12  # hexadecimal digits of a version that is a hash


def versioned(study: Study, folder: Path | None = None) -> Study:
    """The study with the versions of its workload and of its optimizers; versions that it has already stay.

    ``folder`` is that of the study's file, in which modules are looked for first. A worker of the user's own trains as it likes,
    so the rules of the package are no part of its versions.
    """
    entries = {
        label: replace(entry, version=entry.version or _hashed(_rule(entry.optimizer, study.worker, folder)))
        for label, entry in study.optimizers.items()
    }
    version = study.version or _hashed(_trained(study, folder))
    return replace(study, version=version, optimizers=entries)


def unversioned(study: Study) -> Study:
    """The study without versions, by which the same study is found after its source has changed."""
    entries = {label: replace(entry, version="") for label, entry in study.optimizers.items()}
    return replace(study, version="", optimizers=entries)


def changed(results: Results) -> str:
    """A sentence if the source of what a study trains is no longer what its results were trained with; otherwise empty."""
    study = results.study
    if not study.version:
        return ""
    entries = {label: replace(entry, version=_own(entry.version)) for label, entry in study.optimizers.items()}
    try:
        now = versioned(replace(study, version=_own(study.version), optimizers=entries), results.path.absolute().parent)
    except Wrong:
        return ""  # The source is on another machine.
    if now == study:
        return ""
    return "the source of what is trained has changed since: nqm lab run trains the new one, beside these results"


def _own(version: str) -> str:
    """The version if the user has set it, which shows in its length; empty if it is a hash."""
    return "" if len(version) == VERSION_LENGTH else version


def _trained(study: Study, folder: Path | None) -> list[Path]:
    """The files that define what is trained: those of a worker of the user's own, or those of the workload."""
    if study.worker != WORKER:
        return _files(study.worker, folder)
    if ":" in study.workload:
        return [*_files(study.workload, folder), *_loop()]
    own = _defining(f"{study.workload.upper()} = ", WORKLOAD_FOLDER)
    return (
        [*_closure(own, WORKLOAD_FOLDER), *_loop()] if own else []
    )  # The worker refuses a workload that does not exist.


@cache
def _loop() -> list[Path]:
    """The files of the package's training loop."""
    return _closure(TRAINING_FOLDER / "worker.py", PACKAGE.parent, places=LOOP_PLACES)


def _rule(optimizer: str, worker: str, folder: Path | None) -> list[Path]:
    """The files that hold the rule of an optimizer; none for an optimizer of the package in a worker of the user's own.

    An optimizer of the user's own is trained by the package's rule for optimizers of the package or of PyTorch.
    """
    own = _files(optimizer, folder) if ":" in optimizer else []
    return own if worker != WORKER else [*own, *_package_rule("" if own else optimizer)]


@cache
def _package_rule(optimizer: str) -> list[Path]:
    """The files of the package that hold the rule of an optimizer by name; without a name, all that may train another's."""
    described = _defining(f"class {optimizer}(", PACKAGE / "optimizers")
    alone, flat, foreign = (RULE_FOLDER / f"{name}.py" for name in (optimizer.lower(), "flat", "torch_optim"))
    first = (
        [flat, foreign]
        if not optimizer
        else [alone]
        if alone.is_file()
        else [flat, described]
        if described
        else [foreign]
    )
    found = {path for one in first for path in _closure(one, PACKAGE.parent, places=RULE_PLACES)}
    return sorted(found - set(_loop()))


def _defining(line: str, folder: Path) -> Path | None:
    """The file of a folder in which a line begins with this text."""
    files = sorted(folder.glob("*.py"))
    return next((path for path in files if f"\n{line}" in path.read_text(encoding="utf-8")), None)


def _files(reference: str, folder: Path | None) -> list[Path]:
    """The files of ``module:name``: the module's own and those that it imports from its folder, or from its package."""
    module = reference.partition(":")[0]
    top, _, _ = module.partition(".")
    places = [str(folder)] if folder else []
    spec = PathFinder.find_spec(top, [*places, str(Path.cwd()), *sys.path])
    if spec is None and top not in sys.builtin_module_names:
        looked = ", ".join(dict.fromkeys([*places, str(Path.cwd())]))
        raise Wrong(
            f"cannot find the module {top!r} of {reference}: looked in {looked}, and on Python's path; put {top}.py beside the "
            "study's file, or set version in the study if only the workers have the module",
            argument="study.version",
        )
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return []  # A module without source, of which the worker has more to say.
    origin = Path(spec.origin)
    root = origin.parent.parent if spec.submodule_search_locations else origin.parent
    path = _file(root, module.split(".")) or origin
    alone = not spec.submodule_search_locations and str(root).startswith(NOT_THEIRS)
    return [path] if alone else _closure(path, root, None if not spec.submodule_search_locations else top)


def _file(root: Path, parts: list[str]) -> Path | None:
    """The file of a module under a folder, if there is one."""
    base = root.joinpath(*parts)
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if parts and path.is_file()), None)


def _closure(path: Path, root: Path, package: str | None = None, places: Sequence[Path] = ()) -> list[Path]:
    """A file and all files that it imports under a folder, directly or not.

    With a package, only files of the package count; with places, only those files, and modules in those folders.
    """
    found, todo = dict[Path, None](), [path]
    while todo:
        one = todo.pop()
        if one not in found:
            found[one] = None
            named = [p for p in _imports(one, root) if package is None or p.relative_to(root).parts[0] == package]
            todo += [p for p in named if not places or p in places or (p.parent in places and p.name != "__init__.py")]
    return sorted(found)


def _imports(path: Path, root: Path) -> Iterator[Path]:
    """The files under a folder that a file imports."""
    here = list(path.relative_to(root).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        named: list[list[str]] = []
        if isinstance(node, ast.Import):
            named = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*here[: len(here) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            named = [base, *([*base, alias.name] for alias in node.names)]
        for parts in named:
            found = _file(root, parts)
            if found is not None:
                yield found


def _hashed(files: list[Path]) -> str:
    """A hash of the names and the code of files; empty if there are none."""
    if not files:
        return ""
    text = "".join(f"{path.name}\n{essence(path.read_text(encoding='utf-8'))}\n" for path in files)
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_LENGTH]


def essence(source: str) -> str:
    """Source without comments, docstrings, blank lines and space at the end of lines.

    >>> essence("x = 1  # one" + chr(10) + chr(10) + "y = 2")
    'x = 1\\ny = 2'
    """
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + "\n"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            text = node.body[0]
            for row in range(text.lineno - 1, text.end_lineno or text.lineno):
                lines[row] = "\n"
    return "\n".join(line.rstrip() for line in lines if line.strip())
