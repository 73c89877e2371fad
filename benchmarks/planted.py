"""Plant bugs in the package, one at a time, and report which tests fail: ``python -m benchmarks.planted run``.

The bugs are data. ``planted_data/known.toml`` has those that a test speaks of, ``planted_data/drawn.toml`` those that
``python -m benchmarks.planted draw`` drew at random from the files in `DRAWN_FROM`, with the operators of `OPERATORS` and the
seed `SEED`. A bug is a file, its text before and after, and the tests that should see it. A text that stands in its file not
exactly once no longer applies, which is an error.

``run`` plants each bug in a copy of the repository and runs the tests of its room until one fails. Bugs that no test of the
room sees are tried on all quick tests, and what then is left is held against the record of `benchmarks.record`: a bug that
changes no recorded number by more than `SEEN` is one that no user sees. Outcomes are written as they come, one line each, so
that a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).with_name("planted_data")
SEED = 20260731  # of the drawn bugs
DRAWN = 40  # bugs drawn at random
SEEN = 1e-6  # relative change of a number from which on a user sees it
DRAWN_FROM = {
    "engine": ["nqm/engine", "nqm/engine/kernels"],
    "search": ["nqm/search", "nqm/search/exact"],
    "logs": [
        "nqm/logs/law.py",
        "nqm/logs/course.py",
        "nqm/logs/fitting.py",
        "nqm/logs/allowance.py",
        "nqm/logs/forecasting.py",
    ],
    "nets": [
        f"nqm/nets/fitting/{name}.py" for name in ("prediction", "following", "descent", "testing", "adaptive", "hits")
    ],
}
TESTS = {
    "engine": ["tests/engine", "tests/optimizers", "tests/problems", "tests/sampling"],
    "optimizers": ["tests/optimizers", "tests/engine", "tests/problems"],
    "sampling": ["tests/sampling", "tests/optimizers"],
    "problems": ["tests/problems", "tests/optimizers", "tests/search"],
    "search": ["tests/search", "tests/problems", "tests/cli"],
    "logs": ["tests/logs", "tests/cli"],
    "nets": ["tests/nets"],
    "lab": ["tests/lab"],
    "paper": ["tests/paper"],
}  # fmt: skip


@dataclass(frozen=True)
class Bug:
    """One mutation: the text ``old`` of a file becomes ``new``."""

    room: str
    file: str
    what: str
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.what}"

    def planted(self, text: str) -> str:
        """The text of the file with the bug; an error if the bug no longer applies."""
        found = text.count(self.old)
        if found != 1:
            raise SystemExit(f"{self.name} no longer applies: its text stands {found} times in the file")
        return text.replace(self.old, self.new)


# What a drawn bug does to a node of the syntax tree: the node's new text, or None if the operator does not fit.


def sign(node: ast.AST) -> str | None:
    """``a + b`` becomes ``a - b`` and the other way round; ``-a`` becomes ``a``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        swapped = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return ast.unparse(ast.BinOp(node.left, swapped, node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"({ast.unparse(node.operand)})"
    return None


def factor(node: ast.AST) -> str | None:
    """A product or a quotient is doubled."""
    fits = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
    return f"(2 * ({ast.unparse(node)}))" if fits else None


def off_by_one(node: ast.AST) -> str | None:
    """A whole number grows by one; ``<`` becomes ``<=`` and ``>`` becomes ``>=``, and the other way round."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value + 1)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        swapped = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}.get(type(node.ops[0]))
        return ast.unparse(ast.Compare(node.left, [swapped()], node.comparators)) if swapped else None
    return None


def swapped(node: ast.AST) -> str | None:
    """The first two arguments of a call change places."""
    if not isinstance(node, ast.Call) or len(node.args) < 2 or any(isinstance(a, ast.Starred) for a in node.args[:2]):
        return None
    first, second, *others = node.args
    if ast.unparse(first) == ast.unparse(second):
        return None
    return ast.unparse(ast.Call(node.func, [second, first, *others], node.keywords))


OPERATORS = {"sign": sign, "factor of 2": factor, "off by one": off_by_one, "swapped arguments": swapped}


def computing(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a file that compute: inside functions, but not in annotations, messages, defaults and raised errors."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            pending: list[ast.AST] = list(function.body)
            while pending:
                node = pending.pop(0)
                if isinstance(
                    node, ast.FunctionDef | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert
                ):
                    continue
                yield node
                for name, field in ast.iter_fields(node):
                    if name not in ("annotation", "returns", "keywords" if called_warning(node) else ""):
                        pending += [
                            one for one in (field if isinstance(field, list) else [field]) if isinstance(one, ast.AST)
                        ]


def called_warning(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("warn", "errstate"))


def draw() -> list[Bug]:
    """The bugs drawn at random: rooms and operators in turn, then a file and a place in it with equal chances."""
    rng, bugs = random.Random(SEED), []
    for i in range(DRAWN):
        room, operator = list(DRAWN_FROM)[i % 4], list(OPERATORS)[i // 4 % 4]
        while True:
            file = rng.choice(files(room))
            text = (ROOT / file).read_text()
            fits = [node for node in computing(ast.parse(text)) if OPERATORS[operator](node)]
            if fits and (bug := placed(room, file, text, rng.choice(fits), operator)) not in bugs and bug is not None:
                bugs.append(bug)
                break
    return bugs


def files(room: str) -> list[str]:
    """The files of a room from which bugs are drawn."""
    found = [ROOT / path for path in DRAWN_FROM[room]]
    python = [one for path in found for one in (sorted(path.glob("*.py")) if path.is_dir() else [path])]
    return [
        str(path.relative_to(ROOT)) for path in python if path.name not in ("__init__.py", "settings.py", "plots.py")
    ]


def placed(room: str, file: str, text: str, node: ast.AST, operator: str) -> Bug | None:
    """The bug at a node, with so many lines around it that its text stands in the file once."""
    lines = text.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    before = "".join(lines[first : last + 1])
    start = len(lines[first].encode()[: node.col_offset].decode())  # type: ignore[attr-defined]
    end = len(before) - len(lines[last]) + len(lines[last].encode()[: node.end_col_offset].decode())  # type: ignore[attr-defined]
    after = before[:start] + str(OPERATORS[operator](node)) + before[end:]
    while text.count(before) > 1:
        first -= 1
        before, after = lines[first] + before, lines[first] + after
    return Bug(room, file, f"{operator}, line {node.lineno}", before, after)  # type: ignore[attr-defined]


def written(bugs: list[Bug]) -> str:
    """Bugs as TOML."""
    parts = []
    for bug in bugs:
        rows = [f'{name} = "{getattr(bug, name)}"' for name in ("room", "file", "what")]
        rows += [f"{name} = '''\n{getattr(bug, name)}'''" for name in ("old", "new")]
        parts.append("[[bug]]\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def known(room: str | None = None) -> list[Bug]:
    """All bugs, or those of a room; an error if one no longer applies."""
    bugs = [Bug(**row) for path in sorted(DATA.glob("*.toml")) for row in tomllib.loads(path.read_text())["bug"]]
    for bug in bugs:
        bug.planted((ROOT / bug.file).read_text())
    return [bug for bug in bugs if room in (None, bug.room)]


class Copy:
    """A copy of the repository in which bugs are planted, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = shutil.ignore_patterns(".git", ".venv", "__pycache__", "out", ".pytest_cache", ".ruff_cache")
        shutil.copytree(ROOT, folder, ignore=kept, dirs_exist_ok=True)

    def outcome(self, bug: Bug) -> tuple[str, str]:
        """("caught", the test that failed), ("unseen", "") or ("MISSED", what changed)."""
        path = self.folder / bug.file
        text = path.read_text()
        try:
            path.write_text(bug.planted(text))
            for tests in (TESTS[bug.room], ["tests"]):
                if failed := self._first_failure(tests):
                    return "caught", failed
            path.write_text(text)
            self._record("sound.json")
            path.write_text(bug.planted(text))
            return self._visible()
        finally:
            path.write_text(text)

    def _first_failure(self, tests: list[str]) -> str:
        """The first test that fails, or ""; with the tests of the whole repository only the quick ones."""
        quick = ["-m", "not slow"] if tests == ["tests"] else []
        done = self._python("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *quick, *tests)
        failed = [line.split(" ")[1] for line in done.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return failed[0] if failed else ""

    def _visible(self) -> tuple[str, str]:
        """Whether the record of `benchmarks.record` differs from that of the copy without a bug."""
        planted = self._record("planted.json")
        told = self._python("-m", "benchmarks.record", "compare", "sound.json", planted, "--rtol", str(SEEN))
        differing = [line for line in told.splitlines() if line.startswith(("differs", "missing"))]
        return ("MISSED", differing[0]) if differing else ("unseen", "")

    def _record(self, name: str) -> str:
        """Write the record of the copy as it is; that without a bug is written once."""
        if name != "sound.json" or not (self.folder / name).exists():
            self._python("-m", "benchmarks.record", "write", name)
        return name

    def _python(self, *arguments: str) -> str:
        variables = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=variables, capture_output=True, text=True, check=False
        ).stdout


def run(bugs: list[Bug], out: Path, workers: int) -> int:
    """Plant each bug that ``out`` does not have yet; 1 if a bug that a user sees was missed."""
    done = {row["bug"]: row for row in csv.DictReader(out.open())} if out.exists() else {}
    missing = [bug for bug in bugs if bug.name not in done]
    with tempfile.TemporaryDirectory() as folder, out.open("a", newline="") as file:
        rows = csv.DictWriter(file, ["room", "bug", "outcome", "test"])
        if not done:
            rows.writeheader()
        copies: SimpleQueue[Copy] = SimpleQueue()
        for i in range(min(workers, len(missing))):
            copies.put(Copy(Path(folder) / str(i)))

        def plant(bug: Bug) -> dict[str, str]:
            copy = copies.get()
            try:
                outcome, test = copy.outcome(bug)
            finally:
                copies.put(copy)
            return {"room": bug.room, "bug": bug.name, "outcome": outcome, "test": test}

        with ThreadPoolExecutor(workers) as pool:
            for row in pool.map(plant, missing):
                done[row["bug"]] = row
                rows.writerow(row)
                file.flush()
                print(f"{row['outcome']:7} {row['bug']}  {row['test']}", flush=True)
    found = [done[bug.name] for bug in bugs]
    for room in dict.fromkeys(bug.room for bug in bugs):
        here = [row["outcome"] for row in found if row["room"] == room]
        caught, unseen, missed = (here.count(word) for word in ("caught", "unseen", "MISSED"))
        print(f"{room}: {caught} of {len(here)} caught, {unseen} change no number, {missed} missed")
    return int(any(row["outcome"] == "MISSED" for row in found))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("draw", help="write the drawn bugs again")
    verbs.add_parser("list", help="print the bugs, and check that each applies")
    runner = verbs.add_parser("run", help="plant each bug in turn")
    runner.add_argument("--room", choices=TESTS)
    runner.add_argument("--out", type=Path, default=Path("out/planted.csv"))
    runner.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if asked.verb == "draw":
        DATA.mkdir(exist_ok=True)
        (DATA / "drawn.toml").write_text(written(draw()))
        return 0
    if asked.verb == "list":
        for bug in known():
            print(bug.name)
        return 0
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    return run(known(asked.room), asked.out, asked.workers)


if __name__ == "__main__":
    sys.exit(main())
