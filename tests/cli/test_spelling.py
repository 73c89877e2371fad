"""Sentences of the library reach the screen with options in place of Python's arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import nqm
from nqm.cli.spelling import as_options

ROOT = Path(nqm.__file__).parent
ARGUMENT = re.compile(r"\b(columns|batch_size|optimizer|weight_decay|schedule|peak|stable|on)=")
CALLS = re.compile(r"\w+\([^)]*\)")  # SGD(lr=0.1) is also how an optimizer is written on the command line.
PYTHON_ONLY = ("a constant rate needs steps=",)


def sentences() -> Iterator[str]:
    """Every text of the logs and searches that speaks of an argument; what is put into it stands as ``...``."""
    for file in [*(ROOT / "logs").glob("*.py"), ROOT / "search" / "schedules.py", ROOT / "search" / "phase.py"]:
        tree = ast.parse(file.read_text())
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(v.value) if isinstance(v, ast.Constant) else "'...'" for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                text = node.value
            else:
                continue
            if " " in text and "\n" not in text and ARGUMENT.search(CALLS.sub("", text)):
                yield text


@pytest.mark.parametrize("text", sorted(set(sentences())))
def test_a_sentence_on_an_argument_becomes_one_on_an_option(text: str) -> None:
    said = as_options(text)
    assert not ARGUMENT.search(CALLS.sub("", said)), said
    assert "--" in said


@pytest.mark.parametrize(
    ("python", "option"),
    [
        ("columns={'loss': 'val/loss'} takes the other", "--map loss='val/loss' takes the other"),
        ("without max_rate= (--max-rate) the loss", "without --max-rate the loss"),
        ("for the plain quadratic (bent=False, --quadratic)", "for the plain quadratic (--quadratic)"),
        ("of the fit (state=..., --state FILE)", "of the fit (--state FILE)"),
        ("at most 9 steps, or extrapolate", "at most 9 steps, or give --extrapolate"),
        ("checked for 9 steps: extrapolate to go on", "checked for 9 steps: give --extrapolate to go on"),
        ("no interval. Extrapolate to have one.", "no interval. Give --extrapolate to have one."),
        (
            "make one: fit(network, optimizer=...) with the torch optimizer, or `nqm fit --optimizer adamw --state c.pt`",
            "make one: `nqm fit --optimizer adamw --state c.pt`",
        ),
        (
            "make one: fit(network, optimizer=KFAC()), or `nqm fit --optimizer 'KFAC()'`",
            "make one: `nqm fit --optimizer 'KFAC()'`",
        ),
        ("on='batch_size' needs a budget, examples=, of", "--on batch_size needs a budget, --examples, of"),
    ],
)
def test_spelling(python: str, option: str) -> None:
    assert as_options(python) == option


@pytest.mark.parametrize(
    "text", ["HeavyBall(lr=0.1, momentum=0.9)", "nqm map --x lr=0.1..4 --steps 3", "--map loss=NAME", ""]
)
def test_what_is_typed_stays(text: str) -> None:
    assert as_options(text) == text
