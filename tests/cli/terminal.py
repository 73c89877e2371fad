"""A terminal of some width around a verb, and which numbers of its JSON stand in its text."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

from nqm.cli.output import Sink
from nqm.show.tables import to_json

WIDTHS = (40, 60, 80, 120)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?%?", re.IGNORECASE)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(show: Callable[[], object], width: int) -> str:
    """What a function prints on a terminal of ``width`` columns, without escape sequences."""
    import pty

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    parts: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:  # Linux says so when the last writer has closed the terminal.
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        with open(slave, "w", encoding="utf-8") as screen:
            patch.setattr(sys, "stdout", screen)
            patch.setattr(sys, "__stdout__", screen)
            show()
    reader.join()
    os.close(master)
    return ESCAPE.sub("", b"".join(parts).decode().replace("\r\n", "\n"))


def delivered(call: Callable[[], Result]) -> tuple[Any, dict[int, str], str]:
    """The JSON of a verb, its text on terminals of several widths, and its text in a pipe; it computes once."""
    found: list[tuple[Any, dict[int, str]]] = []

    def deliver(self: Sink, data: Callable[[], object], show: Callable[[], None], *_: object, **more: object) -> None:
        found.append((json.loads(to_json(data())), {width: on_terminal(show, width) for width in WIDTHS}))
        show()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sink, "deliver", deliver)
        result = call()
    assert result.exit_code == 0, result.output
    ((data, texts),) = found
    return data, texts, result.stdout


def numbers(data: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number in JSON, with its path; the items of a list have one path."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from numbers(value, f"{path}.{key}".lstrip("."))
    elif isinstance(data, list):
        for value in data:
            yield from numbers(value, path + "[]")
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield path, data


def printed(text: str) -> list[tuple[float, float]]:
    """Every number in a text, with half a unit of its last digit."""
    found = []
    for token in NUMBER.findall(text):
        share = 0.01 if token.endswith("%") else 1.0
        digits, _, exponent = token.rstrip("%").replace(",", "").lower().partition("e")
        decimals = len(digits.partition(".")[2])
        power = int(exponent or 0)  # text, and not 10.0**power: a key such as 1e4711 must not overflow
        found.append((float(f"{digits}e{power}") * share, float(f"0.5e{power - decimals}") * share))
    return found


def stands(value: float, text: list[tuple[float, float]]) -> bool:
    """Whether a number is printed: to two digits or more, and rounded as it should be, or to the four digits of a table."""
    close, last = 6e-4 * abs(value), 0.05 * abs(value)
    return any(abs(value - v) <= max(close, half * (1 + 1e-9) if half <= last else 0) for v, half in text)
