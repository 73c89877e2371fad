"""Versions of what a study trains: hashes of source code, so that a changed model never returns the results of the old one.

The version of a workload is a hash of the file that defines it and of the files beside it that it imports. Comments,
docstrings and blank lines do not count. A study may name a version of its own instead, and the hash is then not taken.
"""

from __future__ import annotations

import ast
import hashlib
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from ..text.imports import NOT_THEIRS
from ..types import Wrong
from .study import WORKER, Study

if TYPE_CHECKING:
    from .results import Results

WORKLOAD_FOLDER = Path(__file__).parents[1] / "nets" / "workloads"
VERSION_LENGTH = 12  # hexadecimal digits of a version that is a hash


def versioned(study: Study, folder: Path | None = None) -> Study:
    """The study with the version of its workload, and of optimizers of the user's own; versions that it has already stay.

    ``folder`` is that of the study's file, in which modules are looked for first.
    """
    entries = {
        label: replace(entry, version=entry.version or _hashed(_files(entry.optimizer, folder)))
        if ":" in entry.optimizer
        else entry
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
    try:
        now = versioned(unversioned(study), results.path.absolute().parent)
    except Wrong:
        return ""  # The source is on another machine.
    if now == study or len(study.version) != VERSION_LENGTH:  # A version of another length is the user's own.
        return ""
    return "the source of what is trained has changed since: nqm lab run trains the new one, beside these results"


def _trained(study: Study, folder: Path | None) -> list[Path]:
    """The files that define what is trained: those of a worker of the user's own, or those of the workload."""
    if study.worker != WORKER:
        return _files(study.worker, folder)
    if ":" in study.workload:
        return _files(study.workload, folder)
    assigned = f"\n{study.workload.upper()} = "
    own = [path for path in sorted(WORKLOAD_FOLDER.glob("*.py")) if assigned in path.read_text(encoding="utf-8")]
    return _closure(own[0], WORKLOAD_FOLDER) if own else []  # The worker refuses a workload that does not exist.


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


def _closure(path: Path, root: Path, package: str | None = None) -> list[Path]:
    """A file and all files that it imports under a folder, directly or not; with a package, those of the package alone."""
    found, todo = dict[Path, None](), [path]
    while todo:
        one = todo.pop()
        if one not in found:
            found[one] = None
            todo += [p for p in _imports(one, root) if package is None or p.relative_to(root).parts[0] == package]
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
