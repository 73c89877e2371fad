"""Kinds of values in a request: each has the JSON schema that describes it and the reader that checks it.

One declaration serves both, so that the schema cannot say what the server does not do. A value that is refused is a
`Refused` with the path of the field, and its sentence names the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..text.values import parse_number
from ..types import short, unknown
from . import limits

Schema = dict[str, Any]
NUMBER_TEXT = 60  # characters of a number written as text


class Refused(ValueError):
    """A request that cannot be answered: one sentence, the field to change, the status."""

    def __init__(self, sentence: str, field: str | None = None, status: int = 422) -> None:
        super().__init__(" ".join(sentence.split()))
        self.field, self.status = field, status


@dataclass(frozen=True)
class Number:
    """A number between two bounds, as such or as text."""

    low: float
    high: float
    whole: bool = False
    infinite: bool = False  # whether "inf" is one

    def schema(self) -> Schema:
        bounds = {"minimum": self.low, "maximum": self.high}
        kinds = [
            {"type": "integer" if self.whole else "number", **bounds},
            {"type": "string", "maxLength": NUMBER_TEXT},
        ]
        return {"anyOf": kinds}

    def read(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            value = _parsed(parse_number, value, path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(value, path)
        if self.infinite and value == math.inf:
            return value
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            self._refuse(value, path)
        return int(value) if self.whole else value

    def _refuse(self, value: Any, path: str) -> NoReturn:
        what = "a whole number" if self.whole else "a number"
        more = ", or inf" if self.infinite else ""
        raise Refused(f"{path} must be {what} from {self.low:g} to {self.high:g}{more}, got {value!r:.60}", path)


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def schema(self) -> Schema:
        return {"type": "boolean"}

    def read(self, value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            raise Refused(f"{path} must be true or false, got {value!r:.60}", path)
        return value


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def schema(self) -> Schema:
        return {"enum": list(self.words)}

    def read(self, value: Any, path: str) -> str:
        if value not in self.words:
            raise Refused(f"{path} must be one of {', '.join(self.words)}, got {value!r:.60}", path)
        return value


@dataclass(frozen=True)
class Text:
    """Text that a function makes something of, or refuses with a `ValueError`."""

    parse: Callable[[str], Any]
    most: int = limits.TEXT

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": self.most}

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, str):
            raise Refused(f"{path} must be text, got {value!r:.60}", path)
        if len(value) > self.most:
            raise Refused(f"{path} must be at most {self.most:,} characters long, got {len(value):,}", path)
        return _parsed(self.parse, value, path)


@dataclass(frozen=True)
class Items:
    """A list of values of one kind."""

    kind: Any
    most: int
    least: int = 1

    def schema(self) -> Schema:
        return {"type": "array", "items": self.kind.schema(), "minItems": self.least, "maxItems": self.most}

    def read(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise Refused(f"{path} must be a list, got {value!r:.60}", path)
        if not self.least <= len(value) <= self.most:
            raise Refused(f"{path} must have {self.least:,} to {self.most:,} entries, got {len(value):,}", path)
        return [self.kind.read(item, f"{path}.{i}") for i, item in enumerate(value)]


@dataclass(frozen=True)
class Either:
    """Text, or what another kind reads."""

    text: Any
    other: Any

    def schema(self) -> Schema:
        return {"anyOf": [self.text.schema(), self.other.schema()]}

    def read(self, value: Any, path: str) -> Any:
        return (self.text if isinstance(value, str) else self.other).read(value, path)


@dataclass(frozen=True)
class Any_:
    """An object that somebody else checks."""

    def schema(self) -> Schema:
        return {"type": "object"}

    def read(self, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Refused(f"{path} must be an object, got {value!r:.60}", path)
        return value


NEEDED: Any = object()
"""The default of a field that must be given."""


@dataclass(frozen=True)
class Field:
    """A value of an object: its kind, and what it is if left out; a default is not read."""

    kind: Any
    default: Any = NEEDED


@dataclass(frozen=True)
class Object:
    """Fields by name, and what is made of them; others are refused by name."""

    fields: Mapping[str, Field]
    make: Callable[..., Any] = field(default=dict)

    def schema(self) -> Schema:
        needed = [name for name, f in self.fields.items() if f.default is NEEDED]
        properties = {name: f.kind.schema() for name, f in self.fields.items()}
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}

    def read(self, value: Any, path: str = "") -> Any:
        if not isinstance(value, dict):
            raise Refused(f"{path or 'the body'} must be an object, got {value!r:.60}", path or None)
        for name in value:
            if name not in self.fields:
                raise Refused(str(unknown("field", short(name, 40), self.fields)), _inside(path, short(name, 40)))
        found = {}
        for name, f in self.fields.items():
            # null is left out: a form sends its empty fields so.
            if value.get(name) is not None:
                found[name] = f.kind.read(value[name], _inside(path, name))
            elif f.default is NEEDED:
                raise Refused(f"{_inside(path, name)} is missing", _inside(path, name))
            else:
                found[name] = f.default
        return _parsed(lambda given: self.make(**given), found, path)


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _parsed(function: Callable[[Any], Any], value: Any, path: str) -> Any:
    """What a function makes of a value; its `ValueError` is the field's."""
    try:
        return function(value)
    except Refused as refused:
        refused.field = refused.field or path or None
        raise
    except ValueError as error:
        raise Refused(str(error), path or None) from None
