"""Optimizers, schedules and spectra from the text of their constructors, which is parsed and never evaluated.

A text may have calls of known names, numbers and lists of numbers; anything else is refused with a sentence. Only
``module:Class``, an optimizer of the user's own, runs code of the user: its module is imported, if the caller allows it.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import numpy as np

from .. import optimizers
from ..engine import schedule
from ..engine.schedule import MAX_SCHEDULE_STEPS, Schedule
from ..engine.spectrum import Spectrum
from ..optimizers import Optimizer, free
from ..sampling.laws import law
from ..search import Axis
from ..types import Wrong, unknown
from .imports import imported, user_code
from .tokens import EXAMPLE_TEXTS, MAX_LENGTH, T, Text, article, bind, make
from .values import parse_number

MAX_TEXT_PIECES = 10**6  # A schedule in text may have this many pieces, and a spectrum this many bins.
MIN_TOLERANCE = 1e-12  # Smallest tolerance of a compression; below it every mode would be kept.
FILES = (".json", ".npz", ".csv")
SPECTRUM_METHODS = ("binned", "compress")
LISTS = {"step": ("at",), "Schedule": ("lengths", "lr", "momentum", "batch_size"), "Spectrum": ("h", "c", "s", "count")}
"""The arguments of each constructor that may be lists."""
KNOWN_OPTIMIZERS: dict[str, type[Optimizer]] = {
    name: kind
    for name, kind in sorted((name, getattr(optimizers, name)) for name in optimizers.__all__)
    if inspect.isclass(kind) and issubclass(kind, Optimizer) and not inspect.isabstract(kind)
}
KNOWN_SCHEDULES: dict[str, Callable[..., Schedule]] = {n: getattr(schedule, n) for n in sorted(schedule.__all__)}
KNOWN_SPECTRA: dict[str, Callable[..., Spectrum]] = {"power_law": Spectrum.power_law, "Spectrum": Spectrum}


def parse_optimizer(
    text: str, *, allow_import: bool = False, also: Mapping[str, type[Optimizer]] | None = None
) -> Optimizer:
    """An optimizer from its constructor. Omitted parameters are free, and a bare name is a call without arguments.

    Parameters
    ----------
    text : such as ``EMA(HeavyBall(momentum=0.9), decay=0.99)``, or ``module:Class(lr=0.1)`` for one of your own.
    allow_import : whether ``module:Class`` is allowed; importing the module runs its code.
    also : classes by name that are known besides those of `nqm.optimizers`.

    >>> print(parse_optimizer("EMA(HeavyBall(momentum=0.9), decay=1 - 2^-7)"))
    EMA(HeavyBall(momentum=0.9), decay=0.992188)
    >>> parse_optimizer("HevyBall")
    Traceback (most recent call last):
    nqm.types.Wrong: there is no optimizer 'HevyBall' (did you mean HeavyBall?); there are Adam, AdamW, ...
    """
    source = Text("optimizer", text)
    classes = {**KNOWN_OPTIMIZERS, **(also or {})}
    for name, path in source.own.items():
        if not allow_import:
            raise Wrong(f"{path} is not imported here; use one of {', '.join(KNOWN_OPTIMIZERS)}")
        found = imported(path, "an optimizer class")
        if not (inspect.isclass(found) and issubclass(found, Optimizer)):
            raise Wrong(f"{path} is not an optimizer; it must be a class that derives from nqm.Optimizer")
        if inspect.isabstract(found):
            raise Wrong(f"{path} is abstract: it lacks {', '.join(sorted(found.__abstractmethods__))}")
        classes[name] = found
    return source.read(lambda node: _optimizer(source, node, classes))


def parse_schedule(text: str) -> Schedule:
    """A schedule from its constructors. ``+`` joins two in time, ``&`` applies both at once, ``.on(...)`` says to what.

    >>> parse_schedule("warmup(2) + constant(3)").lr.tolist()
    [0.5, 1.0]
    >>> parse_schedule('step(9, 2, at=[3, 6]).on("batch_size")').batch_size.tolist()
    [1.0, 2.0, 4.0]
    """
    source = Text("schedule", text)
    return source.read(lambda node: _schedule(source, node))


def parse_spectrum(text: str, *, allow_files: bool = True) -> Spectrum:
    """A spectrum from ``power_law(...)`` or ``Spectrum([...])``, perhaps with ``.binned(n)`` or ``.compress(tol)``; or a file.

    >>> round(parse_spectrum("power_law(10_000).binned(100)").trace, 6)
    9.404991
    """
    name = text.strip() if isinstance(text, str) else ""
    if name.lower().endswith(FILES) or ("(" not in name and ("." in name or os.sep in name)):
        if not allow_files:
            raise Wrong(f"no files are read here; write a spectrum such as {EXAMPLE_TEXTS['spectrum']}")
        try:
            return Spectrum.load(name)
        except (OSError, RecursionError, MemoryError) as error:
            raise Wrong(f"cannot read the spectrum {name!r:.80}: {error}") from None
    source = Text("spectrum", text)
    return source.read(lambda node: _spectrum(source, node))


def compressed(spectrum: Spectrum, tol: float) -> Spectrum:
    """`Spectrum.compress`, with a tolerance that text may ask for."""
    _check_change("compress", {"tol": tol})
    return make(spectrum.compress, {"tol": tol})


def parse_axis(text: str) -> Axis:
    """An axis of a map: ``lr=0.001..4`` has 32 values, and ``momentum=0..0.999..40`` has 40.

    >>> parse_axis("batch_size=2^2..2^20..10")
    Axis(name='batch_size', low=4, high=1048576, n=10)
    """
    name, equals, values = text.partition("=") if isinstance(text, str) and len(text) <= MAX_LENGTH else ("", "", "")
    parts = values.split("..")
    if not equals or not name.strip() or not 2 <= len(parts) <= 3:
        raise Wrong(f"an axis is NAME=LOW..HIGH or NAME=LOW..HIGH..N, such as lr=0.001..4..40, got {text!r:.60}")
    low, high, *count = (parse_number(part) for part in parts)
    return Axis(name.strip(), low, high, *(int(n) if n == n // 1 else n for n in count))  # type: ignore[arg-type]


def parse_noise(text: str) -> str:
    """The name of a law of noise, with its number evaluated.

    >>> parse_noise("student_t(5/2)"), parse_noise("gaussian()")
    ('student_t(2.5)', 'gaussian')
    """
    source = Text("noise", text)
    function, args, named = source.call(source.tree)
    numbers = [f"{source.number(node)!r}" for node in args]
    numbers += [f"{name}={source.number(node)!r}" for name, node in named.items()]
    name = source.shown(function).strip("'")
    found = f"{name}({', '.join(numbers)})" if numbers else name
    law(found)  # It raises if there is no such law.
    return found


def _optimizer(source: Text, node: ast.expr, classes: dict[str, type[Optimizer]]) -> Optimizer:
    def value(argument: ast.expr) -> object:
        if isinstance(argument, ast.Name) and argument.id == "free":
            return free
        if isinstance(argument, ast.Call) or (isinstance(argument, ast.Name) and argument.id not in ("inf", "nan")):
            return _optimizer(source, argument, classes)
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return argument.value  # The constructor checks it.
        return source.number(argument)

    name, values = _constructor(source, node, classes, value)
    with user_code(f"making {source.own[name]}") if name in source.own else nullcontext():
        return make(classes[name], values)


def _schedule(source: Text, node: ast.expr) -> Schedule:
    match node:
        case ast.BinOp(op=ast.Add() | ast.BitAnd()):
            return _joined(source, node)
        case ast.Call(
            func=ast.Attribute(value=inner, attr="on"), args=[ast.Constant(value=str() as target)], keywords=[]
        ):
            return _schedule(source, inner).on(target)  # pyright: ignore[reportArgumentType]  # on checks it
        case ast.Call(func=ast.Attribute()):
            raise Wrong(f'after a schedule comes .on("momentum") or .on("batch_size"), got {source.shown(node)}')
    name, values = _constructor(source, node, KNOWN_SCHEDULES, source.numbers)
    if not isinstance(at := values.get("at", []), list):
        raise Wrong(f"{name}: at must be a list such as [300, 600], got {at:g}")
    # A schedule that is too long or has too many pieces is refused before it is built.
    changing = {"wsd": ("warmup_steps", "decay_steps"), "constant": (), "step": (), "Schedule": ()}
    if sum(np.sum(values[key]) for key in changing.get(name, ("steps",))) > MAX_TEXT_PIECES:
        raise Wrong(f"{name}: a schedule in text may have at most {MAX_TEXT_PIECES:,} pieces")
    if np.sum(values.get("lengths", values.get("steps", 0))) > MAX_SCHEDULE_STEPS:
        raise Wrong(f"{name}: a schedule lasts at most {MAX_SCHEDULE_STEPS:,} steps")
    return make(KNOWN_SCHEDULES[name], values)


def _joined(source: Text, node: ast.BinOp) -> Schedule:
    """A chain of + and &, evaluated from the left and without recursion, so that it may be long."""
    chain: list[tuple[type[ast.operator], ast.expr]] = []
    first: ast.expr = node
    while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add | ast.BitAnd):
        chain.append((type(first.op), first.right))
        first = first.left
    total = _schedule(source, first)
    for op, right in reversed(chain):
        after = _schedule(source, right)
        if len(total.ends) + len(after.ends) > MAX_TEXT_PIECES:
            raise Wrong(f"a schedule in text may have at most {MAX_TEXT_PIECES:,} pieces")
        total = total + after if op is ast.Add else total & after
    return total


def _spectrum(source: Text, node: ast.expr) -> Spectrum:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="Spectrum"), attr="power_law" as name)):
            # Spectrum.power_law(...), as in Python, means power_law(...).
            node = ast.Call(ast.Name(name), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args):
            if name not in SPECTRUM_METHODS:
                raise unknown("method of a spectrum called", name, SPECTRUM_METHODS)
            method = getattr(_spectrum(source, inner), name)
            named = {k: source.number(v) for k, v in source.call(node)[2].items()}
            values = bind(name, method, [source.number(a) for a in args], named)
            _check_change(name, values)
            return make(method, values)
    more = f", or a file that ends in {', '.join(FILES)}"
    name, values = _constructor(source, node, KNOWN_SPECTRA, source.numbers, more)
    return make(KNOWN_SPECTRA[name], values)


def _check_change(name: str, values: dict[str, float]) -> None:
    """Refuse arguments of `SPECTRUM_METHODS` that would take too long or too much memory."""
    if values.get("n", 2) > MAX_TEXT_PIECES:
        raise Wrong(f"{name}: n must be at most {MAX_TEXT_PIECES:,}, got {values['n']:g}", argument="n")
    if values.get("tol", 1) < MIN_TOLERANCE:
        raise Wrong(f"{name}: tol must be at least {MIN_TOLERANCE:g}, got {values['tol']:g}", argument="tol")


def _constructor(
    source: Text, node: ast.expr, known: Mapping[str, Callable[..., object]], value: Callable[[ast.expr], T], more: str = ""
) -> tuple[str, dict[str, T]]:  # fmt: skip
    """The name of the known constructor that is called, and its arguments as ``value`` reads them."""
    function, args, named = source.call(node)
    if not isinstance(function, ast.Name):
        example = EXAMPLE_TEXTS[source.what] + more
        raise Wrong(f"{source.shown(node)} is not {article(source.what)}; write one such as {example}")
    name = function.id
    if name not in known:
        raise unknown(source.what, source.own.get(name, name), [key for key in known if key not in source.own], more)
    shown = source.own.get(name, name)
    values = bind(shown, known[name], [value(a) for a in args], {k: value(v) for k, v in named.items()})
    for key, found in values.items():
        if isinstance(found, list) and key not in LISTS.get(name, ()):
            raise Wrong(f"{name}: {key} must be one number, got a list")
    return name, values
