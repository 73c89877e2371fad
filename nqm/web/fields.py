"""Kinds of values in a request. Each kind gives the JSON schema of its values and reads them.

One declaration serves both, so the schema cannot promise what the server does not do. A wrong value raises `Refused`, which
has the path of the field and a sentence with the bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..text.values import parse_number
from ..types import Wrong, short, unknown
from .limits import REQUEST

Schema = dict[str, object]
NUMBER_TEXT = 60  # A number that is written as text has at most this many characters.


class Refused(Exception):
    """A request that cannot be answered: a sentence, the field to change, the argument inside its text, and the HTTP status."""

    def __init__(self, sentence: str, field: str | None = None, argument: str | None = None, status: int = 422) -> None:
        super().__init__(sentence)
        self.field, self.argument, self.status = field, argument, status


def told(sentence: str, field: str | None = None, argument: str | None = None, **more: str) -> bytes:
    """The JSON that a client gets in place of an answer."""
    return json.dumps({"error": " ".join(sentence.split()), "field": field, "argument": argument, **more}).encode()


class Reader(Protocol):
    """A kind of value: its JSON schema, and a reader that turns JSON into a value or raises `Refused` with the path."""

    def schema(self) -> Schema: ...

    def read(self, value: object, path: str) -> object: ...


@dataclass(frozen=True)
class NumberValue:
    """A number between two bounds, as a JSON number or as text."""

    low: float
    high: float
    whole: bool = False
    infinite: bool = False  # Whether "inf" is allowed.

    def schema(self) -> Schema:
        kind = {"type": "integer" if self.whole else "number", "minimum": self.low, "maximum": self.high}
        return {"anyOf": [kind, {"type": "string", "maxLength": NUMBER_TEXT}]}

    def read(self, value: object, path: str) -> float:
        if isinstance(value, str):
            value = _parsed(parse_number, value, path)
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if self.infinite and number == math.inf:
            return number
        if not self.low <= number <= self.high or (self.whole and number != int(number)):
            what = "a whole number" if self.whole else "a number"
            more = ", or inf" if self.infinite else ""
            raise Refused(f"{path} must be {what} from {self.low:g} to {self.high:g}{more}, got {value!r:.60}", path)
        return int(number) if self.whole else number


@dataclass(frozen=True)
class PlainValue:
    """A value of one JSON type, unchanged: its class in Python, its name in a schema, and its name in a sentence."""

    kind: type
    name: str
    what: str

    def schema(self) -> Schema:
        return {"type": self.name}

    def read(self, value: object, path: str) -> object:
        if not isinstance(value, self.kind):
            raise Refused(f"{path} must be {self.what}, got {value!r:.60}", path)
        return value


FLAG = PlainValue(bool, "boolean", "true or false")
RAW_OBJECT = PlainValue(dict, "object", "an object")  # Its content is checked elsewhere.


@dataclass(frozen=True)
class ChoiceValue:
    """One of a few words."""

    words: tuple[str, ...]

    def schema(self) -> Schema:
        return {"enum": list(self.words)}

    def read(self, value: object, path: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise Refused(f"{path} must be one of {', '.join(self.words)}, got {value!r:.60}", path)
        return value


@dataclass(frozen=True)
class TextValue:
    """Text that a function turns into a value; the function raises `Wrong` if it cannot."""

    parse: Callable[[str], object]
    most: int = REQUEST.text

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": self.most}

    def read(self, value: object, path: str) -> object:
        if not isinstance(value, str):
            raise Refused(f"{path} must be text, got {value!r:.60}", path)
        if len(value) > self.most:
            raise Refused(f"{path} must be at most {self.most:,} characters long, got {len(value):,}", path)
        return _parsed(self.parse, value, path)


@dataclass(frozen=True)
class ListValue:
    """A list of values of one kind."""

    kind: Reader
    most: int

    def schema(self) -> Schema:
        return {"type": "array", "items": self.kind.schema(), "minItems": 1, "maxItems": self.most}

    def read(self, value: object, path: str) -> list[object]:
        if not isinstance(value, list):
            raise Refused(f"{path} must be a list, got {value!r:.60}", path)
        if not 1 <= len(value) <= self.most:
            raise Refused(f"{path} must have 1 to {self.most:,} entries, got {len(value):,}", path)
        return [self.kind.read(item, f"{path}.{i}") for i, item in enumerate(value)]


@dataclass(frozen=True)
class EitherValue:
    """Either text, which one kind reads, or other JSON, which another kind reads."""

    text: Reader
    other: Reader

    def schema(self) -> Schema:
        return {"anyOf": [self.text.schema(), self.other.schema()]}

    def read(self, value: object, path: str) -> object:
        return (self.text if isinstance(value, str) else self.other).read(value, path)


NEEDED = object()
"""The default of a field that must be given."""


@dataclass(frozen=True)
class Field:
    """A field of an object: its kind, and the JSON that is read if it is omitted. A default of None is not read."""

    kind: Reader
    default: object = NEEDED

    def read(self, value: object, path: str) -> object:
        if value is None:  # A form sends its empty fields as null.
            value = self.default
        if value is NEEDED:
            raise Refused(f"{path} is missing", path)
        return None if value is None else self.kind.read(value, path)


@dataclass(frozen=True)
class ObjectValue:
    """An object with named fields, and a function that builds a value from them. Other names are refused."""

    fields: Mapping[str, Field]
    make: Callable[..., Any] = field(default=dict)

    def schema(self) -> Schema:
        needed = [name for name, f in self.fields.items() if f.default is NEEDED]
        properties = {name: f.kind.schema() for name, f in self.fields.items()}
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}

    def read(self, value: object, path: str = "") -> Any:
        if not isinstance(value, dict):
            raise Refused(f"{path or 'the body'} must be an object, got {value!r:.60}", path or None)
        for name in value:
            if name not in self.fields:
                raise Refused(str(unknown("field", short(name, 40), self.fields)), _inside(path, short(name, 40)))
        found = {name: f.read(value.get(name), _inside(path, name)) for name, f in self.fields.items()}
        try:
            return self.make(**found)
        except Wrong as wrong:
            named = _inside(path, wrong.argument) if wrong.argument in self.fields else path
            raise Refused(str(wrong), named or None) from None


def _inside(path: str, name: str | None) -> str:
    return f"{path}.{name}" if path else name or ""


def _parsed(function: Callable[[str], object], text: str, path: str) -> object:
    """The value of a text. A `Wrong` becomes a `Refused` about this field, with the argument that is wrong in the text."""
    try:
        return function(text)
    except Wrong as wrong:
        raise Refused(str(wrong), path, wrong.argument) from None
