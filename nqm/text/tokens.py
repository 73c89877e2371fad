"""The text of a constructor as a syntax tree, which is read and never evaluated. `values` and `objects` read from it."""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import NoReturn, TypeVar

import numpy as np

from ..types import Wrong, short, unknown

T = TypeVar("T")
Numbers = float | list[float]

MAX_LENGTH = 2_000  # A text may have at most this many characters.
MAX_NESTING = 50  # Brackets may be nested at most this deep.
MAX_EXPONENT = 1_024  # Larger exponents are refused; 2**1023 is the largest power of two that is a float.
MAX_FLOAT = sys.float_info.max
EXACT_INTEGERS = 2**53  # All integers up to this one are exact as floats.

EXAMPLE_TEXTS = {
    "optimizer": "EMA(HeavyBall(momentum=0.9))", "schedule": "warmup(100) + cosine(900)", "spectrum": "power_law(10000)",
    "number": "1024, 1,024, 1k, 4M, 2^10, 1e6 or 1/8", "noise": "student_t(5)",
}  # fmt: skip

SUFFIXES = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}
"""The factor that a letter after a number stands for."""

ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow,
}  # fmt: skip

TOKEN = re.compile(
    r"""
    (?P<own>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?(?P<suffix>[kKMB])?(?!\w))
  | (?P<string>"\w*"|'\w*')
  | (?P<operator>\*\*|[-+*/^&=.,()\[\]])
  | (?P<space>\s)
    """,
    re.VERBOSE | re.ASCII,
)


NUMBER_AND_LETTERS = re.compile(r"[.\d]\w+", re.ASCII)  # such as 4m or 1kk, which are no tokens
LEADING_ZEROS = re.compile(r"0[\d_]+", re.ASCII)  # such as 024 or 000


