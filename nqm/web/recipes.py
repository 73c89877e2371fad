"""The same answer elsewhere: the command line and the lines of Python that give what an endpoint gave.

Numbers are written in full, so that both repeat the answer to the last digit. What a body leaves at its default is
omitted in both, where it is the default too.
"""

from __future__ import annotations

import ast
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import nqm

from ..optimizers import Optimizer, free
from ..show.numbers import exact
from ..text.tokens import Text
from .bodies import BODIES, PAPER, Given, PlannedSchedule

QUICK_NODES = "compress(1e-9)"
FUNCTIONS = {"steps": "steps_to_target", "schedule": "optimal_schedule", "map": "phase_map"}
"""Functions of the library that do not bear the name of their endpoint, which is that of the verb."""
FLAGS = {"epochs": ("--epochs", "replacement=False"), "quadratic": ("--quadratic", "bent=False")}
"""Flags of a body as an option and as an argument."""
SAMPLED_ONLY = {"seed", "replicas"}  # An exact curve has neither.


def recipe(endpoint: str, values: Mapping[str, Any], quick: bool = False) -> dict[str, str]:
    """The command and the Python that repeat an answer to what the reader made of a body.

    ``quick`` says that the answer was computed on quadrature nodes.
    """
    given, usual = values["problem"], BODIES[endpoint].fields
    if endpoint == "spectrum":
        command = shlex.join(["nqm", "spectrum", _spectrum(given), "--json"])
        return {"command": command, "python": python(f"answer = {_python_spectrum(given)}")}
    optimizers = [source(o) for o in values.get("optimizers") or [values["optimizer"]]]
    exact_curve = endpoint == "curve" and values["optimizer"].linear
    left_out = {"problem", "optimizer", "optimizers", "quick", *(SAMPLED_ONLY if exact_curve else ())}
    named = {k: v for k, v in values.items() if k not in left_out and v is not None and v != usual[k].default}
    file = [given.spectrum.text] if endpoint == "predict" else []
    words = [endpoint, *file, *optimizers, *(word for name, value in named.items() for word in _option(name, value))]
    arguments = [_argument(name, value) for name, value in named.items()]
    if endpoint == "predict":
        line = f"answer = {_call(f'Fit.load({file[0]!r}).predict', *optimizers, *arguments)}"
        return {"command": shlex.join(["nqm", *words]), "python": python(line)}
    if endpoint == "curve":
        calls = [_call("problem.run" if exact_curve else "problem.sample", *optimizers, *arguments)]
    else:
        calls = [_call(FUNCTIONS.get(endpoint, endpoint), "problem", o, *arguments) for o in optimizers]
    answer = f"[{', '.join(calls)}]" if endpoint == "sweep" else calls[0]
    more = "" if given.label_noise is None else f", label_noise={given.label_noise!r}"
    problem = f"problem = {type(given.problem).__name__}({_python_spectrum(given, quick)}{more})"
    command = shlex.join(["nqm", *words, *_problem_options(given, quick)])
    return {"command": command, "python": python(problem, f"answer = {answer}")}


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


def _option(name: str, value: object) -> Iterator[str]:
    """A value as words of the command line."""
    if name in FLAGS:
        yield FLAGS[name][0]
        return
    yield "-b" if name == "batch_size" else f"--{name.replace('_', '-')}"
    match value:
        case PlannedSchedule():
            yield value.text
        case list():
            yield ",".join(exact(size) for size in value)
        case int() | float():
            yield exact(value)
        case _:
            yield str(value)


def _argument(name: str, value: object) -> str:
    """A value as an argument in Python."""
    if name in FLAGS:
        return FLAGS[name][1]
    match value:
        case PlannedSchedule():
            return f"{name}={ast.unparse(Text('schedule', value.text).tree)}"
        case list():
            return f"{name}=[{', '.join(exact(size) for size in value)}]"
        case float() if math.isinf(value):
            return f"{name}=inf"
        case _:
            return f"{name}={value!r}"


def _call(function: str, *arguments: str) -> str:
    return f"{function}({', '.join(arguments)})"


def _spectrum(given: Given, quick: bool = False) -> str:
    """The spectrum as text of the command line; a file's and a regression's are not worth other nodes there."""
    text = given.spectrum.text
    return f"{text}.{QUICK_NODES}" if quick and not given.spectrum.opened and given.problem.separable else text


def _problem_options(given: Given, quick: bool) -> list[str]:
    """--spectrum, --problem and --label-noise, where they are not the usual ones."""
    text = _spectrum(given, quick)
    found = [] if text == PAPER else ["--spectrum", text]
    if given.kind != "quadratic":
        found += ["--problem", given.kind]
    if given.label_noise is not None:
        found += ["--label-noise", exact(given.label_noise)]
    return found


def _python_spectrum(given: Given, quick: bool = False) -> str:
    opened = given.spectrum.opened
    if opened:
        return f"Fit.load({opened.name!r}).spectrum" if opened.fit else f"Spectrum.load({opened.name!r})"
    tree = Text("spectrum", _spectrum(given, quick)).tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "power_law":
            node.func = ast.Attribute(ast.Name("Spectrum", ast.Load()), "power_law", ast.Load())
    return ast.unparse(tree)
