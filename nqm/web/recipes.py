"""The same answer elsewhere: the command line and the lines of Python that give what an endpoint gave.

Numbers are written in full, so that both repeat the answer to the last digit.
"""

from __future__ import annotations

import ast
import math
import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import nqm

from ..optimizers import Optimizer, free
from ..show.numbers import exact
from ..text.tokens import Text
from .bodies import PAPER, Given, Scheduled

QUICK = "compress(1e-9)"


def source(optimizer: Optimizer) -> str:
    """An optimizer as its constructor, with every digit.

    >>> from nqm import EMA, HeavyBall
    >>> source(EMA(HeavyBall(momentum=1 - 2**-20)))
    'EMA(HeavyBall(momentum=0.9999990463256836))'
    """
    shown = []
    for f in fields(optimizer):
        value = getattr(optimizer, f.name)
        if isinstance(value, Optimizer):
            shown.append(source(value))
        elif value is not free and value != f.default:
            shown.append(f"{f.name}={value!r}")
    return f"{type(optimizer).__name__}({', '.join(shown)})"


def spectrum_text(given: Given, quick: bool = False) -> str:
    """The spectrum as text of the command line; a file's and a regression's are not worth other nodes there."""
    if given.spectrum.opened or given.kind != "quadratic":
        return given.spectrum.text
    return f"{given.spectrum.text}.{QUICK}" if quick else given.spectrum.text


def problem_options(given: Given, quick: bool = False) -> list[str]:
    """--spectrum, --problem and --label-noise, where they are not the usual ones."""
    text = spectrum_text(given, quick)
    found = [] if text == PAPER else ["--spectrum", text]
    if given.kind != "quadratic":
        found += ["--problem", given.kind]
    if given.label_noise is not None:
        found += ["--label-noise", exact(given.label_noise)]
    return found


def option(name: str, value: Any, usual: Any = None) -> list[str]:
    """An option, unless it is the usual one."""
    if value is None or value == usual:
        return []
    return [name, value if isinstance(value, str) else exact(value)]


def command(verb: str, *words: str, options: Sequence[Sequence[str]] = ()) -> str:
    """A line for a shell.

    >>> command("tune", "EMA(SGD())", options=[option("-b", 64), option("--target", 0.01)])
    "nqm tune 'EMA(SGD())' -b 64 --target 0.01"
    """
    return shlex.join(["nqm", verb, *words, *(word for words in options for word in words)])


def python_spectrum(given: Given, quick: bool = False) -> str:
    """The spectrum in Python."""
    opened = given.spectrum.opened
    if opened:
        return f"Fit.load({opened.name!r}).spectrum" if opened.fit else f"Spectrum.load({opened.name!r})"
    tree = Text("spectrum", spectrum_text(given, quick)).tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "power_law":
            node.func = ast.Attribute(ast.Name("Spectrum", ast.Load()), "power_law", ast.Load())
    return ast.unparse(tree)


def python_problem(given: Given, quick: bool = False) -> str:
    """The line that makes the problem."""
    text = python_spectrum(given, quick)
    if given.kind == "quadratic":
        return f"problem = Quadratic({text})"
    more = "" if given.label_noise is None else f", label_noise={given.label_noise!r}"
    return f"problem = LeastSquares({text}{more})"


def python_schedule(scheduled: Scheduled | None) -> str | None:
    return None if scheduled is None else ast.unparse(Text("schedule", scheduled.text).tree)


def call(function: str, *args: str, **named: Any) -> str:
    """A call whose named arguments of None are left out; text among them is code."""
    shown = [f"{k}={v if isinstance(v, str) else _literal(v)}" for k, v in named.items() if v is not None]
    return f"{function}({', '.join([*args, *shown])})"


def python(*lines: str) -> str:
    """Lines of Python with the imports that they need.

    >>> print(python("problem = Quadratic(Spectrum([1.0]))", "answer = problem.run(SGD(lr=0.1), batch_size=inf, steps=9)"))
    from math import inf
    from nqm import SGD, Quadratic, Spectrum
    <BLANKLINE>
    problem = Quadratic(Spectrum([1.0]))
    answer = problem.run(SGD(lr=0.1), batch_size=inf, steps=9)
    """
    tree = ast.parse("\n".join(lines))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    public = sorted(names & set(nqm.__all__), key=lambda name: (not name.isupper(), name[0].islower(), name))
    head = ["from math import inf"] * ("inf" in names) + [f"from nqm import {', '.join(public)}"] * bool(public)
    head += ["from nqm.nets import Fit"] * ("Fit" in names)
    return "\n".join([*head, "", *lines])


def _literal(value: Any) -> str:
    return "inf" if isinstance(value, float) and math.isinf(value) else repr(value)