class Text:
    """A text as a syntax tree, and readers for the numbers and calls in it. Only known kinds of tokens are accepted.

    ``own`` maps each placeholder in the tree to the ``module:Class`` that it replaces, which is not valid Python.
    """

    def __init__(self, what: str, text: str) -> None:
        self.what = what
        self.own: dict[str, str] = {}
        if not isinstance(text, str) or not text.strip():
            raise Wrong(f"{article(what)} is text such as {EXAMPLE_TEXTS[what]}, got {text!r:.60}")
        if len(text) > MAX_LENGTH:
            raise Wrong(f"{article(what)} is at most {MAX_LENGTH:,} characters long, got {len(text):,}")
        self.text = " ".join(text.split())
        source = "".join(self._tokens())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(source, mode="eval").body
        except SyntaxError as error:
            self._refuse(error.msg[:1].lower() + error.msg[1:])
        except (ValueError, RecursionError, MemoryError):
            self._refuse("it is too deeply nested")

    def _tokens(self) -> Iterable[str]:
        """The tokens of the text as Python: ^ becomes a power, 1k a product, and module:Class a placeholder."""
        at = depth = 0
        while at < len(self.text):
            found = TOKEN.match(self.text, at)
            if not found:
                if word := NUMBER_AND_LETTERS.match(self.text, at):
                    letters = "k for a thousand, M for a million or B for a billion"
                    self._refuse(f"after a number comes {letters}, and nothing else, got {short(word.group())!r}")
                self._refuse(f"{self.text[at]!r} at character {at + 1} has no meaning here")
            token, at = found.group(), found.end()
            if LEADING_ZEROS.fullmatch(token):  # Python reads 000 as 0, so power_law(1,000) would be power_law(1, 0).
                comma = "here a comma separates numbers, so write 1024 and not 1,024"
                self._refuse(f"no number begins with 0, got {short(token)!r}; {comma}")
            depth += (token in "([") - (token in ")]")
            if depth > MAX_NESTING:
                self._refuse(f"it is nested more than {MAX_NESTING} deep")
            if found.lastgroup == "own":
                # A user cannot write a placeholder, because tokens are ASCII.
                placeholder = f"Ω{len(self.own)}"
                self.own[placeholder] = token
                token = placeholder
            if suffix := found["suffix"]:
                token = f"({token[:-1]}*{SUFFIXES[suffix]})"
            yield "**" if token == "^" else token

    def read(self, reader: Callable[[ast.expr], T]) -> T:
        """What ``reader`` returns for the tree."""
        try:
            return reader(self.tree)
        except RecursionError:
            self._refuse("it is too deeply nested")

    def _refuse(self, why: str) -> NoReturn:
        raise Wrong(f"cannot read {short(self.text)!r} as {article(self.what)}: {why}") from None

    def shown(self, node: ast.expr) -> str:
        """A part of the text, quoted for a message."""
        part = ast.unparse(node)
        for placeholder, path in self.own.items():
            part = part.replace(placeholder, path)
        return repr(short(part))

    def number(self, node: ast.expr) -> float:
        """The number that a literal, ``inf`` or arithmetic on numbers stands for."""
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self._bounded(value, node)
            case ast.Name(id="inf"):
                return math.inf
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                first, second = self.number(left), self.number(right)
                if isinstance(op, ast.Pow) and abs(second) > MAX_EXPONENT:
                    raise Wrong(f"the exponent in {self.shown(node)} is larger than {MAX_EXPONENT}")
                try:
                    return self._bounded(ARITHMETIC[type(op)](first, second), node)
                except ArithmeticError:
                    raise Wrong(f"{self.shown(node)} is not a finite number") from None
        raise Wrong(f"{self.shown(node)} is not a number")

    def _bounded(self, value: float | complex, node: ast.expr) -> float:
        """The number, as a float if it is a large integer; complex numbers and NaN are refused."""
        try:
            real = value if isinstance(value, int) and abs(value) <= EXACT_INTEGERS else float(value)  # type: ignore[arg-type]
        except (OverflowError, TypeError):
            raise Wrong(f"{self.shown(node)} is not a number that a float can hold") from None
        if math.isnan(real):
            raise Wrong(f"{self.shown(node)} is not a number")
        if math.isinf(real):  # An infinite number is written as inf, so that one digit too many is not taken for it.
            raise Wrong(f"a number in {short(self.text)!r} is beyond the largest float, {MAX_FLOAT:.2g}")
        return real

    def numbers(self, node: ast.expr) -> Numbers:
        """A number or a list of numbers."""
        return [self.number(element) for element in node.elts] if isinstance(node, ast.List) else self.number(node)

    def call(self, node: ast.expr) -> tuple[ast.expr, list[ast.expr], dict[str, ast.expr]]:
        """The function, the arguments and the named arguments of a call; a bare name is a call without arguments."""
        if not isinstance(node, ast.Call):
            return node, [], {}
        named: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in named:
                raise Wrong(f"in {self.shown(node)} every argument must be named once")
            named[keyword.arg] = keyword.value
        return node.func, node.args, named


def argument_names(function: Callable[..., object]) -> list[str]:
    """The names of the arguments that a constructor accepts in text."""
    names = inspect.signature(function).parameters
    hidden = {f.name for f in fields(function) if not f.metadata.get("text", True)} if is_dataclass(function) else set()
    return [name for name in names if name not in hidden]


def bind(name: str, function: Callable[..., object], args: Sequence[T], named: dict[str, T]) -> dict[str, T]:
    """The values of the arguments by name. An argument that is unknown, missing or given twice is refused."""
    names = argument_names(function)
    if len(args) > len(names):
        raise Wrong(f"{name} got {len(args)} arguments but takes at most {len(names)} ({', '.join(names)})")
    for key in named:
        if key not in names:
            raise unknown(f"argument of {name} called", key, names)
        if key in names[: len(args)]:
            raise Wrong(f"{name} got {key} twice")
    values = dict(zip(names, args, strict=False)) | named
    parameters = inspect.signature(function).parameters
    if missing := [n for n in names if n not in values and parameters[n].default is inspect.Parameter.empty]:
        raise Wrong(f"{name} needs {' and '.join(missing)}; it takes {', '.join(names)}")
    return values


def make(function: Callable[..., T], values: Mapping[str, object]) -> T:
    """The object that a constructor builds; it checks its arguments itself, and warnings about arithmetic are off."""
    with np.errstate(all="ignore"):
        return function(**values)


def article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"
