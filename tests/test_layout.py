"""The shape of the package: imports point downwards, files stay short, and ``import nqm`` loads numpy alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nqm

ROOT = Path(nqm.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LAYERS: list[set[str]] = [
    {"_plain_kernels"},
    {"_pair_kernels"},
    {"_kernels", "_coupled_kernels"},
    {"moments"},
    {"chart", "quadrature", "run", "tables", "text"},  # results are data: they know an optimizer only as a type
    {"spectrum"},
    {"noise", "geometry"},
    {"optimizers", "schedule"},
    {"dynamics", "sample"},
    {"coupled", "problem"},
    {"renewal"},
    {"least_squares"},
    {"search"},
    {"bounds"},
    {"batch"},
    {"parse", "study"},
    {"plot"},
    {"lab"},
    {"nets"},
    {"compare", "pictures"},
    {"claims"},
    {"paper"},
    {"output", "options"},
    {"web"},
    {"netverbs", "labverbs", "webverbs"},
    {"compareverbs"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: i for i, layer in enumerate(LAYERS) for name in layer}
INNER = {  # inside a sub-package, the same rule
    "optimizers": [
        {"kinds", "algebra"},
        {"base"},
        {"ema", "heavy_ball", "lookahead", "nesterov", "polyak", "preconditioned", "schedule_free", "sgd"},
        {"adam", "adamw", "clipped", "diagonal", "drifting", "estimated", "normalised", "rmsprop", "sign"},
    ],
    "nets": [
        {"estimates", "transforms", "trees"},
        {"checks"},
        {"network"},
        {"curvature", "training"},
        {"krylov", "stacks"},
        {"kronecker", "measure", "metrics", "descent", "trainings"},
        {"fitting", "rules", "similarity"},
        {"prediction"},
        {"checking", "advice"},
        {"pictures", "workloads"},
        {"tasks"},
        {"groups"},
        {"trials"},
    ],
    "compare": [{"curves"}, {"findings", "predicted"}, {"pictures"}, {"report"}],
    "lab": [
        {"trial", "space"},
        {"study", "work"},
        {"store", "plan"},
        {"executors", "results"},
        {"runner"},
        {"view"},
    ],
    "web": [
        {"limits", "guard"},
        {"fields"},
        {"files", "describe"},
        {"bodies"},
        {"recipes", "summary"},
        {"api"},
        {"warm"},
        {"pool"},
        {"server"},
    ],
    "search": [
        {"fits"},
        {"walk", "minimise", "answer", "together", "phase"},
        {"hits", "family"},
        {"losses", "races"},
        {"quasi"},
        {"tune"},
        {"schedules"},
    ],
}
LATE = {("network", "training"), ("fitting", "prediction")} | {
    (name, "pictures") for name in ("fitting", "prediction", "checking")
}
"""A method calls the module that does its work, when called and not before."""
DRAWS = {("run", "plot"), ("batch", "plot"), ("search", "plot")}
"""A result's ``plot`` method calls the module that draws it, when called and not before."""


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
    """Imports of a module that do not point downwards."""
    package = name if is_package else name[:-1]
    wrong = []
    for target, at_top in imported(source, package):
        if not target or target == name or not name:
            continue
        if (name[0], target[0]) in DRAWS and not at_top:
            continue
        if target[0] != name[0]:
            if LEVEL[target[0]] >= LEVEL[name[0]]:
                wrong.append(f"{'.'.join(name)} imports {'.'.join(target)}")
        elif name[0] in INNER and len(name) > 1 and len(target) > 1 and name[1] != target[1]:
            level = {module: i for i, layer in enumerate(INNER[name[0]]) for module in layer}
            if level[target[1]] >= level[name[1]] and not ((name[1], target[1]) in LATE and not at_top):
                wrong.append(f"{'.'.join(name)} imports {'.'.join(target)}")
    return wrong


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_point_downwards(file: Path) -> None:
    name = module_name(file)
    assert not name or name[0] in LEVEL, f"{name[0]} has no place in the layout; give it one"
    assert upward(name, file.read_text(), file.name == "__init__.py") == []


def test_an_upward_import_shows() -> None:
    assert upward(("moments",), "from .problem import Quadratic", False)
    assert upward(("optimizers", "sgd"), "from ..dynamics import Dynamics", False)
    assert upward(("optimizers", "sgd"), "def f():\n    from nqm.search import tune", False)
    assert upward(("optimizers", "base"), "from .sgd import SGD", False)
    assert upward(("problem",), "from . import plot", False)
    assert upward(("run",), "from .plot import plot_run", False)  # at the top, where it would load matplotlib
    assert not upward(("run",), "def f():\n    from .plot import plot_run", False)
    assert not upward(("optimizers", "sgd"), "from .base import rate\nimport numpy", False)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_files_stay_short(file: Path) -> None:
    lines = len(file.read_text().splitlines())
    method = file.parent.name == "optimizers" and file.stem not in ("base", "kinds", "__init__")
    assert lines < (80 if method else 500), f"{file.name} has {lines} lines"


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
