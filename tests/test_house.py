"""docs/design.md tells where each thing lives: every answer is a file that exists and a name that it defines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nqm

ROOT = Path(nqm.__file__).parents[1]
PAGE = ROOT / "docs" / "design.md"
ROW = re.compile(
    r"^\| (?P<question>[^|]+\?) \| \[`(?P<shown>[^`]+)`\]\(\.\./(?P<file>[^)]+)\) \| `(?P<name>[\w.]+)` \|$", re.M
)


def answers() -> list[tuple[str, str, str]]:
    """Question, file and name of every row."""
    section = PAGE.read_text().partition("### Where is what")[2].partition("\n## ")[0]
    return [(row["question"], row["file"], row["name"]) for row in ROW.finditer(section)]


def defined(tree: ast.AST) -> set[str]:
    """What the body of a module or of a class defines."""
    names: set[str] = set()
    for node in getattr(tree, "body", []):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names |= {node.name, *(f"{node.name}.{inner}" for inner in defined(node))}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_twenty_questions_are_answered() -> None:
    found = answers()
    assert len(found) >= 20
    assert len({question for question, _, _ in found}) == len(found)


def test_every_answer_is_where_the_page_says() -> None:
    wrong = [
        (question, file, name)
        for question, file, name in answers()
        if not (ROOT / file).is_file() or name not in defined(ast.parse((ROOT / file).read_text()))
    ]
    assert wrong == []


def test_a_wrong_answer_would_show() -> None:
    tree = ast.parse((ROOT / "nqm" / "engine" / "moments.py").read_text())
    assert {"MomentMap", "MomentMap.__pow__"} <= defined(tree)
    assert "HeavyBall" not in defined(tree)


def test_every_room_and_every_link_of_the_page_exists() -> None:
    links = re.findall(r"\]\(\.\./([^)#]+)\)", PAGE.read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
    rooms = {p.name for p in (ROOT / "nqm").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert {room for room in rooms if f"nqm/{room})" not in PAGE.read_text()} == set()
