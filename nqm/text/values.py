"""Numbers, batch sizes and learning rates from text."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Literal

from ..types import Wrong
from .tokens import EXAMPLE_TEXTS, MAX_LENGTH, Text

MAX_BATCH_SIZES = 1_000  # A text gives at most this many batch sizes, unless the caller allows fewer.
NUMBER_FORMS = f"write a number such as {EXAMPLE_TEXTS['number']}"
THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?\s*", re.ASCII)  # such as 1,024 or 65,536
DASHED_RANGE = re.compile(r"\s*\w+\s*-\s*\w+\s*", re.ASCII)  # such as 16-64, which would be read as a difference


def parse_number(text: str, *, finite: bool = False) -> float:
    """A number from text such as ``1,024``, ``1k``, ``4M``, ``2^10``, ``1e-3`` or ``1/8``; ``inf`` unless it must be finite.

    >>> parse_number("2^10"), parse_number("1,024"), parse_number("4M"), parse_number("1/8")
    (1024, 1024, 4000000, 0.125)
    """
    if isinstance(text, str) and THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        if not isinstance(text, str) or not text.strip() or "," in text:
            raise Wrong(f"{text!r:.60} is not a number")
        source = Text("number", text)
        number = source.read(source.number)
        if finite and math.isinf(number):
            raise Wrong(f"{text!r:.60} is not finite")
        return number
    except Wrong as error:
        raise Wrong(f"{error}; {NUMBER_FORMS}") from None


def parse_max_rate(text: str) -> float | Literal["paper"]:
    """The largest learning rate of a schedule: a positive number, inf, or the word paper.

    >>> parse_max_rate("2^-1"), parse_max_rate("paper")
    (0.5, 'paper')
    """
    if text.strip() == "paper":
        return "paper"
    number = parse_number(text)
    if not number > 0:
        raise Wrong(f"it must be a positive number, paper or inf, got {text!r:.60}")
    return number


def parse_batch_sizes(text: str, most: int = MAX_BATCH_SIZES) -> list[float]:
    """Batch sizes from a list such as ``4,16,64``, or a range: ``2^2..2^20`` in factors of 4, ``2^2..2^20..2`` in factors of 2.

    In a list a comma separates numbers, so ``1,024`` is refused there; write ``1024`` or ``1k``. ``512,1,536`` is refused
    too, because it may mean 512 and 1536; a list in increasing order is taken as it is.

    >>> parse_batch_sizes("2^2..2^8"), parse_batch_sizes("10..1000..10"), parse_batch_sizes("8, 2^5")
    ([4, 16, 64, 256], [10, 100, 1000], [8, 32])
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise Wrong(f"batch sizes are a list such as 4,16,64 or a range such as 2^2..2^20, got {text!r:.60}")
    if DASHED_RANGE.fullmatch(text):
        raise Wrong(f"a range of batch sizes is written with two dots, as in 16..64, got {text!r:.60}")
    parts = text.split("..")
    if len(parts) > 3:
        raise Wrong(f"a range of batch sizes is FIRST..LAST or FIRST..LAST..FACTOR, got {text!r:.60}")
    sizes = _range(text, *map(parse_number, parts)) if len(parts) > 1 else _positive("batch sizes", text)
    if len(sizes) > most:
        raise Wrong(f"{text!r:.60} gives more than {most:,} batch sizes; ask for fewer")
    return sizes


def parse_rates(text: str) -> list[float]:
    """Learning rates from a list.

    >>> parse_rates("0.03, 0.1")
    [0.03, 0.1]
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise Wrong(f"rates are a list such as 0.03,0.1,0.3, got {text!r:.60}")
    return _positive("rates", text)


def _positive(what: str, text: str) -> list[float]:
    parts = text.split(",")
    for before, part in pairwise(parts):
        if re.fullmatch(r"0\d\d(\.\d+)?", part, re.ASCII):
            first = before.strip()
            raise Wrong(f"in a list of {what} a comma separates numbers, so write {first}{part} and not {first},{part}")
    numbers = [parse_number(part) for part in parts]
    for i in range(2, len(parts)):
        joined = f"{parts[i - 1].strip()},{parts[i]}"
        falls_and_rises = numbers[i - 2] > numbers[i - 1] < numbers[i]
        if falls_and_rises and THOUSANDS.fullmatch(joined) and numbers[i - 2] < parse_number(joined):
            one = f"write {joined.replace(',', '')} if that is one number"
            raise Wrong(f"in a list of {what} a comma separates numbers; {one}, or write {what} in increasing order")
    if min(numbers) <= 0:
        raise Wrong(f"{what} must be positive, got {min(numbers):g}")
    return numbers


def _range(text: str, first: float, last: float, factor: float = 4) -> list[float]:
    if not (0 < first <= last < math.inf and 1 < factor < math.inf):
        raise Wrong(f"a range of batch sizes must start above 0 and rise by a factor above 1, got {text!r:.60}")
    count = 1 + math.floor(math.log(last / first) / math.log(factor) + 1e-9)
    return [first * factor**i for i in range(min(count, MAX_BATCH_SIZES + 1))]  # One too many is enough to be refused.
