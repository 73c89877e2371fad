"""The shape of the package: rooms import from rooms before them, files stay short, and ``import nqm`` loads numpy alone."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import nqm

ROOT = Path(nqm.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

ROOMS = [
    "starting", "types", "engine", "optimizers", "sampling", "problems", "search", "show", "text", "logs", "nets", "lab",
    "paper", "web", "cli", "__main__",
]  # fmt: skip
"""The house, as docs/design.md draws it: a room imports only from rooms before it in this list."""

LATE = {
    ("engine.run", "show"), ("search.sweeps", "show"), ("search.schedules", "show"), ("search.phase", "show"),
    ("engine.readable", "show"), ("engine.schedule", "text"), ("optimizers.base", "text"),
}  # fmt: skip
"""Late imports by which a result draws and shows itself, made when its ``plot`` or table is asked for, and not before; and those by
which text is read where an optimizer or a schedule is asked for."""


def module_name(file: Path) -> tuple[str, ...]:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(source: str, package: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Modules of nqm that a file imports, as paths inside nqm, and whether at its top; imports for types are left out."""
    tree = ast.parse(source)
    typing_only = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and "TYPE_CHECKING" in ast.dump(guard.test)
        for node in ast.walk(guard)
    }
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "nqm":
                    yield tuple(alias.name.split(".")[1:]), id(node) in top
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
            elif (node.module or "").split(".")[0] == "nqm":
                base = ()
            else:
                continue
            path = tuple((node.module or "").split(".")) if node.module else ()
            path = path[1:] if not node.level else path
            for alias in node.names:
                target = (*base, *path)
                is_module = (ROOT.joinpath(*target, alias.name + ".py")).exists() or ROOT.joinpath(
                    *target, alias.name
                ).is_dir()
                yield (*target, alias.name) if is_module else target, id(node) in top


def upward(name: tuple[str, ...], source: str, is_package: bool) -> list[str]:
    """Imports of a module from rooms that come after its own."""
    package = name if is_package else name[:-1]
    wrong = []
    for target, at_top in imported(source, package):
        if not target or not name or target[0] == name[0]:
            continue
        if (".".join(name), target[0]) in LATE and not at_top:
            continue
        if ROOMS.index(target[0]) > ROOMS.index(name[0]):
            wrong.append(f"{'.'.join(name)} imports {'.'.join(target)}")
    return wrong


def test_imports_point_to_rooms_before() -> None:
    wrong = [line for file in FILES for line in upward(module_name(file), file.read_text(), file.name == "__init__.py")]
    assert wrong == []


def test_an_import_from_a_later_room_shows() -> None:
    assert upward(("engine", "moments"), "from ..problems.quadratic import Quadratic", False)
    assert upward(("optimizers", "sgd"), "def f():\n    from nqm.search import tune", False)
    assert upward(("problems", "quadratic"), "from ..show import plots", False)
    assert upward(("engine", "run"), "from ..show.plots import plot_run", False)  # at the top: it would load matplotlib
    assert not upward(("engine", "run"), "def f():\n    from ..show.plots import plot_run", False)
    assert not upward(("optimizers", "sgd"), "from .base import rate\nimport numpy", False)


def test_modules_of_a_room_have_no_cycles() -> None:
    """Inside a room, too, imports at the top of files can be put in an order."""
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for file in FILES:
        name, is_package = module_name(file), file.name == "__init__.py"
        targets = imported(file.read_text(), name if is_package else name[:-1])
        graph[name] = {target for target, at_top in targets if at_top and target != name[: len(target)]}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_the_top_of_the_package_is_one_screen() -> None:
    entries = sorted(p.name for p in ROOT.iterdir() if p.name != "__pycache__")
    assert len(entries) <= 18, entries
    assert {Path(entry).stem for entry in entries} <= {*ROOMS, "__init__", "py"}


def test_no_module_bears_the_name_of_a_public_function() -> None:
    clashes = [
        ".".join(name) for file in FILES if (name := module_name(file)) and name[-1] in public_functions(name[:-1])
    ]
    assert clashes == []


def public_functions(package: tuple[str, ...]) -> set[str]:
    """The functions that a package exports."""
    module = importlib.import_module(".".join(("nqm", *package)))
    return {n for n in getattr(module, "__all__", ()) if inspect.isfunction(inspect.unwrap(getattr(module, n)))}


def test_tests_mirror_the_rooms() -> None:
    tests = {p.name for p in (ROOT.parent / "tests").iterdir() if p.is_dir() and not p.name.startswith("__")}
    assert tests - {"data"} == {room for room in ROOMS if (ROOT / room).is_dir()}


def test_files_stay_short() -> None:
    lengths = {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in FILES}
    methods = {
        f
        for f in lengths
        if f.parts[0] == "optimizers" and f.stem not in ("base", "kinds", "checks", "nonlinear", "__init__")
    }
    assert {f: n for f, n in lengths.items() if n >= (80 if f in methods else 600)} == {}


def definitions(kind: str) -> dict[str, list[str]]:
    """Where each upper-case constant, or each class, of the package is defined; claims and figures share a form."""
    found: dict[str, list[str]] = {}
    for file in FILES:
        name = file.relative_to(ROOT).as_posix()
        if kind == "constant" and name.startswith(("paper/claims/", "paper/figures/")):
            continue
        for node in ast.parse(file.read_text()).body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            names = [t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper() and len(t.id) > 1]
            for defined in names if kind == "constant" else [node.name] if isinstance(node, ast.ClassDef) else []:
                found.setdefault(defined, []).append(name)
    return found


def test_a_word_means_one_thing() -> None:
    """No two modules give one name to different constants or classes. Some files of one kind share a form."""
    form = {"DATA_FILES": "nets/workloads/", "NAME": "nets/training/rules/"}
    constants = {
        name: files
        for name, files in definitions("constant").items()
        if len(files) > 1 and not all(file.startswith(form.get(name, "-")) for file in files)
    }
    assert constants == {}
    assert {name: files for name, files in definitions("class").items() if len(files) > 1} == {}


def test_any_stands_only_where_it_is_true() -> None:
    counts = {file: len(re.findall(r"\bAny\b", file.read_text())) for file in FILES}
    assert sum(counts.values()) < 350, sorted(counts.items(), key=lambda item: -item[1])[:5]


def loaded_by(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    return set(out.stdout.split())


def test_import_is_light() -> None:
    heavy = {"scipy", "matplotlib", "numba", "click", "rich", "mpmath", "torch", "pandas"}
    assert not heavy & loaded_by("import nqm")


def test_a_run_needs_no_more_than_it_uses() -> None:
    loaded = loaded_by("from nqm import *; Quadratic(Spectrum([1.0])).run(SGD(0.1), 4, 10)")
    assert not {"matplotlib", "click", "rich"} & loaded  # numba loads scipy for itself


def test_every_public_name_exists() -> None:
    assert len(set(nqm.__all__)) == len(nqm.__all__)
    for name in nqm.__all__:
        assert getattr(nqm, name) is not None
